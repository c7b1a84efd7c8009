package paired

import (
	"context"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"

	"gvisor.dev/gvisor/pkg/state"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"

	"ramet.dev/ramet/internal/network/wire"
)

// maxStreams bounds the connections of a guest, those included that wait for a verdict or for their
// end. The gateway has a limit of its own, which is lower.
const maxStreams = 4096

// Way is the way to the outside.
type Way interface {
	// Outside returns the address to ask the gateway for; ok is false if it is not outside.
	Outside(to tcpip.Address) (addr netip.Addr, ok bool)
	// Dial asks for a connection, and does not wait for the answer. answered is called with it from
	// another goroutine, once, unless the flow is given up before. Dial returns nil if there is no
	// gateway at the moment.
	Dial(to netip.AddrPort, answered func(Answer)) Flow
	// Await waits until there is a gateway, or stop is closed, but not long. It reports whether
	// there is one.
	Await(stop <-chan struct{}) bool
	// BeginIO and EndIO enclose an access to the guest, which a save waits for.
	BeginIO()
	EndIO()
}

// Answer is what the gateway says to a request for a connection.
type Answer struct {
	Code wire.Code
	File *os.File // the end of the pair if Code is CodeOK; its receiver closes it
}

// Flow is a connection on the channel to the gateway.
type Flow interface {
	// GiveUp reports whether the answer has not come. Then nobody is called with it any more, and the
	// flow is over.
	GiveUp() bool
	// Ended is closed once the gateway has said how its side ended, and WasReset is valid then.
	Ended() <-chan struct{}
	WasReset() bool
	// End tells the gateway that the guest has ended the connection, or has reset it.
	End(reset bool)
}

// Protocol is TCP.
type Protocol struct {
	stack.TransportProtocol // gVisor's

	way   atomic.Pointer[way]         // nil without one; not saved, as all below
	stack atomic.Pointer[stack.Stack] // nil before the first way

	streams atomic.Int64 // connections
	open    atomic.Int64 // ends that are open

	loading sync.Mutex
	again   []*End // were asking when they were saved
}

// way is a Way with the interface that leads there.
type way struct {
	Way
	nic tcpip.NICID
}

// NewTCP returns the TCP of a guest's stack.
func NewTCP(s *stack.Stack) stack.TransportProtocol {
	return &Protocol{TransportProtocol: tcp.NewProtocol(s)}
}

// Of returns the TCP of a stack, or nil if it is another one, as in guests of earlier versions.
func Of(s *stack.Stack) *Protocol {
	p, _ := s.TransportProtocolInstance(tcp.ProtocolNumber).(*Protocol)
	return p
}

// Use makes w the way to the outside of s, whose protocol p is. Routes by the interface nic lead
// there. Connections that were being asked for when the guest was saved are asked for again.
func (p *Protocol) Use(s *stack.Stack, w Way, nic tcpip.NICID) {
	p.stack.Store(s)
	p.way.Store(&way{w, nic})
	for _, e := range p.takeAgain() {
		if !p.admit() {
			e.fail(wire.CodeRefused)
			continue
		}
		go e.await(w, e.stop)
	}
}

// Leave says that there is no way to the outside of s any more. The caller keeps the guest from being
// saved, and ends the flows that there are.
func (p *Protocol) Leave(s *stack.Stack) {
	p.stack.Store(s)
	p.way.Store(nil)
	for _, e := range p.takeAgain() {
		e.fail(wire.CodeNetUnreachable)
	}
}

func (p *Protocol) takeAgain() []*End {
	p.loading.Lock()
	defer p.loading.Unlock()
	again := p.again
	p.again = nil
	return again
}

// Open returns the number of connections that are open.
func (p *Protocol) Open() int64 { return p.open.Load() }

// Streams returns the number of connections that count for the limit.
func (p *Protocol) Streams() int64 { return p.streams.Load() }

// admit counts one more connection, unless there are too many.
func (p *Protocol) admit() bool {
	if p.streams.Add(1) > maxStreams {
		p.streams.Add(-1)
		return false
	}
	return true
}

// outward is how to reach an address outside.
type outward struct {
	way   Way
	to    netip.AddrPort
	local tcpip.Address // of the guest, to bind the socket to
}

// outward returns how to reach an address, if that is outside and nothing of the guest's stack has a
// say: its filters, or a route that goes elsewhere.
func (p *Protocol) outward(to tcpip.FullAddress, opts *tcpip.SocketOptions) (o outward, ok bool) {
	w, s := p.way.Load(), p.stack.Load()
	if w == nil || to.Port == 0 || to.NIC != 0 || opts.GetBindToDevice() != 0 || s.IsNFTablesConfigured() {
		return o, false
	}
	if tables := s.IPTables(); tables != nil && tables.Modified() {
		return o, false
	}
	protocol, addr, mapped := header.IPv4ProtocolNumber, to.Addr, false
	if addr.Len() == header.IPv6AddressSize {
		protocol = header.IPv6ProtocolNumber
		if mapped = header.IsV4MappedAddress(addr); mapped {
			if opts.GetV6Only() {
				return o, false
			}
			b := addr.As16()
			protocol, addr = header.IPv4ProtocolNumber, tcpip.AddrFrom4Slice(b[len(b)-header.IPv4AddressSize:])
		}
	}
	if addr.Len() == 0 {
		return o, false
	}
	outside, ok := w.Outside(addr)
	if !ok {
		return o, false
	}
	r, err := s.FindRoute(0, tcpip.Address{}, addr, protocol, false)
	if err != nil {
		return o, false // the endpoint says so
	}
	defer r.Release()
	if r.NICID() != w.nic {
		return o, false
	}
	local := r.LocalAddress()
	if mapped {
		local = tcpip.AddrFrom16(netip.AddrFrom4(local.As4()).As16())
	}
	return outward{w.Way, netip.AddrPortFrom(outside, to.Port), local}, true
}

// SendBufferSize implements stack.SendBufSizeProto.
func (p *Protocol) SendBufferSize() tcpip.TCPSendBufferSizeRangeOption {
	return p.TransportProtocol.(stack.SendBufSizeProto).SendBufferSize()
}

// queueing is what the stack asks of a protocol that has queues of packets.
type queueing interface {
	QueuePacket(ep stack.TransportEndpoint, id stack.TransportEndpointID, pkt *stack.PacketBuffer)
}

// QueuePacket implements queueing: without it packets would be handled where they arrive.
func (p *Protocol) QueuePacket(ep stack.TransportEndpoint, id stack.TransportEndpointID, pkt *stack.PacketBuffer) {
	p.TransportProtocol.(queueing).QueuePacket(ep, id, pkt)
}

// NewEndpoint implements stack.TransportProtocol.
func (p *Protocol) NewEndpoint(network tcpip.NetworkProtocolNumber, queue *waiter.Queue) (tcpip.Endpoint, tcpip.Error) {
	ep, err := p.TransportProtocol.NewEndpoint(network, queue)
	if err != nil {
		return nil, err
	}
	return &End{Endpoint: ep, tcp: p, queue: queue}, nil
}

// The methods below are what gVisor's state package asks of saved types.

// StateTypeName implements state.Type.
func (*Protocol) StateTypeName() string { return "ramet.dev/ramet/internal/sentry/paired.Protocol" }

// StateFields implements state.Type.
func (*Protocol) StateFields() []string { return []string{"TransportProtocol"} }

// StateSave implements state.SaverLoader.
func (p *Protocol) StateSave(sink state.Sink) { sink.Save(0, &p.TransportProtocol) }

// StateLoad implements state.SaverLoader.
func (p *Protocol) StateLoad(_ context.Context, src state.Source) { src.Load(0, &p.TransportProtocol) }

func init() { state.Register((*Protocol)(nil)) }
