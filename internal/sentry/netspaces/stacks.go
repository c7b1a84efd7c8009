package netspaces

import (
	"fmt"
	"reflect"
	gotime "time"
	"unsafe"

	"gvisor.dev/gvisor/pkg/atomicbitops"
	"gvisor.dev/gvisor/pkg/sentry/socket/netfilter"
	"gvisor.dev/gvisor/pkg/sentry/socket/netstack"
	"gvisor.dev/gvisor/pkg/sentry/uniqueid"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/ethernet"
	"gvisor.dev/gvisor/pkg/tcpip/link/loopback"
	"gvisor.dev/gvisor/pkg/tcpip/network/arp"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"

	"ramet.dev/ramet/internal/sentry/paired"
	"ramet.dev/ramet/internal/sentry/uplink"
)

// loopbackNIC is the index of lo, as on Linux.
const loopbackNIC = tcpip.NICID(1)

// timeWait is how long a connection is remembered that both sides have closed, instead of a
// minute: for stray packets, which a loopback interface has none of. Each adds an eighth
// of a millisecond to the pause of a fork, and a server that is asked all the time had
// thousands of them.
const timeWait = 100 * gotime.Millisecond

// NewRoot returns the network stack of a sandbox, with a loopback interface only.
func NewRoot(clock tcpip.Clock, ids uniqueid.Provider) (*netstack.Stack, error) {
	s, err := newStack(clock, ids, netstack.Metrics)
	if err != nil {
		return nil, err
	}
	// The guest's interfaces come behind that to the outside.
	reserve(s.Stack, uplink.NIC)
	return s, nil
}

func newStack(clock tcpip.Clock, ids uniqueid.Provider, stats tcpip.Stats) (*netstack.Stack, error) {
	s := netstack.NewStack(stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, ipv6.NewProtocol, arp.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{paired.NewTCP, udp.NewProtocol, uplink.NewPings4, uplink.NewPings6},
		Clock:              clock,
		Stats:              stats,
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
	if err := makeLoopback(s.Stack); err != nil {
		return nil, err
	}
	reserve(s.Stack, loopbackNIC)
	return s, nil
}

// reserve has the stack number new interfaces behind last.
func reserve(s *stack.Stack, last tcpip.NICID) {
	at := (*atomicbitops.Int32)(unsafe.Pointer(reflect.ValueOf(s).Elem().FieldByName("nicIDGen").UnsafeAddr()))
	at.Store(max(at.Load(), int32(last)))
}

// dropPacketIDs takes away the counters that gVisor took IPv4 packet identifiers from, and
// does not any more: 2048 of them, each of which would be an object of its own in a saved
// state.
func dropPacketIDs(s *stack.Stack) {
	protocol := reflect.ValueOf(s.NetworkProtocolInstance(ipv4.ProtocolNumber)).Elem()
	*(*[]atomicbitops.Uint32)(unsafe.Pointer(protocol.FieldByName("ids").UnsafeAddr())) = nil
}

// makeLoopback makes the loopback interface, in a new stack and again in each child.
func makeLoopback(s *stack.Stack) error {
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
