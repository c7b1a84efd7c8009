package netspaces

import (
	"net/netip"
	"reflect"
	"sync/atomic"
	"testing"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/atomicbitops"
	"gvisor.dev/gvisor/pkg/sentry/inet"
	"gvisor.dev/gvisor/pkg/sentry/socket/netlink"
	"gvisor.dev/gvisor/pkg/sentry/socket/netstack"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/faketime"
	"gvisor.dev/gvisor/pkg/tcpip/link/ethernet"
	"gvisor.dev/gvisor/pkg/tcpip/link/packetsocket"
	"gvisor.dev/gvisor/pkg/tcpip/link/veth"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/sentry/savedtest"
	"ramet.dev/ramet/internal/sentry/uplink"
)

// idSource counts, as netstack wants ids from.
type idSource struct{ n uint64 }

func (s *idSource) UniqueID() uint64 { s.n++; return s.n }

// newStacks returns the stack of a sandbox, and that of another namespace.
func newStacks(t *testing.T) []*stack.Stack {
	t.Helper()
	var ids idSource
	root, err := NewRoot(faketime.NewManualClock(), &ids)
	if err != nil {
		t.Fatal(err)
	}
	var stats tcpip.Stats
	other, err := newStack(faketime.NewManualClock(), &ids, stats.FillIn())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []*netstack.Stack{root, other} {
		t.Cleanup(s.Stack.Destroy)
	}
	return []*stack.Stack{root.Stack, other.Stack}
}

func must(t *testing.T, err tcpip.Error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func address4(a, b, c, d byte, bits int) tcpip.ProtocolAddress {
	return tcpip.ProtocolAddress{Protocol: ipv4.ProtocolNumber, AddressWithPrefix: tcpip.AddressWithPrefix{Address: tcpip.AddrFrom4([4]byte{a, b, c, d}), PrefixLen: bits}}
}

// newVeth makes a pair with one end in each stack, and returns their numbers.
func newVeth(t *testing.T, a, b *stack.Stack, names ...string) (tcpip.NICID, tcpip.NICID) {
	t.Helper()
	first, second := veth.NewPair(defaultMTU, veth.DefaultBacklogSize)
	at, peer := a.NextNICID(), b.NextNICID()
	must(t, a.CreateNICWithOptions(at, packetsocket.New(ethernet.New(first)), stack.NICOptions{Name: names[0], Kind: "veth"}))
	must(t, b.CreateNICWithOptions(peer, packetsocket.New(ethernet.New(second)), stack.NICOptions{Name: names[1]}))
	return at, peer
}

// TestInterfacesAreMadeAgain describes stacks with what programs can make in them, and makes the same in new stacks.
func TestInterfacesAreMadeAgain(t *testing.T) {
	stacks := newStacks(t)
	root, other := stacks[0], stacks[1]
	if next := root.NextNICID(); next != uplink.NIC+1 {
		t.Errorf("the first interface of a guest has number %d", next)
	}
	must(t, root.AddProtocolAddress(loopbackNIC, address4(10, 9, 8, 7, 32), stack.AddressProperties{}))
	va, vb := newVeth(t, root, other, "va", "vb")
	must(t, root.SetNICMTU(va, 9000))
	must(t, root.SetNICAddress(va, "\x02\x00\x00\x00\x00\x01"))
	must(t, root.AddProtocolAddress(va, address4(10, 77, 0, 1, 24), stack.AddressProperties{}))
	root.AddRoute(tcpip.Route{Destination: address4(10, 77, 0, 0, 24).AddressWithPrefix.Subnet(), NIC: va})
	must(t, other.RemoveAddress(loopbackNIC, tcpip.AddrFrom4([4]byte{127, 0, 0, 1})))
	must(t, other.SetNICName(vb, "lo")) // the name of another one
	bridge := other.NextNICID()
	must(t, other.CreateNICWithOptions(bridge, stack.NewBridgeEndpoint(defaultMTU), stack.NICOptions{Name: "br0", Kind: "bridge"}))
	must(t, other.SetNICCoordinator(vb, bridge))
	other.AddRoute(tcpip.Route{Destination: address4(10, 1, 0, 0, 16).AddressWithPrefix.Subnet(), Gateway: tcpip.AddrFrom4([4]byte{10, 77, 0, 9}), NIC: bridge})
	states, err := describe(stacks)
	if err != nil {
		t.Fatal(err)
	}
	again := newStacks(t)
	if err := rebuild(again, states, &atomic.Bool{}); err != nil {
		t.Fatal(err)
	}
	got, err := describe(again)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, states) {
		t.Errorf("the copy has\n%+v, not\n%+v", got, states)
	}
	if len(states[0].Interfaces) != 2 || len(states[1].Interfaces) != 3 {
		t.Errorf("%d and %d interfaces are described", len(states[0].Interfaces), len(states[1].Interfaces))
	}
	if next := again[1].NextNICID(); next != bridge+1 {
		t.Errorf("the next interface has number %d", next)
	}
	// A removed end takes its peer with it, as it did before.
	must(t, again[0].RemoveNIC(va))
	if again[1].HasNIC(vb) {
		t.Error("the peer of a removed interface is left")
	}
}

// TestUplinkIsKept describes a sandbox with a way to the outside: its changes come back where there is one again.
func TestUplinkIsKept(t *testing.T) {
	stacks := newStacks(t)
	root := stacks[0]
	if err := uplink.NewLink().PlugIn(root); err != nil {
		t.Fatal(err)
	}
	must(t, root.AddProtocolAddress(uplink.NIC, address4(10, 0, 2, 99, 32), stack.AddressProperties{}))
	root.RemoveRoutes(func(r tcpip.Route) bool { return r.Gateway.Len() > 0 })
	states, err := describe(stacks)
	if err != nil {
		t.Fatal(err)
	}
	connected, alone := newStacks(t), newStacks(t)
	if err := uplink.NewLink().PlugIn(connected[0]); err != nil {
		t.Fatal(err)
	}
	for _, s := range [][]*stack.Stack{connected, alone} {
		if err := rebuild(s, states, &atomic.Bool{}); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := describe(connected); err != nil || !reflect.DeepEqual(got, states) {
		t.Errorf("the copy has\n%+v, %v, not\n%+v", got, err, states)
	}
	if got, err := describe(alone); err != nil || len(got[0].Interfaces) != 1 || len(got[0].Routes) != 2 {
		t.Errorf("the copy without a network has %+v, %v", got, err)
	}
	// One that gets a network that its parent did not have keeps the routes of a new one.
	if states, err = describe(alone); err != nil {
		t.Fatal(err)
	}
	before := len(connected[0].GetRouteTable())
	if err := rebuild(connected, states, &atomic.Bool{}); err != nil || len(connected[0].GetRouteTable()) != before {
		t.Errorf("%d routes are left of %d: %v", len(connected[0].GetRouteTable()), before, err)
	}
	// It cannot be made again elsewhere.
	if _, err := root.SetNICStack(uplink.NIC, stacks[1]); err != nil {
		t.Fatal(err)
	}
	if _, err := describe(stacks); api.CodeOf(err) != api.CodeUnsupported {
		t.Errorf("an interface to the outside in another namespace: %v", err)
	}
}

// TestEndedNamespacesAreForgotten closes a stack, as the end of its namespace does.
func TestEndedNamespacesAreForgotten(t *testing.T) {
	var n Namespaces
	for _, s := range newStacks(t) {
		n.stacks = append(n.stacks, netstack.NewStack(s, uint64(len(n.stacks))))
	}
	if len(n.Stacks()) != 2 {
		t.Error("a stack is forgotten that is in use")
	}
	n.stacks[0].Stack.Close()
	if len(n.Stacks()) != 1 {
		t.Error("a closed stack is kept")
	}
}

// TestNamespacesGetTheirStacks loads namespaces: gVisor asks for a stack for each of them, in any order.
func TestNamespacesGetTheirStacks(t *testing.T) {
	stacks := newStacks(t)
	tables := []*inet.McastTable{inet.NewNetlinkMcastTable(), inet.NewNetlinkMcastTable()}
	n := Namespaces{loading: true}
	for i, s := range stacks {
		old := netstack.NewStack(s, uint64(i)+7)
		old.AddInterfaceEventSubscriber(tables[i])
		n.stacks = append(n.stacks, old)
	}
	var asked []*netstack.Stack
	for i := range stacks {
		s, err := n.CreateStack()
		if err != nil {
			t.Fatal(err)
		}
		s.(inet.InterfaceEventPublisher).AddInterfaceEventSubscriber(tables[1-i])
		asked = append(asked, s.(*netstack.Stack))
	}
	n.adopt()
	for i, s := range asked {
		if s.Stack != stacks[1-i] || *idOf(s) != uint64(1-i)+7 {
			t.Errorf("namespace %d has the stack of another one", i)
		}
	}
	if got := n.Stacks(); len(got) != 2 {
		t.Errorf("%d stacks are kept", len(got))
	}
}

func TestCanarySavedTypes(t *testing.T) {
	savedtest.Check(t, []savedtest.Savable{&Namespaces{}, &routes{}})
}

// TestCanaryFields looks at the fields of gVisor that are reached by reflection. Their types must be what they are
// taken for.
func TestCanaryFields(t *testing.T) {
	for _, f := range []struct {
		of         reflect.Type
		name, want string
	}{
		{reflect.TypeFor[stack.Stack](), "nicIDGen", "atomicbitops.Int32"},
		{reflect.TypeFor[stack.Stack](), "restoredEndpoints", "[]stack.RestoredEndpoint"},
		{reflect.TypeFor[netstack.Stack](), "eventSubscriber", "inet.InterfaceEventSubscriber"},
		{reflect.TypeFor[netstack.Stack](), "id", "uint64"},
		{reflect.TypeFor[veth.Endpoint](), "peer", "*veth.Endpoint"},
		{reflect.TypeFor[ethernet.Endpoint]().Field(0).Type, "child", "stack.LinkEndpoint"},
	} {
		if field, ok := f.of.FieldByName(f.name); !ok || field.Type.String() != f.want {
			t.Errorf("%v has no field %s of type %s", f.of, f.name, f.want)
		}
	}
	protocol := reflect.ValueOf(newStacks(t)[0].NetworkProtocolInstance(ipv4.ProtocolNumber))
	if protocol.Kind() != reflect.Pointer {
		t.Fatalf("the IPv4 protocol is a %v: dropPacketIDs follows a pointer", protocol.Type())
	}
	ids := protocol.Elem().FieldByName("ids")
	if !ids.IsValid() || ids.Type() != reflect.TypeFor[[]atomicbitops.Uint32]() {
		t.Fatal("the IPv4 protocol does not keep its counters in a field ids of type []atomicbitops.Uint32 any more: dropPacketIDs takes them away")
	}
	if ids.Len() > 0 {
		t.Errorf("%d counters are left", ids.Len())
	}
}

func TestCanaryProtocols(t *testing.T) {
	if netlinkProtocols[linux.NETLINK_ROUTE] == nil {
		t.Error("netlink does not keep its protocols in a map of this name any more: Replace changes it")
	}
	p, err := newRoutes(nil)
	if _, ok := p.(netlink.RouteProtocol); err != nil || !ok {
		t.Errorf("%T tells nobody of interfaces: %v", p, err)
	}
}

func TestAddresses(t *testing.T) {
	for _, text := range []string{"10.0.0.1/24", "fd00::1/64", "0.0.0.0/0", "::/0"} {
		p := netip.MustParsePrefix(text)
		a := prefixOf(p)
		if got := netip.PrefixFrom(addrOf(a.Address), a.PrefixLen); got != p {
			t.Errorf("%s comes back as %s", p, got)
		}
	}
	if addrOf(addressOf(netip.Addr{})).IsValid() {
		t.Error("no address comes back as one")
	}
}
