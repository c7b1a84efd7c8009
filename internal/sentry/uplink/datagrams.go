package uplink

import (
	"bytes"
	"os"
	"sync"
	"syscall"
	gotime "time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"

	"ramet.dev/ramet/internal/network/wire"
)

// datagramIdle is how long a pair of UDP ports may be silent before it is forgotten.
const datagramIdle = 2 * gotime.Minute

// acceptDatagrams takes the first datagram of a pair of ports. A false result lets the stack
// answer that nothing is there.
func (o *outer) acceptDatagrams(r *udp.ForwarderRequest) (handled bool) {
	if !admit(&o.datagrams, maxDatagrams) {
		return false
	}
	e := newOuterEnd()
	ep, err := r.CreateEndpoint(&e.wq)
	if err != nil || !o.enter() {
		if err == nil {
			ep.Close()
		}
		o.datagrams.Add(-1)
		return true
	}
	e.begin(ep)
	id := r.ID()
	go func() {
		defer o.work.Done()
		defer o.datagrams.Add(-1)
		fl, rep, ok := o.dial(wire.UDP, id)
		if !ok || rep.code != wire.CodeOK {
			e.Close() // before the guest hears of it, and sends the next
			// The guest's stack tells sockets of UDP of no other code than that of a closed port.
			o.unreachable(id, header.UDPProtocolNumber, quotedPorts(id), wire.CodeRefused)
			return
		}
		runDatagrams(fl, e, rep.file)
	}()
	return true
}

// datagrams moves what two UDP ports send each other.
type datagrams struct {
	end  *end
	file *os.File
	raw  syscall.RawConn
	idle *gotime.Timer
	stop chan struct{}
	once sync.Once
}

// runDatagrams returns when the gateway ends the flow, or when it was idle.
func runDatagrams(fl *flow, e *end, file *os.File) {
	d := &datagrams{end: e, file: file, stop: make(chan struct{})}
	d.idle = gotime.AfterFunc(datagramIdle, d.finish)
	var err error
	if d.raw, err = file.SyscallConn(); err != nil {
		d.finish()
	}
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-fl.x.over:
		case <-fl.ended:
		case <-d.stop:
		}
		d.finish()
	}()
	var wg sync.WaitGroup
	wg.Go(d.outward)
	wg.Go(d.inward)
	wg.Wait()
	<-watched
	d.idle.Stop()
	e.Close()
	fl.tell(wire.Closed)
	fl.forget()
}

// finish ends both directions.
func (d *datagrams) finish() {
	d.once.Do(func() {
		close(d.stop)
		d.file.Close()
	})
}

func (d *datagrams) outward() {
	defer d.finish()
	for d.end.Await(d.stop) == nil {
		buf := buffers.Get().(*[bufferSize]byte)
		w := tcpip.SliceWriter(buf[:])
		res, err := d.end.ep.Read(&w, tcpip.ReadOptions{})
		d.idle.Reset(datagramIdle)
		gone := false
		if err == nil && res.Count > 0 { // an empty one cannot be told from the end
			gone = d.sendOut(buf[:res.Count]) != nil
		}
		buffers.Put(buf)
		if _, none := err.(*tcpip.ErrClosedForReceive); none || gone {
			return
		}
	}
}

// sendOut sends a datagram to the gateway. One that there is no room for is lost.
func (d *datagrams) sendOut(b []byte) (err error) {
	cerr := d.raw.Control(func(fd uintptr) {
		if _, werr := unix.Write(int(fd), b); werr != unix.EAGAIN && werr != unix.EMSGSIZE {
			err = werr
		}
	})
	if cerr != nil {
		return cerr
	}
	return err
}

func (d *datagrams) inward() {
	defer d.finish()
	for {
		var buf *[bufferSize]byte
		var n int
		var rerr error
		err := d.raw.Read(func(fd uintptr) bool {
			buf = buffers.Get().(*[bufferSize]byte)
			if n, rerr = unix.Read(int(fd), buf[:]); rerr == unix.EAGAIN {
				buffers.Put(buf)
				buf = nil
				return false
			}
			return true
		})
		if err == nil && rerr == nil && n > 0 {
			d.idle.Reset(datagramIdle)
			_, _ = d.end.ep.Write(bytes.NewReader(buf[:n]), tcpip.WriteOptions{}) // a full link drops packets
		}
		if buf != nil {
			buffers.Put(buf)
		}
		if err != nil || rerr != nil && rerr != unix.EINTR || n == 0 && rerr == nil {
			return
		}
	}
}
