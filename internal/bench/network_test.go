package bench

import (
	"fmt"
	"net"
	"os/exec"
	"strings"
	"testing"

	"ramet.dev/ramet/internal/bench/outside"
)

// TestNetworkGuest runs the guest program on this machine.
func TestNetworkGuest(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("this machine has no python3")
	}
	server, err := outside.Serve("", "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	run := func(call string) (string, error) {
		out, err := exec.Command("python3", "-c", outside.Guest+call).CombinedOutput()
		return strings.TrimSpace(string(out)), err
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	open := l.Addr().(*net.TCPAddr).Port
	l.Close() // nothing listens there now
	out, err := run(fmt.Sprintf("network('127.0.0.1', %d, %d, 0.02)", server.Port(), open))
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	results, err := netResults(out)
	if err != nil || len(results) != len(netOps) {
		t.Fatalf("%d results of %d, %v: %s", len(results), len(netOps), err, out)
	}
	for _, op := range netOps {
		if v := results[op.name][op.metric]; v <= 0 {
			t.Errorf("%s is %v", op.name, v)
		}
	}
	if out, err := run(fmt.Sprintf("network('127.0.0.1', %d, %d, 0.02)", server.Port(), server.Port())); err == nil || !strings.Contains(out, "was not denied") {
		t.Errorf("a port that is open counts as denied: %v, %s", err, out)
	}
	if out, err := run(fmt.Sprintf("hold('127.0.0.1', %d, %d)", server.Port(), netHeld)); err != nil || out != fmt.Sprint(netHeld) {
		t.Errorf("hold: %v, %s", err, out)
	}
}

// TestScaled: the memory that the gateway has without sandboxes is not multiplied.
func TestScaled(t *testing.T) {
	for _, tc := range []struct {
		before, after int64
		n             int
		want          float64
	}{{1000, 1099, 100, 1499}, {1000, 1499, 500, 1499}, {1000, 1000, 1, 1000}} {
		if got := scaled(tc.before, tc.after, tc.n); got != tc.want {
			t.Errorf("%d and %d with %d are %v, not %v", tc.before, tc.after, tc.n, got, tc.want)
		}
	}
}
