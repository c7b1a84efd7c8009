package uplink

import (
	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/icmp"

	"ramet.dev/ramet/internal/network/wire"
)

const (
	dnsPort = 53
	// maxReply is the largest payload of a packet of one of the protocols that are answered here.
	maxReply = linkMTU - header.IPv6MinimumSize - header.UDPMinimumSize
)

// question asks the gateway what a guest asks a name server, whichever that is. It has no
// endpoint: most come from a port of their own.
func (o *outer) question(id stack.TransportEndpointID, pkt *stack.PacketBuffer) {
	payload := pkt.Data().AsRange().ToSlice()
	if len(payload) == 0 || len(payload) > wire.MaxPayload {
		return
	}
	o.request(wire.Message{Kind: wire.Question, Payload: payload}, func(r reply) {
		if r.kind == wire.Answer && len(r.payload) <= maxReply {
			o.sendUDP(id, r.payload)
		}
	})
}

// sendUDP sends a datagram from the local address of id to the remote one.
func (o *outer) sendUDP(id stack.TransportEndpointID, payload []byte) {
	o.send(id, header.UDPProtocolNumber, header.UDPMinimumSize, payload, func(b []byte, r *stack.Route) {
		header.UDP(b).Encode(&header.UDPFields{SrcPort: id.LocalPort, DstPort: id.RemotePort, Length: uint16(len(b) + len(payload))})
		xsum := checksum.Combine(r.PseudoHeaderChecksum(header.UDPProtocolNumber, uint16(len(b)+len(payload))), checksum.Checksum(payload, 0))
		if xsum = ^header.UDP(b).CalculateChecksum(xsum); xsum == 0 {
			xsum = 0xffff // RFC 768: zero says that there is none
		}
		header.UDP(b).SetChecksum(xsum)
	})
}

// echo4 handles ICMPv4. A false result lets the stack go on; it answers no echo of its own to an
// address that is not its own.
func (o *outer) echo4(id stack.TransportEndpointID, pkt *stack.PacketBuffer) bool {
	h := header.ICMPv4(pkt.TransportHeader().Slice())
	if len(h) < header.ICMPv4MinimumSize || h.Type() != header.ICMPv4Echo {
		return false
	}
	o.echo(id, icmp.ProtocolNumber4, h.Ident(), h.Sequence(), pkt)
	return true
}

// echo6 handles ICMPv6. All echoes are its own, else the stack would answer them unasked.
func (o *outer) echo6(id stack.TransportEndpointID, pkt *stack.PacketBuffer) bool {
	h := header.ICMPv6(pkt.TransportHeader().Slice())
	if len(h) < header.ICMPv6EchoMinimumSize || h.Type() != header.ICMPv6EchoRequest {
		return false
	}
	o.echo(id, icmp.ProtocolNumber6, h.Ident(), h.Sequence(), pkt)
	return true
}

func (o *outer) echo(id stack.TransportEndpointID, protocol tcpip.TransportProtocolNumber, ident, seq uint16, pkt *stack.PacketBuffer) {
	to := addrOf(id.LocalAddress)
	payload := pkt.Data().AsRange().ToSlice()
	if !to.IsValid() || len(payload) > maxReply {
		return
	}
	o.request(wire.Message{Kind: wire.Echo, Address: to, Payload: payload}, func(r reply) {
		switch {
		case r.kind == wire.Echoed && len(r.payload) <= maxReply:
			o.sendEchoReply(id, protocol, ident, seq, r.payload)
		case r.kind == wire.Verdict && r.code != wire.CodeOK && r.code != wire.CodeTimedOut:
			o.unreachable(id, protocol, quotedEcho(protocol, ident, seq), r.code)
		}
	})
}

func (o *outer) sendEchoReply(id stack.TransportEndpointID, protocol tcpip.TransportProtocolNumber, ident, seq uint16, payload []byte) {
	o.send(id, protocol, header.ICMPv4MinimumSize, payload, func(b []byte, r *stack.Route) {
		if protocol == icmp.ProtocolNumber4 {
			h := header.ICMPv4(b)
			h.SetType(header.ICMPv4EchoReply)
			h.SetIdent(ident)
			h.SetSequence(seq)
			h.SetChecksum(header.ICMPv4Checksum(h, checksum.Checksum(payload, 0)))
			return
		}
		h := header.ICMPv6(b)
		h.SetType(header.ICMPv6EchoReply)
		h.SetIdent(ident)
		h.SetSequence(seq)
		setChecksum6(h, r, payload)
	})
}

func setChecksum6(h header.ICMPv6, r *stack.Route, payload []byte) {
	h.SetChecksum(header.ICMPv6Checksum(header.ICMPv6ChecksumParams{
		Header: h, Src: r.LocalAddress(), Dst: r.RemoteAddress(), PayloadCsum: checksum.Checksum(payload, 0), PayloadLen: len(payload),
	}))
}

// send sends a packet from the local address of id to the remote one. fill writes the header of
// the protocol, which has size bytes.
func (o *outer) send(id stack.TransportEndpointID, protocol tcpip.TransportProtocolNumber, size int, payload []byte, fill func([]byte, *stack.Route)) {
	network := ipv4.ProtocolNumber
	if id.LocalAddress.Len() != header.IPv4AddressSize {
		network = ipv6.ProtocolNumber
	}
	r, err := o.stack.FindRoute(outerNIC, id.LocalAddress, id.RemoteAddress, network, false)
	if err != nil {
		return // a source that nothing can be sent to
	}
	defer r.Release()
	pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{ReserveHeaderBytes: int(r.MaxHeaderLength()) + size, Payload: buffer.MakeWithData(payload)})
	defer pkt.DecRef()
	pkt.TransportProtocolNumber = protocol
	fill(pkt.TransportHeader().Push(size), r)
	_ = r.WritePacket(stack.NetworkHeaderParams{Protocol: protocol, TTL: 64}, pkt) // a full link drops packets
}
