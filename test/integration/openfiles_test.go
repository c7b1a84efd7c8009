package integration

import (
	"strings"
	"testing"

	"ramet.dev/ramet/api"
)

// TestOpenFilesLimit opens files in a sandbox with a limit of them, and in what
// was made of it: all processes must meet the limit, and none get over it.
func TestOpenFilesLimit(t *testing.T) {
	n := newNode(t)
	ctx := asOwnerIn(t)
	s, err := n.m.Create(ctx, api.CreateRequest{Image: "box", Name: "box", Limits: api.Limits{OpenFiles: 64}})
	if err != nil {
		t.Fatal(err)
	}
	if s.Limits.OpenFiles != 64 {
		t.Errorf("it has limits %+v", s.Limits)
	}
	n.hook("box", "count", "opens", "755")
	child := n.fork("box", 1)[0]
	if hooks := child.Identity.Hooks; len(hooks) != 1 || hooks[0].Output != "64 EMFILE\n" {
		t.Errorf("hooks of the child: %+v", hooks)
	}
	n.snapshot("box", api.SnapshotRequest{Name: "snap"})
	r, err := n.m.Restore(ctx, "snap", api.RestoreRequest{})
	if err != nil {
		t.Fatal(err)
	}
	restored := n.children(r)[0]
	n.hibernate("box")
	for name, ref := range map[string]string{"woken": "box", "child": child.ID, "child's child": n.fork(child.ID, 1)[0].ID, "restored": restored.ID} {
		t.Run(name, func(t *testing.T) {
			if l := n.get(ref).Limits; l.OpenFiles != 64 {
				t.Errorf("it has limits %+v", l)
			}
			if got := n.guest(ref, "cat", "/proc/1/limits"); !strings.Contains(strings.Join(strings.Fields(got), " "), "Max open files 64 64 files") {
				t.Errorf("its first process has %s", got)
			}
			for _, user := range []string{"root", "worker"} {
				run := func(args ...string) *output {
					out, err := n.run(ref, api.ExecRequest{Argv: append([]string{"guest"}, args...), User: user}, "")
					if err != nil {
						t.Fatalf("%s: %v: %v", user, args, err)
					}
					return out
				}
				if out := run("opens"); out.stdout.String() != "64 EMFILE\n" {
					t.Errorf("%s: %q %q", user, out.stdout.String(), out.stderr.String())
				}
				for _, more := range [][]string{{"raise", "65"}, {"raise", "1048576"}, {"raise", "65", "1"}} {
					if out := run(more...); out.OK || !strings.Contains(out.stderr.String(), "operation not permitted") {
						t.Errorf("%s: %v: exit code %d: %q", user, more, out.ExitCode, out.stderr.String())
					}
				}
				for _, n := range []string{"64", "10"} {
					if out := run("raise", n); !out.OK {
						t.Errorf("%s: set it to %s: %q", user, n, out.stderr.String())
					}
				}
			}
		})
	}
}

// TestOpenFilesWithoutLimit says what a sandbox has that asked for nothing.
func TestOpenFilesWithoutLimit(t *testing.T) {
	n := newNode(t)
	n.create("box")
	if got := n.guest("box", "cat", "/proc/1/limits"); !strings.Contains(strings.Join(strings.Fields(got), " "), "Max open files 65536 1048576 files") {
		t.Errorf("its first process has %s", got)
	}
	n.guest("box", "raise", "2000000") // root may
}
