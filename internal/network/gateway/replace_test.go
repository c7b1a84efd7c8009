package gateway

import (
	"context"
	"errors"
	"net/netip"
	"sync/atomic"
	"testing"

	"ramet.dev/ramet/internal/network/policy"
	"ramet.dev/ramet/internal/network/wire"
)

// TestReplacedPoliciesWait until connections have been given up that were being made.
func TestReplacedPoliciesWait(t *testing.T) {
	w := newWorld(t, nil)
	begun := make(chan struct{})
	var ended atomic.Bool
	w.silent = func(ctx context.Context) {
		close(begun)
		<-ctx.Done()
		ended.Store(true)
	}
	s := w.newSentry("one", rules(t, silentServer))
	addr := netip.MustParseAddrPort(silentServer)
	s.ask(wire.Message{Kind: wire.Dial, Protocol: wire.TCP, Address: addr.Addr(), Port: addr.Port()})
	<-begun
	if err := w.Replace(Registration{ID: "one", Policy: policy.Spec{Document: rules(t, "192.0.2.9:1")}}); err != nil {
		t.Fatal(err)
	}
	if !ended.Load() {
		t.Error("a connection is being made that the policy does not allow")
	}
}

func TestReplacedPoliciesCutFlows(t *testing.T) {
	w := newWorld(t, nil)
	for _, a := range []string{"192.0.2.9:1", "192.0.2.9:2"} {
		w.serve(a, echoes)
	}
	s := w.newSentry("one", rules(t, "192.0.2.9:1-2"))
	kept, cut := s.open("192.0.2.9:1"), s.open("192.0.2.9:2")
	for _, g := range []*guest{kept, cut} {
		if err := g.trip("before"); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Replace(Registration{ID: "one", Policy: policy.Spec{Document: rules(t, "192.0.2.9:1")}}); err != nil {
		t.Fatal(err)
	}
	if k := cut.last(); k != wire.Reset {
		t.Errorf("the flow ends with %v", k)
	}
	if err := cut.trip("after"); err == nil {
		t.Error("the flow that is not allowed is open")
	}
	if err := kept.trip("after"); err != nil {
		t.Errorf("the flow that is allowed: %v", err)
	}
	if _, code := s.dial(wire.TCP, "192.0.2.9:2"); code != wire.CodeRefused {
		t.Errorf("a new flow: %v", code)
	}
	if err := w.Replace(Registration{ID: "two"}); !errors.Is(err, ErrUnknown) {
		t.Errorf("replace the policy of a sandbox that is not there: %v", err)
	}
}
