package uplink

import (
	"context"
	"io"
	"sync"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/state"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/icmp"
	"gvisor.dev/gvisor/pkg/waiter"
)

// NewPings4 and NewPings6 return the protocols of echoes of a guest's stack. They are gVisor's, whose
// sockets ignore errors: these tell them, as those of Linux do.
func NewPings4(s *stack.Stack) stack.TransportProtocol {
	return &pings{TransportProtocol: icmp.NewProtocol4(s)}
}

// NewPings6 is NewPings4 for IPv6.
func NewPings6(s *stack.Stack) stack.TransportProtocol {
	return &pings{TransportProtocol: icmp.NewProtocol6(s)}
}

// pings is a protocol of echoes, with its sockets.
type pings struct {
	stack.TransportProtocol

	mu   sync.Mutex
	ends map[*ping]bool // guarded by mu; not saved
}

// NewEndpoint implements stack.TransportProtocol.
func (p *pings) NewEndpoint(network tcpip.NetworkProtocolNumber, queue *waiter.Queue) (tcpip.Endpoint, tcpip.Error) {
	ep, err := p.TransportProtocol.NewEndpoint(network, queue)
	if err != nil {
		return nil, err
	}
	e := &ping{Endpoint: ep, pings: p, queue: queue}
	p.add(e)
	return e, nil
}

func (p *pings) add(e *ping) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ends == nil {
		p.ends = map[*ping]bool{}
	}
	p.ends[e] = true
}

func (p *pings) remove(e *ping) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.ends, e)
}

// tell tells the sockets that a request is of.
func (p *pings) tell(m *undelivered) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for e := range p.ends {
		e.tell(m)
	}
}

// ping is a socket for echoes.
type ping struct {
	tcpip.Endpoint
	pings *pings
	queue *waiter.Queue

	mu     sync.Mutex
	failed tcpip.Error // what the next use fails with; guarded by mu; not saved
}

// tell fails the next use, if the request is of the socket and it wants to know: Linux tells sockets
// that are connected, and those that have a queue of errors.
func (e *ping) tell(m *undelivered) {
	info, ok := e.Info().(*stack.TransportEndpointInfo)
	if !ok || info.ID.LocalPort != header.ICMPv4(m.quoted).Ident() { // in ICMPv6 it is in the same place
		return
	}
	opts, network := e.SocketOptions(), ipv4.ProtocolNumber
	queued := opts.GetIPv4RecvError()
	if m.protocol == icmp.ProtocolNumber6 {
		queued, network = opts.GetIPv6RecvError(), ipv6.ProtocolNumber
	}
	if queued {
		c := m.cause
		to := tcpip.FullAddress{NIC: NIC, Addr: m.to}
		opts.QueueErr(&tcpip.SockError{Err: c.err(), Cause: &c, Payload: buffer.NewViewWithData(m.quoted), Dst: to, Offender: to, NetProto: network})
	} else if _, err := e.GetRemoteAddress(); err != nil {
		return
	}
	e.mu.Lock()
	e.failed = m.cause.err()
	e.mu.Unlock()
	e.queue.Notify(waiter.EventErr | waiter.ReadableEvents)
}

// take returns the failure that there is, once.
func (e *ping) take() tcpip.Error {
	e.mu.Lock()
	defer e.mu.Unlock()
	err := e.failed
	e.failed = nil
	return err
}

// Read implements tcpip.Endpoint.
func (e *ping) Read(w io.Writer, opts tcpip.ReadOptions) (tcpip.ReadResult, tcpip.Error) {
	if err := e.take(); err != nil {
		return tcpip.ReadResult{}, err
	}
	return e.Endpoint.Read(w, opts)
}

// Readiness implements tcpip.Endpoint.
func (e *ping) Readiness(mask waiter.EventMask) waiter.EventMask {
	ready := e.Endpoint.Readiness(mask)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.failed != nil || mask&waiter.EventErr != 0 && e.SocketOptions().PeekErr() != nil {
		ready |= mask & waiter.EventErr
	}
	return ready
}

// Close implements tcpip.Endpoint.
func (e *ping) Close() {
	e.pings.remove(e)
	e.Endpoint.Close()
}

// Abort implements tcpip.Endpoint.
func (e *ping) Abort() {
	e.pings.remove(e)
	e.Endpoint.Abort()
}

// The methods below are what gVisor's state package asks of saved types.

// StateTypeName implements state.Type.
func (*pings) StateTypeName() string { return "ramet.dev/ramet/internal/sentry/uplink.pings" }

// StateFields implements state.Type.
func (*pings) StateFields() []string { return []string{"TransportProtocol"} }

// StateSave implements state.SaverLoader.
func (p *pings) StateSave(sink state.Sink) { sink.Save(0, &p.TransportProtocol) }

// StateLoad implements state.SaverLoader.
func (p *pings) StateLoad(_ context.Context, src state.Source) { src.Load(0, &p.TransportProtocol) }

// StateTypeName implements state.Type.
func (*ping) StateTypeName() string { return "ramet.dev/ramet/internal/sentry/uplink.ping" }

// StateFields implements state.Type.
func (*ping) StateFields() []string { return []string{"Endpoint", "pings", "queue"} }

// StateSave implements state.SaverLoader.
func (e *ping) StateSave(sink state.Sink) {
	sink.Save(0, &e.Endpoint)
	sink.Save(1, &e.pings)
	sink.Save(2, &e.queue)
}

// StateLoad implements state.SaverLoader.
func (e *ping) StateLoad(_ context.Context, src state.Source) {
	src.Load(0, &e.Endpoint)
	src.LoadWait(1, &e.pings)
	src.Load(2, &e.queue)
	src.AfterLoad(func() { e.pings.add(e) })
}

func init() {
	state.Register((*pings)(nil))
	state.Register((*ping)(nil))
}
