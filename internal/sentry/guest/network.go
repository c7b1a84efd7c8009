package guest

import (
	"fmt"
	"reflect"
	gotime "time"
	"unsafe"

	"gvisor.dev/gvisor/pkg/atomicbitops"
	"gvisor.dev/gvisor/pkg/sentry/inet"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/socket/netfilter"
	_ "gvisor.dev/gvisor/pkg/sentry/socket/netlink" // netlink sockets
	_ "gvisor.dev/gvisor/pkg/sentry/socket/netlink/route"
	"gvisor.dev/gvisor/pkg/sentry/socket/netstack"
	_ "gvisor.dev/gvisor/pkg/sentry/socket/unix" // unix sockets
	"gvisor.dev/gvisor/pkg/sentry/uniqueid"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/ethernet"
	"gvisor.dev/gvisor/pkg/tcpip/link/loopback"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"

	"ramet.dev/ramet/internal/sentry/aside"
	"ramet.dev/ramet/internal/sentry/uplink"
)

// loopbackNIC is the index of lo, as on Linux.
const loopbackNIC = tcpip.NICID(1)

// timeWait is how long a connection is remembered that both sides have closed, instead of a
// minute: for stray packets, which a loopback interface has none of. Each adds an eighth
// of a millisecond to the pause of a fork, and a server that is asked all the time had
// thousands of them.
const timeWait = 100 * gotime.Millisecond

// newNetStack returns a network stack with a loopback interface only.
func newNetStack(clock tcpip.Clock, ids uniqueid.Provider) (inet.Stack, error) {
	s := netstack.NewStack(stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, ipv6.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol, uplink.NewPings4, uplink.NewPings6},
		Clock:              clock,
		Stats:              netstack.Metrics,
		HandleLocal:        true,
		DefaultIPTables:    netfilter.DefaultLinuxTables,
	}), ids.UniqueID())
	sack, moderate := tcpip.TCPSACKEnabled(true), tcpip.TCPModerateReceiveBufferOption(true)
	timeWait := tcpip.TCPTimeWaitTimeoutOption(timeWait)
	for _, opt := range []tcpip.SettableTransportProtocolOption{&sack, &moderate, &timeWait} {
		if err := s.Stack.SetTransportProtocolOption(tcp.ProtocolNumber, opt); err != nil {
			return nil, fmt.Errorf("set TCP option %T: %s", opt, err)
		}
	}
	dropPacketIDs(s.Stack)
	if err := (loopbackConfig{}).ConfigureNetwork(s); err != nil {
		return nil, err
	}
	return s, nil
}

// dropPacketIDs takes away the counters that gVisor took IPv4 packet identifiers from, and
// does not any more: 2048 of them, each of which would be an object of its own in a saved
// state.
func dropPacketIDs(s *stack.Stack) {
	protocol := reflect.ValueOf(s.NetworkProtocolInstance(ipv4.ProtocolNumber)).Elem()
	*(*[]atomicbitops.Uint32)(unsafe.Pointer(protocol.FieldByName("ids").UnsafeAddr())) = nil
}

// loopbackConfig makes the loopback interface, in a new stack and again in each
// child: interfaces are not part of the saved state.
type loopbackConfig struct{}

// ConfigureNetwork implements inet.NetworkArgs.
func (loopbackConfig) ConfigureNetwork(is inet.Stack) error {
	s := is.(*netstack.Stack).Stack
	if s.IPTables() == nil {
		s.SetIPTables(netfilter.DefaultLinuxTables(s.Clock(), s.InsecureRNG()))
	}
	err := s.CreateNICWithOptions(loopbackNIC, ethernet.New(loopback.New()), stack.NICOptions{Name: "lo", DeliverLinkPackets: true})
	if err != nil {
		return fmt.Errorf("create loopback interface: %s", err)
	}
	var routes []tcpip.Route
	for _, a := range []tcpip.ProtocolAddress{
		{Protocol: ipv4.ProtocolNumber, AddressWithPrefix: tcpip.AddressWithPrefix{Address: tcpip.AddrFrom4([4]byte{127, 0, 0, 1}), PrefixLen: 8}},
		{Protocol: ipv6.ProtocolNumber, AddressWithPrefix: tcpip.AddressWithPrefix{Address: header.IPv6Loopback, PrefixLen: 128}},
	} {
		if err := s.AddProtocolAddress(loopbackNIC, a, stack.AddressProperties{}); err != nil {
			return fmt.Errorf("add address %s: %s", a.AddressWithPrefix, err)
		}
		routes = append(routes, tcpip.Route{Destination: a.AddressWithPrefix.Subnet(), NIC: loopbackNIC})
	}
	s.SetRouteTable(routes)
	return nil
}

// inheritedNetwork gives a child the counters that its network stack was saved without, before
// it makes the interfaces, which count in them. side is the side state that has them.
type inheritedNetwork struct {
	k         *kernel.Kernel
	connected bool // the child has a way to the outside
	side      *aside.State
	link      *uplink.Link // nil if neither the child nor its parent has one
}

// ConfigureNetwork implements inet.NetworkArgs.
func (n *inheritedNetwork) ConfigureNetwork(is inet.Stack) error {
	set, err := popState[aside.State](n.k, aside.Key, "has no side state")
	if err != nil {
		return err
	}
	n.side = set
	s := is.(*netstack.Stack).Stack
	if err := set.RestoreCounters(s); err != nil {
		return err
	}
	// gVisor counts the connections again that it restores.
	for _, now := range []*tcpip.StatCounter{s.Stats().TCP.CurrentEstablished, s.Stats().TCP.CurrentConnected} {
		now.IncrementBy(-now.Value())
	}
	if err := (loopbackConfig{}).ConfigureNetwork(is); err != nil {
		return err
	}
	if !n.connected && !set.Connected {
		return nil
	}
	// What was bound to its addresses is lost without them.
	n.link = uplink.NewLink()
	return n.link.PlugIn(s)
}
