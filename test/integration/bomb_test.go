package integration

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
)

// TestForkBombCanBeEnded has a program start others until the limit of processes is met,
// and others again as soon as some end. Commands from outside have tasks of their own, by
// which it is ended, in the sandbox and in its child.
func TestForkBombCanBeEnded(t *testing.T) {
	n := newNode(t)
	if !n.hasGroups() {
		t.Skip("there are no control groups for this user, so limits are refused")
	}
	const most = 200
	if _, err := n.m.Create(asOwner, api.CreateRequest{Image: "box", Name: "box", Limits: api.Limits{Pids: most}}); err != nil {
		t.Fatal(err)
	}
	n.start("box", api.StartRequest{}, "bomb")
	eventually(t, "the limit is met", func() error {
		out, err := n.exec("box", "cat", "/sys/fs/cgroup/pids.current")
		if err != nil {
			return err
		}
		current, err := strconv.Atoi(strings.TrimSpace(out.stdout.String()))
		if err == nil && current < most*3/4 {
			err = fmt.Errorf("%d tasks", current)
		}
		return err
	})
	child := n.fork("box", 1)[0].ID
	for _, ref := range []string{"box", child} {
		for range 20 {
			n.guest(ref, "say", "hello")
		}
		if text := n.guest(ref, "cat", "/etc/hostname"); text == "" {
			t.Errorf("%s: the file is empty", ref)
		}
		// A process that starts while all are killed is not among them, so one time may not do.
		eventually(t, "the bomb has ended in "+ref, func() error {
			if out, err := n.exec(ref, "kill", "9", "-1"); err != nil {
				return fmt.Errorf("kill all: %w %s", err, out.stderr.String())
			}
			return n.noProcesses(ref)
		})
		n.guest(ref, "true")
	}
}
