package uplink

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	gotime "time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/channel"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/icmp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"

	"ramet.dev/ramet/internal/network/wire"
)

const (
	// maxStreams and maxDatagrams are how many flows a sandbox has at once, those included that
	// wait for a verdict. The gateway has limits of its own, which are lower.
	maxStreams, maxDatagrams = 4096, 1024
	// maxAsked is how many questions and echoes wait for an answer.
	maxAsked = 512
	// answerTime is how long they do.
	answerTime = 10 * gotime.Second
	// maxPending is more SYNs than there are of a guest: those that a forwarder has no room for
	// are dropped in silence, and connect(2) hangs.
	maxPending = 1 << 16
)

// outerNIC is the number of the only interface of the outer stack.
const outerNIC = tcpip.NICID(1)

// outer is the far end of a link: a stack that takes every address for its own, so that each flow
// of the guest ends in it.
type outer struct {
	stack *stack.Stack
	// gateway returns the exchange to ask on, or nil if there is none.
	gateway                   func(stop <-chan struct{}) *exchange
	streams, datagrams, asked atomic.Int64

	ctx    context.Context // of all work; ends with close
	cancel context.CancelFunc
	mu     sync.Mutex     // guards the beginning of work
	work   sync.WaitGroup // goroutines of flows and requests
}

func newOuter(link *channel.Endpoint, gateway func(stop <-chan struct{}) *exchange) (*outer, error) {
	s := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, ipv6.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol, icmp.NewProtocol4, icmp.NewProtocol6},
		HandleLocal:        false, // else it takes every packet for a forged one of its own
	})
	o := &outer{stack: s, gateway: gateway}
	o.ctx, o.cancel = context.WithCancel(context.Background())
	if err := o.configure(link); err != nil {
		s.Destroy()
		return nil, err
	}
	s.SetTransportProtocolHandler(tcp.ProtocolNumber, tcp.NewForwarder(s, 0, maxPending, func(r *tcp.ForwarderRequest) {
		o.acceptStream(r)
	}).HandlePacket)
	forwarder := udp.NewForwarder(s, o.acceptDatagrams)
	s.SetTransportProtocolHandler(udp.ProtocolNumber, func(id stack.TransportEndpointID, pkt *stack.PacketBuffer) bool {
		if id.LocalPort == dnsPort {
			o.question(id, pkt)
			return true
		}
		return forwarder.HandlePacket(id, pkt)
	})
	s.SetTransportProtocolHandler(icmp.ProtocolNumber4, o.echo4)
	s.SetTransportProtocolHandler(icmp.ProtocolNumber6, o.echo6)
	return o, nil
}

func (o *outer) configure(link *channel.Endpoint) error {
	s := o.stack
	sack, moderate := tcpip.TCPSACKEnabled(true), tcpip.TCPModerateReceiveBufferOption(true)
	timeWait := tcpip.TCPTimeWaitTimeoutOption(100 * gotime.Millisecond) // there are no stray packets
	for _, opt := range []tcpip.SettableTransportProtocolOption{&sack, &moderate, &timeWait} {
		if err := s.SetTransportProtocolOption(tcp.ProtocolNumber, opt); err != nil {
			return fmt.Errorf("set TCP option %T of outer stack: %s", opt, err)
		}
	}
	if err := s.CreateNIC(outerNIC, link); err != nil {
		return fmt.Errorf("create interface of outer stack: %s", err)
	}
	if err := s.SetPromiscuousMode(outerNIC, true); err != nil {
		return fmt.Errorf("let outer stack take every packet: %s", err)
	}
	if err := s.SetSpoofing(outerNIC, true); err != nil {
		return fmt.Errorf("let outer stack send from every address: %s", err)
	}
	s.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: outerNIC}, {Destination: header.IPv6EmptySubnet, NIC: outerNIC}})
	return nil
}

// close waits for the end of all flows, whose exchange has ended, and lets none begin any more.
func (o *outer) close() {
	o.mu.Lock()
	o.cancel()
	o.mu.Unlock()
	o.work.Wait()
}

// enter begins work, unless the stack is being closed. End it with o.work.Done.
func (o *outer) enter() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ctx.Err() != nil {
		return false
	}
	o.work.Add(1)
	return true
}

// destroy frees the stack.
func (o *outer) destroy() { o.stack.Destroy() }

// admit counts one more of what n counts, unless there are max of them.
func admit(n *atomic.Int64, limit int64) bool {
	if n.Add(1) > limit {
		n.Add(-1)
		return false
	}
	return true
}

// acceptStream has a goroutine of its own, which ends with the connection.
func (o *outer) acceptStream(r *tcp.ForwarderRequest) {
	if !o.enter() {
		r.Complete(false)
		return
	}
	defer o.work.Done()
	if !admit(&o.streams, maxStreams) {
		r.Complete(true)
		return
	}
	defer o.streams.Add(-1)
	id := r.ID()
	fl, rep, ok := o.dial(wire.TCP, id)
	if !ok || rep.code != wire.CodeOK {
		o.refuseStream(r, id, ok, rep.code)
		return
	}
	e := newOuterEnd()
	ep, err := r.CreateEndpoint(&e.wq)
	r.Complete(false)
	if err != nil { // the guest has given up
		rep.file.Close()
		fl.tell(wire.Closed)
		fl.forget()
		return
	}
	e.begin(ep)
	ep.SocketOptions().SetDelayOption(false)
	runRelay(fl, e, rep.file)
}

// refuseStream answers a SYN so that connect(2) fails at once.
func (o *outer) refuseStream(r *tcp.ForwarderRequest, id stack.TransportEndpointID, judged bool, code wire.Code) {
	switch {
	case !judged:
		code = wire.CodeNetUnreachable
	case code == wire.CodeTimedOut:
		code = wire.CodeHostUnreachable
	}
	if code != wire.CodeHostUnreachable && code != wire.CodeNetUnreachable {
		r.Complete(true)
		return
	}
	o.unreachable(id, header.TCPProtocolNumber, quotedPorts(id), code)
	r.Complete(false)
}

// dial asks for a connection to the local address of id. The flow is forgotten unless the verdict
// is CodeOK. ok is false if there is no verdict.
func (o *outer) dial(protocol wire.Protocol, id stack.TransportEndpointID) (fl *flow, rep reply, ok bool) {
	to := addrOf(id.LocalAddress)
	if !to.IsValid() {
		return nil, reply{code: wire.CodeNetUnreachable}, true
	}
	x := o.gateway(o.ctx.Done())
	if x == nil {
		return nil, reply{}, false
	}
	if fl = x.begin(); fl == nil {
		return nil, reply{}, false
	}
	rep, err := fl.ask(wire.Message{Kind: wire.Dial, Protocol: protocol, Address: to, Port: id.LocalPort}, o.ctx.Done())
	if err != nil || rep.kind != wire.Verdict || rep.code != wire.CodeOK {
		if err != nil {
			fl.tell(wire.Closed)
		}
		fl.forget()
		return nil, rep, err == nil && rep.kind == wire.Verdict
	}
	return fl, rep, true
}

// addrOf returns an address that a gateway may be asked about; none for those that stand for
// many, for none, or for the guest itself.
func addrOf(a tcpip.Address) netip.Addr {
	to, ok := netip.AddrFromSlice(a.AsSlice())
	if !ok || to.IsMulticast() || to.IsUnspecified() || to.IsLoopback() || a == header.IPv4Broadcast {
		return netip.Addr{}
	}
	return to
}

// request sends m for what is no flow, and calls answer with the reply unless there is none in
// time. It does not wait.
func (o *outer) request(m wire.Message, answer func(reply)) {
	if !admit(&o.asked, maxAsked) {
		return
	}
	if !o.enter() {
		o.asked.Add(-1)
		return
	}
	go func() {
		defer o.work.Done()
		defer o.asked.Add(-1)
		ctx, cancel := context.WithTimeout(o.ctx, answerTime)
		defer cancel()
		x := o.gateway(ctx.Done())
		if x == nil {
			return
		}
		fl := x.begin()
		if fl == nil {
			return
		}
		defer fl.forget()
		if rep, err := fl.ask(m, ctx.Done()); err == nil {
			answer(rep)
		}
	}()
}
