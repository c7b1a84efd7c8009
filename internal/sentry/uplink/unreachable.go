package uplink

import (
	"context"
	"sync/atomic"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/state"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/channel"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/icmp"

	"ramet.dev/ramet/internal/network/wire"
)

// unreachable tells the guest that a packet from the remote address of id to the local one did
// not get there: code says why. quoted is the beginning of the packet behind the header of IP.
func (o *outer) unreachable(id stack.TransportEndpointID, protocol tcpip.TransportProtocolNumber, quoted []byte, code wire.Code) {
	from := id
	for _, n := range networks {
		if isMany(id.LocalAddress) && n.gateway.Len() == id.LocalAddress.Len() {
			from.LocalAddress = n.gateway // no packet is from such an address
		}
	}
	if id.LocalAddress.Len() == header.IPv4AddressSize {
		ip := make(header.IPv4, header.IPv4MinimumSize)
		ip.Encode(&header.IPv4Fields{TotalLength: uint16(len(ip) + len(quoted)), TTL: 64, Protocol: uint8(protocol), SrcAddr: id.RemoteAddress, DstAddr: id.LocalAddress})
		ip.SetChecksum(^ip.CalculateChecksum())
		payload := append([]byte(ip), quoted...)
		o.send(from, header.ICMPv4ProtocolNumber, header.ICMPv4MinimumSize, payload, func(b []byte, _ *stack.Route) {
			h := header.ICMPv4(b)
			h.SetType(header.ICMPv4DstUnreachable)
			h.SetCode(unreachableCode4(code))
			h.SetChecksum(header.ICMPv4Checksum(h, checksum.Checksum(payload, 0)))
		})
		return
	}
	ip := make(header.IPv6, header.IPv6MinimumSize)
	ip.Encode(&header.IPv6Fields{PayloadLength: uint16(len(quoted)), TransportProtocol: protocol, HopLimit: 64, SrcAddr: id.RemoteAddress, DstAddr: id.LocalAddress})
	payload := append([]byte(ip), quoted...)
	o.send(from, header.ICMPv6ProtocolNumber, header.ICMPv6DstUnreachableMinimumSize, payload, func(b []byte, r *stack.Route) {
		h := header.ICMPv6(b)
		h.SetType(header.ICMPv6DstUnreachable)
		h.SetCode(unreachableCode6(code))
		setChecksum6(h, r, payload)
	})
}

// isMany reports whether an address stands for many hosts.
func isMany(a tcpip.Address) bool {
	own := networks[0].address.Subnet()
	return header.IsV4MulticastAddress(a) || header.IsV6MulticastAddress(a) || a == header.IPv4Broadcast || a == own.Broadcast()
}

// connectsToMany reports whether a packet begins a connection of TCP to an address that stands for many. A stack drops
// it, and connect(2) would wait.
func connectsToMany(protocol tcpip.NetworkProtocolNumber, pkt *stack.PacketBuffer) (id stack.TransportEndpointID, ok bool) {
	b, whole := pkt.Data().PullUp(min(pkt.Data().Size(), header.IPv4MaximumHeaderSize+header.TCPMinimumSize))
	if !whole {
		return id, false
	}
	var segment []byte
	switch {
	case protocol == ipv4.ProtocolNumber && len(b) >= header.IPv4MinimumSize:
		ip := header.IPv4(b)
		if ip.TransportProtocol() != header.TCPProtocolNumber || int(ip.HeaderLength()) > len(b) {
			return id, false
		}
		id.LocalAddress, id.RemoteAddress, segment = ip.DestinationAddress(), ip.SourceAddress(), b[ip.HeaderLength():]
	case protocol == ipv6.ProtocolNumber && len(b) >= header.IPv6MinimumSize:
		ip := header.IPv6(b)
		if ip.NextHeader() != uint8(header.TCPProtocolNumber) { // the stack writes no extension headers
			return id, false
		}
		id.LocalAddress, id.RemoteAddress, segment = ip.DestinationAddress(), ip.SourceAddress(), b[header.IPv6MinimumSize:]
	}
	if len(segment) < header.TCPMinimumSize || !isMany(id.LocalAddress) || header.TCP(segment).Flags() != header.TCPFlagSyn {
		return id, false
	}
	id.LocalPort, id.RemotePort = header.TCP(segment).DestinationPort(), header.TCP(segment).SourcePort()
	return id, true
}

// quotedPorts returns the beginning of a packet of TCP or UDP, which have their ports in the same
// places. A stack matches those, and wants the smallest header of the protocol.
func quotedPorts(id stack.TransportEndpointID) []byte {
	b := make([]byte, header.TCPMinimumSize)
	header.UDP(b).SetSourcePort(id.RemotePort)
	header.UDP(b).SetDestinationPort(id.LocalPort)
	return b
}

// quotedEcho returns the beginning of an echo request. Programs that ping match the number that they
// gave it.
func quotedEcho(protocol tcpip.TransportProtocolNumber, ident, seq uint16) []byte {
	b := make([]byte, header.ICMPv4MinimumSize)
	h := header.ICMPv4(b)
	h.SetType(header.ICMPv4Echo)
	if protocol == icmp.ProtocolNumber6 {
		header.ICMPv6(b).SetType(header.ICMPv6EchoRequest)
	}
	h.SetIdent(ident) // both have it in the same place
	h.SetSequence(seq)
	return b
}

func unreachableCode4(code wire.Code) header.ICMPv4Code {
	switch code {
	case wire.CodeRefused:
		return header.ICMPv4PortUnreachable
	case wire.CodeNetUnreachable:
		return header.ICMPv4NetUnreachable
	case wire.CodeProhibited:
		return header.ICMPv4AdminProhibited
	}
	return header.ICMPv4HostUnreachable
}

func unreachableCode6(code wire.Code) header.ICMPv6Code {
	switch code {
	case wire.CodeRefused:
		return header.ICMPv6PortUnreachable
	case wire.CodeNetUnreachable:
		return header.ICMPv6NetworkUnreachable
	case wire.CodeProhibited:
		return header.ICMPv6Prohibited
	}
	return header.ICMPv6AddressUnreachable
}

// nearEnd is the guest's end of a link. It looks like an Ethernet card, as programs expect of an
// eth0, but packets have no Ethernet header.
type nearEnd struct {
	*channel.Endpoint
	transport atomic.Pointer[stack.TransportDispatcher] // of the guest's interface
	stack     atomic.Pointer[stack.Stack]               // of the guest
}

// ARPHardwareType implements stack.LinkEndpoint.
func (*nearEnd) ARPHardwareType() header.ARPHardwareType { return header.ARPHardwareEther }

// Attach implements stack.LinkEndpoint.
func (e *nearEnd) Attach(d stack.NetworkDispatcher) {
	if t, ok := d.(stack.TransportDispatcher); ok {
		e.transport.Store(&t)
	} else {
		e.transport.Store(nil)
	}
	e.Endpoint.Attach(d)
}

// arrive hands a packet to the guest's stack. That knows no error about an echo, and none about a host
// of IPv6, though sockets have one for it: here they are told.
func (e *nearEnd) arrive(protocol tcpip.NetworkProtocolNumber, pkt *stack.PacketBuffer) {
	e.tellUnreachable(protocol, pkt)
	e.InjectInbound(protocol, pkt)
}

// tellUnreachable tells a socket what a packet says, if that is an error of those.
func (e *nearEnd) tellUnreachable(protocol tcpip.NetworkProtocolNumber, pkt *stack.PacketBuffer) {
	t := e.transport.Load()
	b, whole := pkt.Data().PullUp(min(pkt.Data().Size(), maxUnreachable))
	if t == nil || !whole {
		return
	}
	m, ok := parseUnreachable(protocol, b)
	switch {
	case !ok:
	case m.protocol == icmp.ProtocolNumber4 || m.protocol == icmp.ProtocolNumber6:
		if s := e.stack.Load(); s != nil {
			if p, ok := s.TransportProtocolInstance(m.protocol).(*pings); ok {
				p.tell(&m)
			}
		}
	case m.protocol == header.TCPProtocolNumber && m.cause.isHost6():
		quoted := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(m.quoted)})
		defer quoted.DecRef()
		quoted.NetworkProtocolNumber = protocol
		(*t).DeliverTransportError(m.from, m.to, protocol, m.protocol, &m.cause, quoted)
	}
}

// maxUnreachable is more than the length of a packet that says that another one did not get there.
const maxUnreachable = 128

// undelivered is what such a packet says: that one between these addresses was not delivered, whose
// beginning behind the header of IP is quoted.
type undelivered struct {
	cause    cause
	from, to tcpip.Address
	protocol tcpip.TransportProtocolNumber
	quoted   []byte
}

// parseUnreachable parses a packet of the outer stack, whose headers have no options.
func parseUnreachable(protocol tcpip.NetworkProtocolNumber, b []byte) (m undelivered, ok bool) {
	size, kind, carries := header.IPv4MinimumSize, byte(header.ICMPv4DstUnreachable), header.ICMPv4ProtocolNumber
	m.cause.origin = uint8(tcpip.SockExtErrorOriginICMP)
	if protocol == ipv6.ProtocolNumber {
		size, kind, carries = header.IPv6MinimumSize, byte(header.ICMPv6DstUnreachable), header.ICMPv6ProtocolNumber
		m.cause.origin = uint8(tcpip.SockExtErrorOriginICMP6)
	}
	said := size
	sent := said + header.ICMPv4MinimumSize // as long in ICMPv6
	if len(b) < sent+size+header.ICMPv4MinimumSize || b[said] != kind {
		return m, false
	}
	m.cause.kind, m.cause.code, m.quoted = kind, b[said+1], b[sent+size:]
	if protocol == ipv6.ProtocolNumber {
		// Headers of extension do not stand in what the stack itself sends: NextHeader is the protocol.
		h := header.IPv6(b[sent:])
		m.from, m.to = h.SourceAddress(), h.DestinationAddress()
		m.protocol = tcpip.TransportProtocolNumber(h.NextHeader())
		return m, header.IPv6(b).NextHeader() == byte(carries)
	}
	h := header.IPv4(b[sent:])
	m.from, m.to, m.protocol = h.SourceAddress(), h.DestinationAddress(), h.TransportProtocol()
	return m, header.IPv4(b).TransportProtocol() == carries
}

// cause is why a packet was not delivered. It is in the queue of a socket that asks for that, and is
// saved with it.
type cause struct{ origin, kind, code uint8 }

// Origin implements tcpip.SockErrorCause.
func (c *cause) Origin() tcpip.SockErrOrigin { return tcpip.SockErrOrigin(c.origin) }

// Type implements tcpip.SockErrorCause.
func (c *cause) Type() uint8 { return c.kind }

// Code implements tcpip.SockErrorCause.
func (c *cause) Code() uint8 { return c.code }

// Info implements tcpip.SockErrorCause.
func (*cause) Info() uint32 { return 0 }

// Kind implements stack.TransportError.
func (*cause) Kind() stack.TransportErrorKind { return stack.DestinationHostUnreachableTransportError }

// isHost6 reports whether it is that a host of IPv6 is unreachable.
func (c *cause) isHost6() bool {
	return c.origin == uint8(tcpip.SockExtErrorOriginICMP6) && c.code == uint8(header.ICMPv6AddressUnreachable)
}

// err returns the error of a socket.
func (c *cause) err() tcpip.Error {
	net := uint8(header.ICMPv4NetUnreachable)
	if c.origin == uint8(tcpip.SockExtErrorOriginICMP6) {
		net = uint8(header.ICMPv6NetworkUnreachable)
	}
	if c.code == net {
		return &tcpip.ErrNetworkUnreachable{}
	}
	return &tcpip.ErrHostUnreachable{}
}

// StateTypeName implements state.Type.
func (*cause) StateTypeName() string { return "ramet.dev/ramet/internal/sentry/uplink.cause" }

// StateFields implements state.Type.
func (*cause) StateFields() []string { return []string{"origin", "kind", "code"} }

// StateSave implements state.SaverLoader.
func (c *cause) StateSave(sink state.Sink) {
	sink.Save(0, &c.origin)
	sink.Save(1, &c.kind)
	sink.Save(2, &c.code)
}

// StateLoad implements state.SaverLoader.
func (c *cause) StateLoad(_ context.Context, src state.Source) {
	src.Load(0, &c.origin)
	src.Load(1, &c.kind)
	src.Load(2, &c.code)
}

func init() { state.Register((*cause)(nil)) }
