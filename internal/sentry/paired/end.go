package paired

import (
	"context"
	"net/netip"
	"sync"
	"sync/atomic"

	"gvisor.dev/gvisor/pkg/state"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"

	"ramet.dev/ramet/internal/network/wire"
)

// phase is how far an End has come.
type phase uint8

const (
	fresh  phase = iota
	handed       // gVisor's endpoint has it
	asking       // the gateway is asked
	open         // pair is set
	failed       // failure says why
)

// End is a socket of TCP.
type End struct {
	tcpip.Endpoint // gVisor's
	tcp            *Protocol
	queue          *waiter.Queue

	hooked sync.Once            // the options tell this end; not saved
	plain  atomic.Bool          // set with handed, for those that have no mu; not saved
	pair   atomic.Pointer[pair] // set when it is open, also after Close; not saved

	mu      sync.Mutex // not saved
	phase   phase
	bound   bool      // by this end, and not by the guest
	failure wire.Code // CodeOK if the guest was told
	told    bool      // the guest knows that it is open; not saved, as all below
	closed  bool
	remote  tcpip.FullAddress
	flow    Flow
	stop    chan struct{} // closed when it is given up while it asks
}

// Connect implements tcpip.Endpoint.
func (e *End) Connect(addr tcpip.FullAddress) tcpip.Error {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch e.phase {
	case asking:
		return &tcpip.ErrAlreadyConnecting{}
	case open:
		if e.told {
			return &tcpip.ErrAlreadyConnected{}
		}
		e.told = true
		return nil
	case failed:
		if err := e.takeFailure(); err != nil {
			return err
		}
	case handed:
		return e.Endpoint.Connect(addr)
	}
	o, ok := outward{}, e.bound || tcp.EndpointState(e.Endpoint.State()) == tcp.StateInitial
	if ok {
		o, ok = e.tcp.outward(addr, e.Endpoint.SocketOptions())
	}
	if !ok {
		e.handOver()
		return e.Endpoint.Connect(addr)
	}
	if !e.bound {
		if err := e.Endpoint.Bind(tcpip.FullAddress{Addr: o.local}); err != nil {
			return err
		}
		e.bound = true
	}
	if !e.tcp.admit() {
		return &tcpip.ErrConnectionRefused{}
	}
	e.phase, e.remote, e.stop = asking, addr, make(chan struct{})
	if !e.ask(o.way, o.to) {
		go e.await(o.way, e.stop)
	}
	return &tcpip.ErrConnectStarted{}
}

// handOver leaves the socket to gVisor's endpoint. The caller holds mu, or has the only reference.
func (e *End) handOver() {
	e.phase = handed
	e.plain.Store(true)
}

// ask asks the gateway, if there is one now. The caller holds mu.
func (e *End) ask(w Way, to netip.AddrPort) bool {
	e.flow = w.Dial(to, func(a Answer) { e.answered(w, a) })
	return e.flow != nil
}

// await waits for a gateway to ask.
func (e *End) await(w Way, stop <-chan struct{}) {
	ok := w.Await(stop)
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		e.tcp.streams.Add(-1)
		return
	}
	if addr, outside := w.Outside(unmapped(e.remote.Addr)); ok && outside {
		ok = e.ask(w, netip.AddrPortFrom(addr, e.remote.Port))
	} else {
		ok = false
	}
	e.mu.Unlock()
	if !ok {
		e.refused(w, wire.CodeNetUnreachable)
	}
}

func unmapped(a tcpip.Address) tcpip.Address {
	if addr, ok := netip.AddrFromSlice(a.AsSlice()); ok && addr.Is4In6() {
		return tcpip.AddrFrom4(addr.Unmap().As4())
	}
	return a
}

// answered is told the verdict.
func (e *End) answered(w Way, a Answer) {
	e.mu.Lock()
	flow := e.flow
	e.mu.Unlock()
	if a.Code != wire.CodeOK {
		if flow != nil {
			flow.End(false)
		}
		e.refused(w, a.Code)
		return
	}
	p, err := newPair(a.File, flow, w, e)
	if err != nil {
		flow.End(false)
		e.refused(w, wire.CodeNetUnreachable)
		return
	}
	w.BeginIO()
	defer w.EndIO()
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		p.finish(false)
		return
	}
	e.phase = open
	e.tcp.open.Add(1)
	e.pair.Store(p)
	e.mu.Unlock()
	go p.watch()
	e.queue.Notify(waiter.ReadableEvents | waiter.WritableEvents)
}

// refused ends the asking, from a goroutine that is none of the guest's.
func (e *End) refused(w Way, code wire.Code) {
	e.tcp.streams.Add(-1)
	w.BeginIO()
	defer w.EndIO()
	e.fail(code)
}

func (e *End) fail(code wire.Code) {
	e.mu.Lock()
	e.phase, e.failure, e.flow = failed, code, nil
	e.mu.Unlock()
	e.queue.Notify(allEvents)
}

// takeFailure returns why it is not connected, once. The caller holds mu.
func (e *End) takeFailure() tcpip.Error {
	if e.phase != failed {
		return nil
	}
	code := e.failure
	e.failure = wire.CodeOK
	switch code {
	case wire.CodeOK:
		return nil
	case wire.CodeHostUnreachable, wire.CodeTimedOut:
		return &tcpip.ErrHostUnreachable{}
	case wire.CodeNetUnreachable:
		return &tcpip.ErrNetworkUnreachable{}
	}
	return &tcpip.ErrConnectionRefused{}
}

// idle returns how far an end has come that is not open, and its failure, once.
func (e *End) idle() (phase, tcpip.Error) {
	if e.plain.Load() {
		return handed, nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.phase, e.takeFailure()
}

// end ends what there is of the connection.
func (e *End) end(reset bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return
	}
	e.closed = true
	switch e.phase {
	case asking:
		close(e.stop)
		if e.flow != nil && e.flow.GiveUp() {
			e.tcp.streams.Add(-1)
		} // else await or answered see that it is closed
	case open:
		e.tcp.open.Add(-1)
		e.pair.Load().leave(reset)
	}
}

// Close implements tcpip.Endpoint.
func (e *End) Close() {
	linger := e.Endpoint.SocketOptions().GetLinger()
	e.end(linger.Enabled && linger.Timeout == 0)
	e.Endpoint.Close()
	if e.pair.Load() != nil {
		e.queue.Notify(waiter.EventHUp) // gVisor waits for it, as long as SO_LINGER says
	}
}

// Abort implements tcpip.Endpoint.
func (e *End) Abort() {
	e.end(true)
	e.Endpoint.Abort()
}

// Bind implements tcpip.Endpoint.
func (e *End) Bind(addr tcpip.FullAddress) tcpip.Error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.phase == asking || e.phase == open {
		return &tcpip.ErrAlreadyBound{}
	}
	return e.Endpoint.Bind(addr)
}

// Listen implements tcpip.Endpoint.
func (e *End) Listen(backlog int) tcpip.Error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.phase == asking || e.phase == open {
		return &tcpip.ErrInvalidEndpointState{}
	}
	e.handOver()
	return e.Endpoint.Listen(backlog)
}

// Readiness implements tcpip.Endpoint.
func (e *End) Readiness(mask waiter.EventMask) waiter.EventMask {
	if p := e.pair.Load(); p != nil {
		return p.readiness(mask)
	}
	if e.plain.Load() {
		return e.Endpoint.Readiness(mask)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch e.phase {
	case asking:
		return 0
	case failed:
		ready := waiter.ReadableEvents | waiter.WritableEvents | waiter.EventHUp | waiter.EventRdHUp
		if e.failure != wire.CodeOK {
			ready |= waiter.EventErr
		}
		return ready & mask
	}
	return e.Endpoint.Readiness(mask)
}

// Shutdown implements tcpip.Endpoint.
func (e *End) Shutdown(flags tcpip.ShutdownFlags) tcpip.Error {
	if p := e.pair.Load(); p != nil {
		return p.shutdown(flags)
	}
	return e.Endpoint.Shutdown(flags)
}

// GetRemoteAddress implements tcpip.Endpoint.
func (e *End) GetRemoteAddress() (tcpip.FullAddress, tcpip.Error) {
	if e.pair.Load() == nil {
		return e.Endpoint.GetRemoteAddress()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return tcpip.FullAddress{Addr: e.remote.Addr, Port: e.remote.Port}, nil
}

// State implements tcpip.Endpoint.
func (e *End) State() uint32 {
	if p := e.pair.Load(); p != nil {
		return uint32(p.state())
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch e.phase {
	case asking:
		return uint32(tcp.StateSynSent)
	case failed:
		return uint32(tcp.StateError)
	}
	return e.Endpoint.State()
}

// OpenAt returns the local address of an end that is open, for a save: no task may run.
func (e *End) OpenAt() (id tcpip.FullAddress, ok bool) {
	if e.pair.Load() == nil {
		return id, false
	}
	id, err := e.Endpoint.GetLocalAddress()
	return id, err == nil
}

// The methods below are what gVisor's state package asks of saved types.

// StateTypeName implements state.Type.
func (*End) StateTypeName() string { return "ramet.dev/ramet/internal/sentry/paired.End" }

// StateFields implements state.Type.
func (*End) StateFields() []string {
	return []string{"Endpoint", "tcp", "queue", "phase", "bound", "failure", "to"}
}

// StateSave implements state.SaverLoader. No task runs, and nothing else changes an end while a guest
// is saved.
func (e *End) StateSave(sink state.Sink) {
	sink.Save(0, &e.Endpoint)
	sink.Save(1, &e.tcp)
	sink.Save(2, &e.queue)
	now, failure, to := uint8(e.phase), uint8(e.failure), ""
	switch e.phase {
	case asking:
		addr, _ := netip.AddrFromSlice(e.remote.Addr.AsSlice())
		to = netip.AddrPortFrom(addr, e.remote.Port).String()
	case open: // of a socket that no process has
		now, failure = uint8(failed), uint8(wire.CodeRefused)
	}
	sink.Save(3, &now)
	sink.Save(4, &e.bound)
	sink.Save(5, &failure)
	sink.Save(6, &to)
}

// StateLoad implements state.SaverLoader.
func (e *End) StateLoad(_ context.Context, src state.Source) {
	src.Load(0, &e.Endpoint)
	src.LoadWait(1, &e.tcp)
	src.Load(2, &e.queue)
	var now, failure uint8
	var to string
	src.Load(3, &now)
	src.Load(4, &e.bound)
	src.Load(5, &failure)
	src.Load(6, &to)
	e.phase, e.failure = phase(now), wire.Code(failure)
	if e.phase == handed {
		e.handOver()
	}
	if e.phase != asking {
		return
	}
	e.stop = make(chan struct{})
	if addr, err := netip.ParseAddrPort(to); err == nil {
		e.remote = tcpip.FullAddress{Addr: tcpip.AddrFromSlice(addr.Addr().AsSlice()), Port: addr.Port()}
	}
	src.AfterLoad(func() {
		e.tcp.loading.Lock()
		defer e.tcp.loading.Unlock()
		e.tcp.again = append(e.tcp.again, e)
	})
}

func init() { state.Register((*End)(nil)) }
