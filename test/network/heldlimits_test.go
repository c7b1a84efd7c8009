package network

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	waiting "ramet.dev/ramet/internal/network/held"
	"ramet.dev/ramet/internal/node"
	"ramet.dev/ramet/test/harness"
)

// TestLimitsOfHeldRequests has guests send more than is held, until what waits is too old.
func TestLimitsOfHeldRequests(t *testing.T) {
	n := newNode(t)
	n.Close()
	limits := waiting.Limits{Requests: 3, Bytes: 100, Body: 60, Age: time.Hour, Finished: 2}
	n.Configure = func(c *node.Config) { c.Held = limits }
	n.Open()
	w := newWorld(t)
	// A program is told at once that its request waits.
	req := rules(t, api.NetworkTreatment{Hold: api.HoldWrites, HoldTimeoutMS: 1})
	create(n, "one", req)
	create(n, "two", req)
	post := func(ref string, size, want int) {
		t.Helper()
		if got := request(n, ref, "POST", "/write", strings.Repeat("x", size)); !strings.HasPrefix(got, fmt.Sprint(want, " ")) {
			t.Errorf("%s sends %d bytes, and is answered %q", ref, size, got)
		}
	}
	post("one", 61, 429) // more than of one body
	post("one", 60, 425)
	post("one", 41, 429) // more than of all bodies
	post("one", 40, 425)
	post("one", 0, 425)
	post("one", 0, 429) // more than there may be
	post("two", 60, 425)
	if got := request(n, "one", "GET", "/read", ""); !strings.HasPrefix(got, "200 ") {
		t.Errorf("it reads %q", got)
	}
	check := func(waiting int, bytes int64) {
		t.Helper()
		if u := gatewayUsage(n); u.Waiting != waiting || u.Unknown != 0 || u.HeldBytes != bytes || u.OldestHeld <= 0 || u.OldestHeld > time.Hour {
			t.Errorf("the gateway has %+v", u)
		}
	}
	check(4, 160)
	list, err := n.Machine.HeldRequests(harness.AsOwner, "one")
	if err != nil || len(list) != 3 {
		t.Fatalf("held: %+v, %v", list, err)
	}
	if _, err := n.Machine.ReleaseHeld(harness.AsOwner, "one", api.HeldRelease{ID: list[0].ID}); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Machine.DropHeld(harness.AsOwner, "one", list[1].ID); err != nil {
		t.Fatal(err)
	}
	check(2, 60)
	post("one", 59, 425)

	// The next gateway has no patience. What was too old is kept in its list, and never sent.
	n.Close()
	limits.Age = time.Millisecond
	n.Open()
	awaitHeld(n, "two", "POST /write waiting")
	if err := syscall.Kill(gatewayOf(n), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	awaitHeld(n, "two", "POST /write expired")
	awaitHeld(n, "one", "POST /write expired; POST /write expired") // the oldest that are over are forgotten
	if _, err := n.Machine.ReleaseHeld(harness.AsOwner, "two", api.HeldRelease{}); err != nil {
		t.Fatal(err)
	}
	if got := w.seen(); got != "GET /read ; POST /write "+strings.Repeat("x", 60) {
		t.Errorf("the server has seen %s", got)
	}
	if u := gatewayUsage(n); u.Waiting != 0 || u.HeldBytes != 0 || u.OldestHeld != 0 {
		t.Errorf("the gateway has %+v", u)
	}
}
