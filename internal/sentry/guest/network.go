package guest

import (
	"fmt"
	"reflect"
	"sync"
	gotime "time"
	"unsafe"

	"gvisor.dev/gvisor/pkg/atomicbitops"
	"gvisor.dev/gvisor/pkg/rand"
	"gvisor.dev/gvisor/pkg/sentry/inet"
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
	"gvisor.dev/gvisor/pkg/tcpip/transport/icmp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
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
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol, icmp.NewProtocol4, icmp.NewProtocol6},
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
	if err := (loopbackConfig{}).ConfigureNetwork(s); err != nil {
		return nil, err
	}
	return s, nil
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

// takeInterfaces takes from the network protocols what they have of interfaces, until
// putBack is called. A child makes its interface anew, see loopbackConfig; the old one
// would be saved, for nobody, with its counters and all that it could ever do: a third of
// the objects of a usual state. A packet that is sent meanwhile goes by way of the
// interface.
func (g *Guest) takeInterfaces() (putBack func()) {
	var back []func()
	for _, n := range []tcpip.NetworkProtocolNumber{ipv4.ProtocolNumber, ipv6.ProtocolNumber} {
		endpoints, mu := endpointsOf(g.netStack().NetworkProtocolInstance(n))
		set := func(to reflect.Value) {
			mu.Lock()
			defer mu.Unlock()
			endpoints.Set(to)
		}
		kept := reflect.ValueOf(endpoints.Interface())
		set(reflect.MakeMap(endpoints.Type()))
		back = append(back, func() { set(kept) })
	}
	return func() {
		for _, f := range back {
			f()
		}
	}
}

// endpointsOf returns the map in which a network protocol has its endpoints, of each
// interface, and what protects it. gVisor has no accessors for it.
func endpointsOf(protocol stack.NetworkProtocol) (endpoints reflect.Value, mu sync.Locker) {
	v := reflect.ValueOf(protocol).Elem()
	lock := v.FieldByName("mu")
	field := v.FieldByName("eps")
	if !field.IsValid() { // IPv6
		field = lock.FieldByName("eps")
	}
	mu, _ = reflect.NewAt(lock.Type(), unsafe.Pointer(lock.UnsafeAddr())).Interface().(sync.Locker)
	return reflect.NewAt(field.Type(), unsafe.Pointer(field.UnsafeAddr())).Elem(), mu
}

func (g *Guest) netStack() *stack.Stack {
	return g.k.RootNetworkNamespace().Stack().(*netstack.Stack).Stack
}

// packetIDs returns the counters that IPv4 packet identifiers are taken from:
// 2048 of them, each an object of its own in the saved state and a sixth of all
// objects. They hold nothing worth keeping, and two sandboxes should not use the
// same, so they are left out of it and a child makes new ones.
func (g *Guest) packetIDs() *[]atomicbitops.Uint32 {
	protocol := reflect.ValueOf(g.netStack().NetworkProtocolInstance(ipv4.ProtocolNumber)).Elem()
	return (*[]atomicbitops.Uint32)(unsafe.Pointer(protocol.FieldByName("ids").UnsafeAddr()))
}

// packetIDCount is gVisor's number of counters: it takes hashes modulo that.
const packetIDCount = 2048

// newPacketIDs gives a child counters of its own.
func (g *Guest) newPacketIDs() {
	ids := make([]atomicbitops.Uint32, packetIDCount)
	for i := range ids {
		ids[i] = atomicbitops.FromUint32(uint32(rand.Uint64()))
	}
	*g.packetIDs() = ids
}
