package process

import (
	"strings"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/test/harness"
)

// TestOpenFilesLimit opens files in a sandbox with a limit of them, and in what
// was made of it: all processes must meet the limit, and none get over it.
func TestOpenFilesLimit(t *testing.T) {
	n := harness.NewNode(t)
	ctx := harness.AsOwnerIn(t)
	s, err := n.Machine.Create(ctx, api.CreateRequest{Image: "box", Name: "box", Limits: api.Limits{OpenFiles: 64}})
	if err != nil {
		t.Fatal(err)
	}
	if s.Limits.OpenFiles != 64 {
		t.Errorf("it has limits %+v", s.Limits)
	}
	n.Hook("box", "count", "opens", "755")
	child := n.Fork("box", 1)[0]
	if hooks := child.Identity.Hooks; len(hooks) != 1 || hooks[0].Output != "64 EMFILE\n" {
		t.Errorf("hooks of the child: %+v", hooks)
	}
	n.Snapshot("box", api.SnapshotRequest{Name: "snap"})
	r, err := n.Machine.Restore(ctx, "snap", api.RestoreRequest{})
	if err != nil {
		t.Fatal(err)
	}
	restored := n.Children(r)[0]
	n.Hibernate("box")
	for name, ref := range map[string]string{"woken": "box", "child": child.ID, "child's child": n.Fork(child.ID, 1)[0].ID, "restored": restored.ID} {
		t.Run(name, func(t *testing.T) {
			if l := n.Get(ref).Limits; l.OpenFiles != 64 {
				t.Errorf("it has limits %+v", l)
			}
			if got := n.Guest(ref, "cat", "/proc/1/limits"); !strings.Contains(strings.Join(strings.Fields(got), " "), "Max open files 64 64 files") {
				t.Errorf("its first process has %s", got)
			}
			for _, user := range []string{"root", "worker"} {
				run := func(args ...string) *harness.Output {
					out, err := n.Run(ref, api.ExecRequest{Argv: append([]string{"guest"}, args...), User: user}, "")
					if err != nil {
						t.Fatalf("%s: %v: %v", user, args, err)
					}
					return out
				}
				if out := run("opens"); out.Stdout.String() != "64 EMFILE\n" {
					t.Errorf("%s: %q %q", user, out.Stdout.String(), out.Stderr.String())
				}
				for _, more := range [][]string{{"raise", "65"}, {"raise", "1048576"}, {"raise", "65", "1"}} {
					if out := run(more...); out.OK || !strings.Contains(out.Stderr.String(), "operation not permitted") {
						t.Errorf("%s: %v: exit code %d: %q", user, more, out.ExitCode, out.Stderr.String())
					}
				}
				for _, n := range []string{"64", "10"} {
					if out := run("raise", n); !out.OK {
						t.Errorf("%s: set it to %s: %q", user, n, out.Stderr.String())
					}
				}
			}
		})
	}
}

// TestOpenFilesWithoutLimit says what a sandbox has that asked for nothing.
func TestOpenFilesWithoutLimit(t *testing.T) {
	n := harness.NewNode(t)
	n.Create("box")
	if got := n.Guest("box", "cat", "/proc/1/limits"); !strings.Contains(strings.Join(strings.Fields(got), " "), "Max open files 65536 1048576 files") {
		t.Errorf("its first process has %s", got)
	}
	n.Guest("box", "raise", "2000000") // root may
}
