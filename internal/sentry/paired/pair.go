package paired

import (
	"fmt"
	"os"
	"sync/atomic"
	gotime "time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/fdnotifier"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"
)

// allEvents are those that a pair has.
const allEvents = waiter.ReadableEvents | waiter.WritableEvents | waiter.EventHUp | waiter.EventErr | waiter.EventRdHUp

// lingerTime bounds how long a connection that the guest has closed waits for the server's end, as
// Linux does.
const lingerTime = 60 * gotime.Second

// pair is the guest's end of a socket pair with the gateway.
type pair struct {
	fd    int
	end   *End
	flow  Flow
	way   Way
	wakes waiter.Queue // of the notifier
	entry waiter.Entry

	shut  atomic.Bool   // for reading
	noted atomic.Bool   // the guest knows of the reset
	full  atomic.Bool   // somebody may wait until it takes more
	left  atomic.Bool   // the guest has closed it
	more  chan struct{} // has room for one: something came after the guest has closed it
}

// newPair takes over the file.
func newPair(file *os.File, flow Flow, w Way, e *End) (*pair, error) {
	defer file.Close() // which is in the poller of the runtime: it would wake for each packet as well
	raw, err := file.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("take over socket pair: %w", err)
	}
	p := &pair{fd: -1, end: e, flow: flow, way: w, more: make(chan struct{}, 1)}
	cerr := raw.Control(func(fd uintptr) {
		if p.fd, err = unix.Dup(int(fd)); err == nil {
			unix.CloseOnExec(p.fd)
		}
	})
	if err == nil {
		err = cerr
	}
	if err == nil {
		p.entry.Init(p, allEvents)
		p.wakes.EventRegister(&p.entry)
		if err = fdnotifier.AddFD(int32(p.fd), &p.wakes); err != nil {
			unix.Close(p.fd)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("take over socket pair: %w", err)
	}
	return p, nil
}

// NotifyEvent implements waiter.EventListener. The notifier stands still while a guest is saved. That a
// pair takes more it says each time that the gateway has read something: who does not wait for that is
// not woken.
func (p *pair) NotifyEvent(mask waiter.EventMask) {
	if !p.left.Load() {
		if mask&waiter.WritableEvents != 0 && !p.full.Swap(false) {
			mask &^= waiter.WritableEvents
		}
		if mask != 0 {
			p.end.queue.Notify(mask)
		}
		return
	}
	select {
	case p.more <- struct{}{}:
	default:
	}
}

// watch wakes the guest when the gateway has said how its side ended.
func (p *pair) watch() {
	<-p.flow.Ended()
	if !p.left.Load() {
		p.way.BeginIO()
		defer p.way.EndIO()
		p.end.queue.Notify(allEvents)
	}
}

// ended reports whether the gateway has said how its side ended.
func (p *pair) ended() bool {
	select {
	case <-p.flow.Ended():
		return true
	default:
		return false
	}
}

func (p *pair) wasReset() bool { return p.ended() && p.flow.WasReset() }

// tellReset returns the reset if there is one, once, and else then.
func (p *pair) tellReset(then tcpip.Error) tcpip.Error {
	if p.wasReset() && !p.noted.Swap(true) {
		return &tcpip.ErrConnectionReset{}
	}
	return then
}

func (p *pair) state() tcp.EndpointState {
	if p.wasReset() {
		return tcp.StateError
	}
	return tcp.StateEstablished
}

// readiness returns what the socket is ready for. The end of the pair shows when the gateway's word is
// there.
func (p *pair) readiness(mask waiter.EventMask) waiter.EventMask {
	if p.wasReset() {
		ready := waiter.ReadableEvents | waiter.WritableEvents | waiter.EventHUp | waiter.EventRdHUp
		if !p.noted.Load() {
			ready |= waiter.EventErr
		}
		return ready & mask
	}
	ready := p.poll(mask | waiter.EventRdHUp)
	if ready&(waiter.EventRdHUp|waiter.EventHUp) != 0 && !p.ended() {
		ready &^= waiter.EventRdHUp | waiter.EventHUp
		if p.queued() == 0 {
			ready &^= waiter.ReadableEvents
		}
	}
	if p.shut.Load() {
		ready |= waiter.ReadableEvents | waiter.EventRdHUp
	}
	return ready & mask
}

// poll returns what the host says. Who finds that it takes no more is woken when it does.
func (p *pair) poll(mask waiter.EventMask) waiter.EventMask {
	ready := fdnotifier.NonBlockingPoll(int32(p.fd), mask)
	if mask&waiter.WritableEvents != 0 && ready&waiter.WritableEvents == 0 && !p.full.Swap(true) {
		return fdnotifier.NonBlockingPoll(int32(p.fd), mask) // it may have been said just before
	}
	return ready
}

func (p *pair) shutdown(flags tcpip.ShutdownFlags) tcpip.Error {
	if p.wasReset() {
		return &tcpip.ErrNotConnected{}
	}
	if flags&tcpip.ShutdownRead != 0 { // which the peer of a TCP connection does not notice
		p.shut.Store(true)
		p.end.queue.Notify(waiter.ReadableEvents | waiter.EventRdHUp)
	}
	if flags&tcpip.ShutdownWrite != 0 {
		_ = unix.Shutdown(p.fd, unix.SHUT_WR) // the gateway may be gone
	}
	return nil
}

// leave ends the guest's side. What it has sent still arrives, unless it resets the connection: so does
// a guest that has not read all.
func (p *pair) leave(reset bool) {
	p.left.Store(true)
	if reset || p.queued() > 0 && !p.shut.Load() {
		p.finish(true)
		return
	}
	_ = unix.Shutdown(p.fd, unix.SHUT_WR) // the gateway may be gone
	if p.ended() {
		p.finish(false)
		return
	}
	go p.linger()
}

// linger waits for the end of the server's side. The guest has closed its own: what still comes is
// answered with a reset.
func (p *pair) linger() {
	late := gotime.NewTimer(lingerTime)
	defer late.Stop()
	for {
		if p.queued() > 0 {
			p.finish(true)
			return
		}
		select {
		case <-p.flow.Ended():
			p.finish(false)
			return
		case <-late.C:
			p.finish(false)
			return
		case <-p.more:
		}
	}
}

// finish closes the pair and tells the gateway of the end.
func (p *pair) finish(reset bool) {
	p.left.Store(true)
	fdnotifier.RemoveFD(int32(p.fd))
	unix.Close(p.fd)
	p.flow.End(reset)
	p.end.tcp.streams.Add(-1)
}
