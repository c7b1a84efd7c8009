package cli

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"ramet.dev/ramet/internal/sandbox"
)

func TestInWords(t *testing.T) {
	cmd := &cobra.Command{Use: "x"}
	for _, option := range []string{"memory", "timeout", "since", "self-control", "cwd", "meta", "pids", "ttl"} {
		cmd.Flags().String(option, "", "")
	}
	for _, c := range []struct {
		err  error
		want string
	}{
		{errors.New("plain"), "plain"},
		{sandbox.NotFound("image", "x"), `no image "x"`},
		{sandbox.Invalid("limits.memory_mib", "1 is too little"), "--memory: 1 is too little"},
		{sandbox.Invalid("limits.pids", "body.limits.pids: expected number >= 0"), "--pids: expected number >= 0"},
		{sandbox.Invalid("limits.pids", "body.limits.pids: expected number; body.limits.memory_mib: expected number"), "--pids: expected number; --memory: expected number"},
		{sandbox.Invalid("timeout_ms", "-1 is negative"), "--timeout: -1 is negative"},
		{sandbox.Invalid("ttl_s", "an end is needed"), "--ttl: an end is needed"},
		{sandbox.Invalid("from", "query.from: expected number >= -1"), "--since: expected number >= -1"},
		{sandbox.Invalid("self_control.forks", "0 is not from 1"), "--self-control forks: 0 is not from 1"},
		{sandbox.AsError(fmt.Errorf("exec: %w", sandbox.Invalid("cwd", `"/x" is no directory`))), `--cwd: "/x" is no directory`},
		{sandbox.Invalid("metadata", "%q is not a key", "k"), `--meta: "k" is not a key`},
		{sandbox.AsError(fmt.Errorf("update sandbox: %w", sandbox.Invalid("name", "%q is not a name: 1 to 63", "-"))), `name: "-" is not a name: 1 to 63`},
		{sandbox.Invalid("id", "%q is not a name", "."), `id: "." is not a name`},
		{sandbox.Invalid("keep_kib", "8 is too much"), "keep: 8 is too much"},
		{fmt.Errorf("listen: %w", sandbox.Invalid("cwd", "no")), "listen: --cwd: no"},
		{errors.Join(sandbox.Invalid("cwd", "no"), errors.New("more")), "cwd: no\nmore"},
	} {
		if got := inWords(cmd, c.err); got != c.want {
			t.Errorf("%v: %q, want %q", c.err, got, c.want)
		}
	}
	if got := inWords(nil, sandbox.Invalid("limits.cpus", "no")); got != "cpus: no" {
		t.Errorf("without a command: %q", got)
	}
}

func TestLimitsAreThoseThatThereAre(t *testing.T) {
	for _, c := range []struct {
		limits sandbox.Limits
		want   string
	}{
		{sandbox.Limits{}, ""},
		{sandbox.Limits{CPUs: 0.5, Pids: 20}, "0.5 cpus, 20 pids"},
		{sandbox.Limits{CPUs: 2, MemoryMiB: 512, DiskMiB: 1024, Pids: 100, OpenFiles: 64}, "2 cpus, 512 MiB memory, 1024 MiB disk, 100 pids, 64 open files"},
	} {
		if got := limitsOf(c.limits); got != c.want {
			t.Errorf("%+v: %q, want %q", c.limits, got, c.want)
		}
	}
}

func TestLongCommandsAreCut(t *testing.T) {
	ps := []sandbox.Process{{PID: 1, Command: strings.Repeat("é", maxCommand)}, {PID: 2, Command: strings.Repeat("x", maxCommand) + "end"}}
	var cut, whole strings.Builder
	if err := errors.Join(processTable(ps, time.Now(), false)(&cut), processTable(ps, time.Now(), true)(&whole)); err != nil {
		t.Fatal(err)
	}
	if s := cut.String(); !strings.Contains(s, ps[0].Command) || strings.Contains(s, "end") || !strings.Contains(s, strings.Repeat("x", maxCommand-1)+"…\n") {
		t.Errorf("cut:\n%s", s)
	}
	if s := whole.String(); !strings.Contains(s, ps[1].Command) {
		t.Errorf("whole:\n%s", s)
	}
}
