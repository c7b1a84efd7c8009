package guest

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"gvisor.dev/gvisor/pkg/atomicbitops"
	"gvisor.dev/gvisor/pkg/cpuid"
	"gvisor.dev/gvisor/pkg/rand"
	"gvisor.dev/gvisor/pkg/sentry/socket/netstack"
	"gvisor.dev/gvisor/pkg/state"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/faketime"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/wire"
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
	values, putBack := takeCounters(from)
	from.Stats().TCP.Retransmits.Increment() // by somebody who does not stand still
	if objects := map[*tcpip.StatCounter]bool{}; true {
		for _, c := range countersOf(from) {
			objects[*c] = true
		}
		if len(objects) != 1 {
			t.Errorf("%d counters are left", len(objects))
		}
	}
	putBack()
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
		putBack := takeInterfaces(s.NetworkProtocolInstance(n))
		if endpoints.IsNil() || endpoints.Len() != 0 {
			t.Errorf("protocol %#x still has %d endpoints, or no map", n, endpoints.Len())
		}
		putBack()
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

// savable is what gVisor's state package asks of the types of a saved state.
type savable interface {
	StateTypeName() string
	StateFields() []string
	StateSave(state.Sink)
	StateLoad(context.Context, state.Source)
}

// TestCanarySavedTypes checks the methods that are written by hand here and
// generated in gVisor: that the names are those of the types and fields, and that
// what is saved comes back.
func TestCanarySavedTypes(t *testing.T) {
	cpuid.Initialize()
	for _, x := range []savable{&table{}, &process{}, &alarm{}, &sideState{}} {
		typ := reflect.TypeOf(x).Elem()
		t.Run(typ.Name(), func(t *testing.T) {
			if want := typ.PkgPath() + "." + typ.Name(); x.StateTypeName() != want {
				t.Errorf("it is saved as %q, not %q", x.StateTypeName(), want)
			}
			for _, f := range x.StateFields() {
				if _, ok := typ.FieldByName(f); !ok {
					t.Errorf("it has no field %s", f)
				}
			}
			var buf bytes.Buffer
			if _, err := state.Save(context.Background(), &buf, x); err != nil {
				t.Fatalf("save: %v.\nIs it registered, and is the state.Sink's contract what it was?", err)
			}
			back := reflect.New(typ).Interface()
			if _, err := state.Load(context.Background(), &buf, back); err != nil {
				t.Fatalf("load: %v", err)
			}
		})
	}
}

func TestTableComesBack(t *testing.T) {
	tab := newTable()
	for pid := range int32(2) {
		p := &process{pid: 10 + pid, command: "x", keep: blockSize, ended: 1, status: 3 << 8}
		p.ready(tab)
		tab.add(p)
	}
	write(t, tab.list[1].out, wire.Stdout, "some output")
	tab.detached = []string{"/proc", "/sys"}
	outs := tab.freeze()
	var buf bytes.Buffer
	if _, err := state.Save(context.Background(), &buf, tab); err != nil {
		t.Fatal(err)
	}
	var back table
	if _, err := state.Load(context.Background(), &buf, &back); err != nil {
		t.Fatal(err)
	}
	if err := back.thaw(outs[:1]); err == nil {
		t.Error("the output of one process is enough for two")
	}
	if err := back.thaw(outs); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(back.detached) != fmt.Sprint(tab.detached) {
		t.Errorf("%v came back", back.detached)
	}
	p, err := back.find(11)
	if err != nil || !p.inherited || p.status != 3<<8 || p.command != "x" {
		t.Fatalf("process %+v, %v came back", p, err)
	}
	if got := readAll(p.out, 0); got != "0:some output " {
		t.Errorf("its output came back as %q", got)
	}
	back.forget(p)
	if _, err := back.find(11); err == nil || len(back.list) != 1 {
		t.Errorf("it is still there, one of %d", len(back.list))
	}
}

// TestDeafAlarm rings an alarm that came out of a saved state: nobody hears it,
// and nobody may wait for that.
func TestDeafAlarm(t *testing.T) {
	(&alarm{}).NotifyEvent(0)
	a := newAlarm()
	for range 3 {
		a.NotifyEvent(0)
	}
	<-a.c
	select {
	case <-a.c:
		t.Error("three rings are not one")
	default:
	}
}

func TestParseID(t *testing.T) {
	for s, ok := range map[string]bool{
		"0": true, "1000": true, "4294967294": true,
		"4294967295": false, "4294967296": false, "-1": false, "": false, "1a": false, " 1": false, "0x10": false, "+1": false,
	} {
		if _, err := parseID(s); (err == nil) != ok {
			t.Errorf("parseID(%q): %v", s, err)
		}
	}
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
