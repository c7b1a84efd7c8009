package aside

import (
	"reflect"
	"strings"
	"testing"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/faketime"
	"gvisor.dev/gvisor/pkg/tcpip/link/loopback"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/sentry/savedtest"
)

const nic = tcpip.NICID(1)

// newStack returns a network stack with one interface.
func newStack(t *testing.T) *stack.Stack {
	t.Helper()
	s := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, ipv6.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol},
		Clock:              faketime.NewManualClock(),
	})
	t.Cleanup(s.Close)
	if err := s.CreateNIC(nic, loopback.New()); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestCanarySavedTypes(t *testing.T) { savedtest.Check(t, []savedtest.Savable{&State{}}) }

// TestCountersComeBack takes the counters out of a network stack, and gives what they
// say to another one.
func TestCountersComeBack(t *testing.T) {
	stacks := make([]*stack.Stack, 2)
	for i := range stacks {
		stacks[i] = newStack(t)
		// Else all stacks count in the same.
		if err := setCounters(countersOf(stacks[i]), strings.Repeat("\x00", len(countersOf(stacks[i])))); err != nil {
			t.Fatal(err)
		}
	}
	from, to := stacks[0], stacks[1]
	if n := len(countersOf(from)); n < 100 {
		t.Fatalf("a network stack has %d counters: see where gVisor keeps them", n)
	}
	for i, c := range countersOf(from) {
		(*c).IncrementBy(uint64(i) * 1000)
	}
	stats := from.Stats()
	values, restore := takeCounters(from)
	from.Stats().TCP.Retransmits.Increment() // by somebody who does not stand still
	if objects := map[*tcpip.StatCounter]bool{}; true {
		for _, c := range countersOf(from) {
			objects[*c] = true
		}
		if len(objects) != 1 {
			t.Errorf("%d counters are left", len(objects))
		}
	}
	restore()
	if from.Stats() != stats {
		t.Error("others are put back than were taken")
	}
	if err := setCounters(countersOf(to), values); err != nil {
		t.Fatal(err)
	}
	for i, c := range countersOf(to) {
		if (*c).Value() != uint64(i)*1000 || *c == *countersOf(from)[i] {
			t.Errorf("counter %d comes back as %d", i, (*c).Value())
		}
	}
	for _, damaged := range []string{"", values[:len(values)-1], values + "\x00"} {
		if err := setCounters(countersOf(to), damaged); api.CodeOf(err) != api.CodeCorrupt {
			t.Errorf("%d bytes of %d: %v", len(damaged), len(values), err)
		}
	}
}

func TestCanaryEndpoints(t *testing.T) {
	s := newStack(t)
	for _, n := range []tcpip.NetworkProtocolNumber{ipv4.ProtocolNumber, ipv6.ProtocolNumber} {
		endpoints, mu := endpointsOf(s.NetworkProtocolInstance(n))
		if mu == nil {
			t.Errorf("protocol %#x has no mutex any more that can be locked: takeInterfaces does", n)
		}
		if endpoints.Kind() != reflect.Map || endpoints.Type().Key() != reflect.TypeFor[tcpip.NICID]() || endpoints.Len() != 1 {
			t.Errorf("protocol %#x has a %v with %d entries, not a map with the endpoint of lo: takeInterfaces empties it", n, endpoints.Type(), endpoints.Len())
		}
		was := endpoints.MapIndex(reflect.ValueOf(nic)).Pointer()
		restore := takeInterfaces(s.NetworkProtocolInstance(n))
		if endpoints.IsNil() || endpoints.Len() != 0 {
			t.Errorf("protocol %#x still has %d endpoints, or no map", n, endpoints.Len())
		}
		restore()
		if endpoints.Len() != 1 || endpoints.MapIndex(reflect.ValueOf(nic)).Pointer() != was {
			t.Errorf("protocol %#x gets back %d endpoints, or another one", n, endpoints.Len())
		}
	}
}
