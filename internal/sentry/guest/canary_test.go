package guest

import (
	"reflect"
	"strings"
	"testing"

	"gvisor.dev/gvisor/pkg/atomicbitops"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/socket/netstack"
	"gvisor.dev/gvisor/pkg/tcpip/faketime"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"

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

func TestCanarySavedTypes(t *testing.T) {
	savedtest.Check(t, []savedtest.Savable{&randomness{}})
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

func TestCanaryClockPage(t *testing.T) {
	if f, ok := reflect.TypeFor[kernel.Kernel]().FieldByName("vdsoParams"); !ok || f.Type != reflect.TypeFor[*kernel.VDSOParamPage]() {
		t.Error("a kernel has no field vdsoParams of type *VDSOParamPage any more: clockPage finds it there")
	}
}
