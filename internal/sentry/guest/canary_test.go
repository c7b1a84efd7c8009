package guest

import (
	"bufio"
	"reflect"
	"strings"
	"testing"

	"gvisor.dev/gvisor/pkg/atomicbitops"
	"gvisor.dev/gvisor/pkg/rand"
	"gvisor.dev/gvisor/pkg/sentry/socket/netstack"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/faketime"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/sentry/savedtest"
)

// See canary_test.go of package cow for what this is.

// idSource counts, as netstack wants ids from.
type idSource struct{ n uint64 }

func (s *idSource) UniqueID() uint64 { s.n++; return s.n }

func TestCanaryPacketIDs(t *testing.T) {
	is, err := newNetStack(faketime.NewManualClock(), &idSource{})
	if err != nil {
		t.Fatal(err)
	}
	s := is.(*netstack.Stack).Stack
	defer s.Close()
	protocol := reflect.ValueOf(s.NetworkProtocolInstance(ipv4.ProtocolNumber))
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

// TestCountersComeBack takes the counters out of a network stack, and gives what they
// say to another one.
func TestCountersComeBack(t *testing.T) {
	stacks := make([]*stack.Stack, 2)
	for i := range stacks {
		is, err := newNetStack(faketime.NewManualClock(), &idSource{})
		if err != nil {
			t.Fatal(err)
		}
		stacks[i] = is.(*netstack.Stack).Stack
		defer stacks[i].Close()
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
	is, err := newNetStack(faketime.NewManualClock(), &idSource{})
	if err != nil {
		t.Fatal(err)
	}
	s := is.(*netstack.Stack).Stack
	defer s.Close()
	for _, n := range []tcpip.NetworkProtocolNumber{ipv4.ProtocolNumber, ipv6.ProtocolNumber} {
		endpoints, mu := endpointsOf(s.NetworkProtocolInstance(n))
		if mu == nil {
			t.Errorf("protocol %#x has no mutex any more that can be locked: takeInterfaces does", n)
		}
		if endpoints.Kind() != reflect.Map || endpoints.Type().Key() != reflect.TypeFor[tcpip.NICID]() || endpoints.Len() != 1 {
			t.Errorf("protocol %#x has a %v with %d entries, not a map with the endpoint of lo: takeInterfaces empties it", n, endpoints.Type(), endpoints.Len())
		}
		was := endpoints.MapIndex(reflect.ValueOf(loopbackNIC)).Pointer()
		restore := takeInterfaces(s.NetworkProtocolInstance(n))
		if endpoints.IsNil() || endpoints.Len() != 0 {
			t.Errorf("protocol %#x still has %d endpoints, or no map", n, endpoints.Len())
		}
		restore()
		if endpoints.Len() != 1 || endpoints.MapIndex(reflect.ValueOf(loopbackNIC)).Pointer() != was {
			t.Errorf("protocol %#x gets back %d endpoints, or another one", n, endpoints.Len())
		}
	}
}

// TestCanaryForgetRandom checks that no random bytes are left that were read ahead.
func TestCanaryForgetRandom(t *testing.T) {
	for ahead := range 3 {
		if _, err := rand.Read(make([]byte, 1+ahead*4000)); err != nil {
			t.Fatal(err)
		}
		if err := forgetRandom(); err != nil {
			t.Fatal(err)
		}
		buffer := reflect.ValueOf(rand.Reader).Elem().FieldByName("r")
		if buffer.Type() != reflect.TypeFor[*bufio.Reader]() {
			t.Fatalf("gVisor's random source reads ahead into a %v", buffer.Type())
		}
		read, written := buffer.Elem().FieldByName("r").Int(), buffer.Elem().FieldByName("w").Int()
		if read != written {
			t.Errorf("%d bytes are left", written-read)
		}
	}
}

func TestCanarySavedTypes(t *testing.T) {
	savedtest.Check(t, []savedtest.Savable{&sideState{}, &randomness{}})
}

func TestLimitedBuffer(t *testing.T) {
	b := &limitedBuffer{max: 10}
	for _, s := range []string{"hello ", "world", "!", strings.Repeat("x", 100)} {
		if n, err := b.Write([]byte(s)); n != len(s) || err != nil {
			t.Errorf("Write(%q) = %d, %v", s, n, err)
		}
	}
	if b.String() != "hello worl" {
		t.Errorf("it kept %q", b.String())
	}
}
