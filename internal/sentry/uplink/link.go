package uplink

import (
	"context"
	"fmt"
	"net/netip"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/channel"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"

	"ramet.dev/ramet/internal/sentry/paired"
)

// The network that a guest sees. It is the same in all sandboxes, so that it is the same in a
// child as in its parent: a stack that is loaded needs its addresses on interfaces of the same
// numbers.
const (
	// NIC is the number of the interface in the sandbox's own network stack: behind lo, as on Linux. Those that the
	// guest makes come behind it.
	NIC           = tcpip.NICID(2)
	interfaceName = "eth0"
	linkAddress   = tcpip.LinkAddress("\x02\x00\x0a\x00\x02\x0f")
	// linkMTU is the largest that IPv4 has. Each packet costs the same, however long it is.
	linkMTU = 65535
	// queued is how many packets wait in one direction of a link. More are dropped.
	queued = 1024
)

// Nameserver is the address that resolv.conf has. Questions to any other are answered as well.
var Nameserver = netip.AddrFrom4([4]byte{10, 0, 2, 3})

// networks has an address of the guest, with its network, and the next hop to everywhere else.
var networks = []struct {
	protocol tcpip.NetworkProtocolNumber
	address  tcpip.AddressWithPrefix
	gateway  tcpip.Address
	all      tcpip.Subnet
}{
	{ipv4.ProtocolNumber, prefixed("10.0.2.15/24"), address("10.0.2.2"), header.IPv4EmptySubnet},
	{ipv6.ProtocolNumber, prefixed("fd00:0:0:2::15/64"), address("fd00:0:0:2::2"), header.IPv6EmptySubnet},
}

func address(text string) tcpip.Address {
	return tcpip.AddrFromSlice(netip.MustParseAddr(text).AsSlice())
}

func prefixed(text string) tcpip.AddressWithPrefix {
	p := netip.MustParsePrefix(text)
	return tcpip.AddressWithPrefix{Address: tcpip.AddrFromSlice(p.Addr().AsSlice()), PrefixLen: p.Bits()}
}

// Link is what connects the guest's interface with the outer stack.
type Link struct {
	guest *nearEnd
	outer *channel.Endpoint
}

// NewLink returns a link that is not plugged in.
func NewLink() *Link { return &Link{guest: &nearEnd{Endpoint: newEnd(linkAddress)}, outer: newEnd("")} }

// newEnd returns one end of a link. No checksum is computed, as nothing is damaged on the way.
// With CapabilitySaveRestore a stack that is loaded keeps its connections, instead of ending them
// so that they seem to be closed by their peers.
func newEnd(addr tcpip.LinkAddress) *channel.Endpoint {
	e := channel.New(queued, linkMTU, addr)
	e.LinkEPCapabilities = stack.CapabilityRXChecksumOffload | stack.CapabilityTXChecksumOffload | stack.CapabilitySaveRestore
	return e
}

// IsLink reports whether a link of an interface is one of this package.
func IsLink(link stack.NetworkLinkEndpoint) bool {
	_, ok := link.(*nearEnd)
	return ok
}

// PlugIn makes eth0, with its addresses and routes, in the stack of a guest.
func (l *Link) PlugIn(s *stack.Stack) error {
	if err := s.CreateNICWithOptions(NIC, l.guest, stack.NICOptions{Name: interfaceName}); err != nil {
		return fmt.Errorf("create interface %s: %s", interfaceName, err)
	}
	l.guest.stack.Store(s)
	for _, n := range networks {
		err := s.AddProtocolAddress(NIC, tcpip.ProtocolAddress{Protocol: n.protocol, AddressWithPrefix: n.address}, stack.AddressProperties{})
		if err != nil {
			return fmt.Errorf("add address %s: %s", n.address, err)
		}
		s.AddRoute(tcpip.Route{Destination: n.address.Subnet(), NIC: NIC})
		s.AddRoute(tcpip.Route{Destination: n.all, Gateway: n.gateway, NIC: NIC})
	}
	return nil
}

// Unplug takes eth0 from the stack of a guest, which may have removed it or moved it to another network namespace.
// Connections that went by it and have not ended fail.
func Unplug(s *stack.Stack) error {
	if p := paired.Of(s); p != nil {
		p.Leave(s)
	}
	if err := s.RemoveNIC(NIC); err != nil && s.HasNIC(NIC) {
		return fmt.Errorf("remove interface %s: %s", interfaceName, err)
	}
	for _, ep := range outboundOf(s) {
		// A reset that is in the endpoint's queue is seen first.
		ep.LockUser()
		ep.UnlockUser()
		if alive(ep) {
			ep.Abort()
		}
	}
	return nil
}

// carry hands the packets of one end to deliver until ctx ends, and then those that are left.
func carry(ctx context.Context, from *channel.Endpoint, deliver func(tcpip.NetworkProtocolNumber, *stack.PacketBuffer)) {
	for {
		p := from.ReadContext(ctx)
		if p == nil {
			if p = from.Read(); p == nil {
				return
			}
		}
		n := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: p.ToBuffer()})
		deliver(p.NetworkProtocolNumber, n)
		n.DecRef()
		p.DecRef()
	}
}
