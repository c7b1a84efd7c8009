package host

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/network/gateway"
	"ramet.dev/ramet/internal/network/policy"
	"ramet.dev/ramet/internal/network/share"
	"ramet.dev/ramet/internal/network/wire"
	"ramet.dev/ramet/internal/polltest"
)

// bounding returns a tenant that reaches no more than is allowed.
func bounding(t *testing.T, name string, allow ...string) gateway.Tenant {
	return gateway.Tenant{Name: name, Bounds: []policy.Bound{{Of: "tenant " + name, Document: registration(t, "", allow...).Policy.Document}}}
}

// TestAGatewayKnowsTenantsBeforeSandboxes is told of bounds before there is a gateway, while one runs,
// when one was killed, and by a daemon that finds one.
func TestAGatewayKnowsTenantsBeforeSandboxes(t *testing.T) {
	cfg := newConfig(t)
	first := newDaemon(t, cfg, nil)
	one, two := echoes(t), echoes(t)
	if err := first.SetTenant(t.Context(), bounding(t, api.DefaultTenant, one)); err != nil {
		t.Fatal(err)
	}
	if h, err := first.Hello(t.Context()); err != nil || h.PID != 0 {
		t.Errorf("a bound has started a gateway: %+v, %v", h, err)
	}
	s := first.create("box", one, two)
	reaches := func(what string, want map[string]bool) {
		t.Helper()
		for address, reached := range want {
			conn, code, err := s.dial(address)
			if err != nil || (conn != nil) != reached || !reached && code != wire.CodeRefused {
				t.Errorf("%s: %s is reached: %v, %v, %v", what, address, conn != nil, code, err)
			}
		}
	}
	reaches("before the gateway", map[string]bool{one: true, two: false})
	conn := s.open(one)
	if err := first.SetTenant(t.Context(), bounding(t, api.DefaultTenant, two)); err != nil {
		t.Fatal(err)
	}
	if err := trip(conn, "words"); err == nil {
		t.Error("a flow is open that the bound does not allow")
	}
	reaches("while it runs", map[string]bool{one: false, two: true})
	for range 3 {
		if err := syscall.Kill(first.pid(), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		select {
		case <-s.attached:
		case <-time.After(20 * time.Second):
			t.Fatal("the sandbox has no new channel")
		}
		reaches("after another gateway was started", map[string]bool{one: false, two: true})
	}
	// The next daemon has other bounds: of a tenant that had none, and none of the one that had.
	pid := first.pid()
	first.Close()
	cfg.Tenants = []gateway.Tenant{{Name: "acme", Limits: share.Limits{Connections: 3}}}
	second := newDaemon(t, cfg, first)
	if err := second.Adopt(t.Context(), []gateway.Registration{registration(t, "box", one, two)}); err != nil {
		t.Fatal(err)
	}
	reaches("without a bound", map[string]bool{one: true, two: true})
	list, err := second.Client().Tenants(t.Context())
	if err != nil || len(list) != 2 || second.pid() != pid {
		t.Errorf("the gateway, %d for %d, has %+v, %v", second.pid(), pid, list, err)
	}
}

// TestAGatewayThatIsNotTold of a bound has no other sandbox until it is.
func TestAGatewayThatIsNotTold(t *testing.T) {
	d := newDaemon(t, newConfig(t), nil)
	one := echoes(t)
	s := d.create("box", one)
	pid := d.pid()
	goOn := stop(t, pid)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := d.SetTenant(ctx, bounding(t, api.DefaultTenant, "192.0.2.1:1")); err == nil {
		t.Error("a gateway that hangs has put a bound in force")
	}
	goOn()
	if err := d.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, code, err := s.dial(one); code != wire.CodeRefused || err != nil {
		t.Errorf("when it goes on: %v, %v", code, err)
	}
	// One whose caller leaves before it has the turn is in force as well.
	if err := d.take(t.Context()); err != nil {
		t.Fatal(err)
	}
	short, end := context.WithTimeout(t.Context(), time.Millisecond)
	defer end()
	if err := d.SetTenant(short, bounding(t, api.DefaultTenant, one)); err == nil {
		t.Error("two have the turn")
	}
	d.give()
	if err := d.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	if conn, code, err := s.dial(one); conn == nil {
		t.Errorf("with the bound of a caller who left: %v, %v", code, err)
	}
}

// TestAGatewayThatIsNotToldOfAnEnd is told later, also of the end of a sandbox whose caller never had the turn.
func TestAGatewayThatIsNotToldOfAnEnd(t *testing.T) {
	d := newDaemon(t, newConfig(t), nil)
	one := echoes(t)
	d.create("first", one)
	d.create("second", one)
	stays := d.create("stays", one)
	goOn := stop(t, d.pid())
	remove := func(id string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if err := d.Remove(ctx, id); err == nil {
			t.Errorf("the gateway that hangs was told of the end of %s", id)
		}
	}
	if err := d.take(t.Context()); err != nil {
		t.Fatal(err)
	}
	remove("first") // it does not even get the turn
	d.give()
	remove("second")
	goOn()
	polltest.Eventually(t, 30*time.Second, "the gateway has the one that stays", func() bool {
		known, err := d.Client().List(t.Context())
		return err == nil && slices.Equal(known, []string{"stays"})
	})
	if d.Has("first") || d.Has("second") {
		t.Error("those that ended have a network")
	}
	if conn, code, err := stays.dial(one); conn == nil {
		t.Errorf("the one that stays: %v, %v", code, err)
	}
	d.create("first", one) // its id is free
}

// stop stops a gateway. The function that it returns has it go on.
func stop(t *testing.T, pid int) (goOn func()) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	goOn = func() { _ = syscall.Kill(pid, syscall.SIGCONT) } // it may have ended
	t.Cleanup(goOn)
	polltest.Eventually(t, 15*time.Second, "the gateway is stopped", func() bool { // the signal's sender does not wait for it
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err == nil && strings.Contains(string(stat), ") T ")
	})
	return goOn
}

// TestAGatewayThatDoesNotAnswer about a registration has the one that it is to have when it goes on: the
// old one after a Put that failed, and the new one after a Renew, also one that never had the turn.
func TestAGatewayThatDoesNotAnswer(t *testing.T) {
	d := newDaemon(t, newConfig(t), nil)
	one, two := echoes(t), echoes(t)
	put, renewed, again := d.create("put", one), d.create("renewed", one), d.create("again", one)
	goOn := stop(t, d.pid())
	briefly := func() context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		t.Cleanup(cancel)
		return ctx
	}
	if err := d.Put(briefly(), registration(t, "put", one, two), nil); err == nil {
		t.Error("a gateway that hangs has put a policy in force")
	}
	if err := d.take(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := d.Renew(briefly(), registration(t, "renewed", two)); err == nil { // it does not even get the turn
		t.Error("a registration was renewed beside another change")
	}
	d.give()
	if err := d.Renew(briefly(), registration(t, "again", two)); err == nil {
		t.Error("a gateway that hangs has renewed a registration")
	}
	goOn()
	if err := d.Renew(t.Context(), registration(t, "nobody", two)); err != nil || d.Has("nobody") {
		t.Errorf("a sandbox that is gone: %v", err)
	}
	reached := func(s *sentry, address string) bool {
		conn, _, err := s.dial(address)
		if err != nil {
			t.Error(err)
		}
		return conn != nil
	}
	polltest.Eventually(t, 15*time.Second, "all are told", func() bool {
		if d.take(t.Context()) != nil {
			return false
		}
		defer d.give()
		for _, s := range d.sandboxes {
			if s.stale {
				return false
			}
		}
		return true
	})
	for what, got := range map[string]bool{
		"what the old policy allows":     reached(put, one),
		"what the new one would allow":   !reached(put, two),
		"what was allowed":               !reached(renewed, one),
		"what the renewed policy allows": reached(renewed, two),
		"what was allowed before":        !reached(again, one),
		"what is allowed since":          reached(again, two),
	} {
		if !got {
			t.Errorf("%s is decided otherwise", what)
		}
	}
}
