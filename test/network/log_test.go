package network

import (
	"context"
	"sync"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/test/harness"
)

// TestTheLogIsFollowedToItsEnd follows the decisions about a sandbox that is destroyed with an open
// connection, and reads the events of its decisions.
func TestTheLogIsFollowedToItsEnd(t *testing.T) {
	n := newNode(t)
	serve(t, "198.51.100.1:1", echoes)
	create(n, "base", allow(t, "198.51.100.1:1"))
	hold(n, "base", "198.51.100.1:1", 1)
	const denials = 100
	n.Guest("base", "outside", "flood", "198.51.100.1:2", "100")
	ctx, cancel := context.WithTimeout(harness.AsOwner, harness.Timeout)
	defer cancel()
	var lines []api.NetworkLogEntry
	seen := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		err := n.Machine.NetworkLog(ctx, "base", true, func() {}, func(e api.NetworkLogEntry) error {
			if lines = append(lines, e); len(lines) == 1+denials {
				close(seen)
			}
			return nil
		})
		if err != nil {
			t.Errorf("the log of a sandbox that was destroyed ends with %v", err)
		}
	})
	<-seen
	told := map[api.NetworkVerdict]int{}
	err := n.Machine.Events(ctx, api.EventRequest{Sandbox: "base", Kinds: []api.EventKind{api.EventDecided}, Follow: true}, func() {}, func(e api.Event) error {
		if told[e.Decision.Verdict]++; told[api.NetworkAllowed] == 1 && told[api.NetworkDenied] >= 8 {
			return context.Canceled // enough
		}
		return nil
	})
	if err != context.Canceled || told[api.NetworkDenied] > denials/2 {
		t.Errorf("events of decisions: %v, %v", told, err)
	}
	if err := n.Machine.Destroy(harness.AsOwner, "base"); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if last := lines[len(lines)-1]; len(lines) != 2+denials || !last.IsEnd() || last.Port != 1 {
		t.Errorf("%d lines, at last %+v", len(lines), last)
	}
}

func TestPingsThatAreDenied(t *testing.T) {
	n := newNode(t)
	create(n, "base", allow(t, "198.51.100.2:1"))
	for _, address := range []string{"198.51.100.1", "2001:db8:1::1"} {
		if said := n.Guest("base", "outside", "ping", address); said != "no route to host\n" {
			t.Errorf("a ping to %s: %q", address, said)
		}
	}
}
