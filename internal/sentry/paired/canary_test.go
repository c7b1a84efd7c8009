package paired

import (
	"reflect"
	"testing"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/usermem"
	"gvisor.dev/gvisor/pkg/waiter"

	"ramet.dev/ramet/internal/network/wire"
	"ramet.dev/ramet/internal/sentry/savedtest"
)

// See canary_test.go of package cow for what this is.

func TestCanarySavedTypes(t *testing.T) {
	savedtest.Check(t, []savedtest.Savable{&Protocol{}, &End{}, &teller{}}, "to")
}

func TestCanaryFieldsOfSequences(t *testing.T) {
	theirs, ours := reflect.TypeFor[usermem.IOSequenceReadWriter](), reflect.TypeFor[sequence]()
	if theirs.Size() != ours.Size() || theirs.NumField() != ours.NumField() {
		t.Fatalf("it has %d fields, not %d", theirs.NumField(), ours.NumField())
	}
	for i := range ours.NumField() {
		a, b := theirs.Field(i), ours.Field(i)
		if a.Name != b.Name || a.Type != b.Type || a.Offset != b.Offset {
			t.Errorf("field %d is %s %s, not %s %s", i, a.Name, a.Type, b.Name, b.Type)
		}
	}
}

// TestCanaryProtocol checks what gVisor asks of a protocol without saying so in its interface.
func TestCanaryProtocol(t *testing.T) {
	s := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{NewTCP},
	})
	defer s.Destroy()
	p := Of(s)
	if p == nil {
		t.Fatal("the stack has another TCP")
	}
	if _, ok := p.TransportProtocol.(queueing); !ok {
		t.Error("gVisor's TCP has no queues any more, or another method for them")
	}
	if p.SendBufferSize().Max <= 0 {
		t.Error("it has no size of buffers")
	}
	var queue waiter.Queue
	ep, err := s.NewEndpoint(tcp.ProtocolNumber, ipv4.ProtocolNumber, &queue)
	if err != nil {
		t.Fatal(err)
	}
	defer ep.Close()
	e := ep.(*End)
	if _, ok := e.Endpoint.(tcpip.SocketOptionsHandler); !ok {
		t.Error("gVisor's endpoint does not handle its own options any more")
	}
	p.Leave(s)
	e.fail(wire.CodeRefused)
	if _, refused := ep.SocketOptions().GetLastError().(*tcpip.ErrConnectionRefused); !refused {
		t.Error("SO_ERROR does not tell why it is not connected")
	}
	if err := ep.SocketOptions().GetLastError(); err != nil {
		t.Errorf("SO_ERROR tells it twice: %v", err)
	}
	if ready := ep.Readiness(waiter.EventErr | waiter.EventHUp); ready != waiter.EventHUp {
		t.Errorf("it is ready for %#x", ready)
	}
}
