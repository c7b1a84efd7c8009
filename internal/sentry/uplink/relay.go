package uplink

import (
	"errors"
	"io"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/network/wire"
)

// Stream is the guest's end of a connection. One goroutine reads, another one writes. All that
// waits gives up when stop is closed.
type Stream interface {
	// Await waits until Read has something to say.
	Await(stop <-chan struct{}) error
	// Read reads what the guest sends; io.EOF says that nothing more comes.
	Read(buf []byte, stop <-chan struct{}) (int, error)
	// Write writes all of data.
	Write(data []byte, stop <-chan struct{}) error
	// CloseWrite tells the guest that nothing more comes.
	CloseWrite()
	// Close ends the connection; what was written still arrives.
	Close()
	// Abort resets the connection.
	Abort()
}

// bufferSize is how much a relay moves at once.
const bufferSize = 256 << 10

// buffers are borrowed while there is something to be moved: an idle connection has none.
var buffers = sync.Pool{New: func() any { return new([bufferSize]byte) }}

// relay moves the bytes of a stream between the guest and the gateway.
type relay struct {
	fl    *flow
	guest Stream
	file  *os.File
	raw   syscall.RawConn

	failing    sync.Once     // also of a relay that ends as it should
	stop       chan struct{} // closed when it fails, or has ended
	guestReset bool          // written before stop is closed
}

// What ends a relay. Its guest is reset by either.
var (
	errGuestReset  = errors.New("the guest reset the connection")
	errServerReset = errors.New("the connection was reset behind the gateway, or the gateway is gone")
)

// runRelay moves bytes until both directions have ended. It takes over file and guest, and tells
// the gateway of the end.
func runRelay(fl *flow, guest Stream, file *os.File) {
	r := &relay{fl: fl, guest: guest, file: file, stop: make(chan struct{})}
	var err error
	if r.raw, err = file.SyscallConn(); err != nil {
		r.fail(errServerReset)
	}
	var wg sync.WaitGroup
	wg.Go(func() { r.fail(r.outward()) })
	wg.Go(func() { r.fail(r.inward()) })
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-fl.x.over: // what is left in the pair is not a whole either
			r.fail(errServerReset)
		case <-r.stop:
		}
	}()
	wg.Wait()
	whole := false
	r.failing.Do(func() { // the exchange may end at this moment
		whole = true
		close(r.stop)
	})
	if whole {
		guest.Close()
	} else {
		guest.Abort()
	}
	<-watched
	file.Close()
	if r.guestReset {
		fl.tell(wire.Reset)
	} else {
		fl.tell(wire.Closed)
	}
	fl.forget()
}

// fail ends both directions if err is not nil.
func (r *relay) fail(err error) {
	if err == nil {
		return
	}
	r.failing.Do(func() {
		r.guestReset = errors.Is(err, errGuestReset)
		close(r.stop)
		r.file.Close()
	})
}

// outward moves what the guest sends, until its FIN.
func (r *relay) outward() error {
	for {
		if r.guest.Await(r.stop) != nil {
			return errGuestReset
		}
		done, err := r.moveOut()
		if done || err != nil {
			return err
		}
	}
}

func (r *relay) moveOut() (done bool, err error) {
	buf := buffers.Get().(*[bufferSize]byte)
	defer buffers.Put(buf)
	n, err := r.guest.Read(buf[:], r.stop)
	switch {
	case err == io.EOF:
		err := r.raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_WR) }) // the gateway may be gone
		return true, err
	case err != nil:
		return false, errGuestReset
	}
	if _, err := r.file.Write(buf[:n]); err != nil {
		return false, errServerReset
	}
	return false, nil
}

// inward moves what the server sends, until its FIN.
func (r *relay) inward() error {
	for {
		done, err := r.moveIn()
		if done || err != nil {
			return err
		}
	}
}

func (r *relay) moveIn() (done bool, err error) {
	var buf *[bufferSize]byte
	var n int
	var rerr error
	err = r.raw.Read(func(fd uintptr) bool {
		buf = buffers.Get().(*[bufferSize]byte)
		for {
			n, rerr = unix.Read(int(fd), buf[:])
			if rerr == unix.EINTR {
				continue
			}
			if rerr == unix.EAGAIN {
				buffers.Put(buf)
				buf = nil
				return false
			}
			return true
		}
	})
	if buf != nil {
		defer buffers.Put(buf)
	}
	switch {
	case err != nil || rerr != nil:
		return false, errServerReset
	case n == 0:
		return true, r.serverEnded()
	}
	if r.guest.Write(buf[:n], r.stop) != nil {
		return false, errGuestReset
	}
	return false, nil
}

// serverEnded passes on how the server's side ended. The end of the pair alone says nothing: when
// the gateway dies, the host closes pairs and channel in any order.
func (r *relay) serverEnded() error {
	select {
	case <-r.fl.ended:
	case <-r.stop:
		return errServerReset
	}
	if r.fl.wasReset {
		return errServerReset
	}
	r.guest.CloseWrite()
	return nil
}
