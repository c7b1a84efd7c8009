package fork

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/test/harness"
)

// TestForkBombCanBeEnded has a program start others until the limit of processes is met,
// and others again as soon as some end. Commands from outside have tasks of their own, by
// which it is ended, in the sandbox and in its child. Each may use half a processor: other
// suites run at the same time.
func TestForkBombCanBeEnded(t *testing.T) {
	n := harness.NewNode(t)
	if !n.HasGroups() {
		t.Skip("there are no control groups for this user, so limits are refused")
	}
	const most = 100 // commands share half a processor with them: each more makes all of these slower
	if _, err := n.Machine.Create(harness.AsOwner, api.CreateRequest{Image: "box", Name: "box", Limits: api.Limits{Pids: most, CPUs: 0.5}}); err != nil {
		t.Fatal(err)
	}
	n.Start("box", api.StartRequest{}, "bomb")
	harness.Eventually(t, "the limit is met", func() error {
		out, err := n.Exec("box", "cat", "/sys/fs/cgroup/pids.current")
		if err != nil {
			return err
		}
		current, err := strconv.Atoi(strings.TrimSpace(out.Stdout.String()))
		if err == nil && current < most*3/4 {
			err = fmt.Errorf("%d tasks", current)
		}
		return err
	})
	child := n.Fork("box", 1)[0].ID
	for _, ref := range []string{"box", child} {
		for range 5 {
			n.Guest(ref, "say", "hello")
		}
		if text := n.Guest(ref, "cat", "/etc/hostname"); text == "" {
			t.Errorf("%s: the file is empty", ref)
		}
		// A process that starts while all are killed is not among them, so one time may not do.
		harness.Eventually(t, "the bomb has ended in "+ref, func() error {
			if out, err := n.Exec(ref, "kill", "9", "-1"); err != nil {
				return fmt.Errorf("kill all: %w %s", err, out.Stderr.String())
			}
			return n.NoProcesses(ref)
		})
		n.Guest(ref, "true")
	}
}
