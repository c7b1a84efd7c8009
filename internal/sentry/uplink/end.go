package uplink

import (
	"bytes"
	"io"
	"sync"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/waiter"

	"ramet.dev/ramet/internal/sentry/gate"
)

// end is an end of a connection in the outer stack: the other one is the guest's. It is a Stream.
type end struct {
	ep                 tcpip.Endpoint
	wq                 waiter.Queue
	readable, writable *gate.Notifier
	onRead, onWrite    waiter.Entry
}

// newOuterEnd returns an end that has no endpoint yet.
func newOuterEnd() *end { return &end{readable: gate.NewNotifier(), writable: gate.NewNotifier()} }

// begin gives it the endpoint, which was made with its queue.
func (e *end) begin(ep tcpip.Endpoint) {
	e.ep = ep
	e.onRead.Init(e.readable, waiter.ReadableEvents|waiter.EventHUp|waiter.EventErr)
	e.onWrite.Init(e.writable, waiter.WritableEvents|waiter.EventHUp|waiter.EventErr)
	e.wq.EventRegister(&e.onRead)
	e.wq.EventRegister(&e.onWrite)
}

// Await implements Stream.
func (e *end) Await(stop <-chan struct{}) error {
	for e.ep.Readiness(waiter.ReadableEvents|waiter.EventHUp|waiter.EventErr) == 0 {
		if err := wait(e.readable, stop); err != nil {
			return err
		}
	}
	return nil
}

// Read implements Stream.
func (e *end) Read(buf []byte, stop <-chan struct{}) (int, error) {
	for {
		w := tcpip.SliceWriter(buf)
		res, err := e.ep.Read(&w, tcpip.ReadOptions{})
		switch err.(type) {
		case nil:
			e.ep.ModerateRecvBuf(res.Count)
			return res.Count, nil
		case *tcpip.ErrClosedForReceive:
			return 0, io.EOF
		case *tcpip.ErrWouldBlock:
		default:
			return 0, errGuestReset
		}
		if err := wait(e.readable, stop); err != nil {
			return 0, err
		}
	}
}

// Write implements Stream.
func (e *end) Write(data []byte, stop <-chan struct{}) error {
	for {
		n, err := e.ep.Write(bytes.NewReader(data), tcpip.WriteOptions{})
		if data = data[n:]; len(data) == 0 {
			return nil
		}
		if _, full := err.(*tcpip.ErrWouldBlock); err != nil && !full {
			return errGuestReset
		}
		if n > 0 {
			continue
		}
		if err := wait(e.writable, stop); err != nil {
			return err
		}
	}
}

func wait(n *gate.Notifier, stop <-chan struct{}) error {
	select {
	case <-n.C:
		return nil
	case <-stop:
		return gate.ErrGone
	}
}

// CloseWrite implements Stream.
func (e *end) CloseWrite() { _ = e.ep.Shutdown(tcpip.ShutdownWrite) } // it may be over

// Close implements Stream.
func (e *end) Close() {
	e.wq.EventUnregister(&e.onRead)
	e.wq.EventUnregister(&e.onWrite)
	ending.RLock()
	defer ending.RUnlock()
	e.ep.Close()
}

// Abort implements Stream.
func (e *end) Abort() {
	ending.RLock()
	e.ep.Abort()
	ending.RUnlock()
	e.Close()
}

// ending is held for reading while an end of an outer stack is closed, and for writing while a guest is
// saved: an end that was closed is in the list that gVisor saves with every kernel, see takeDangling.
var ending sync.RWMutex
