package process

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/test/harness"
)

// TestSecretVariablesOfWhatRuns forks processes and contexts that have a secret variable in their
// memory: they keep it, and what begins in the child does not have it.
func TestSecretVariablesOfWhatRuns(t *testing.T) {
	ctx := harness.AsOwner
	x := newContextTestOf(t, "/bin/bash")
	const value = "s3cret-of-contexts"
	if _, err := x.Machine.Create(ctx, api.CreateRequest{Image: "databases", Name: "base", SecretEnv: map[string]string{"KEY": value}}); err != nil {
		t.Fatal(err)
	}
	// No file of a snapshot has it unless a process does.
	x.Snapshot("base", api.SnapshotRequest{})
	files := 0
	for _, f := range harness.FilesBelow(t, x.Paths.Snapshots()) {
		if b, err := os.ReadFile(f); err == nil { // else it is a directory
			if files++; strings.Contains(string(b), value) {
				t.Errorf("it is in %s", f)
			}
		}
	}
	if files == 0 {
		t.Error("a snapshot has no files")
	}
	said := func(ref, context string) string {
		t.Helper()
		r, err := x.try(ref, api.RunCodeRequest{Context: context, Language: "bash", Code: "echo \"$KEY\""})
		if err != nil || r.Error != nil {
			t.Fatalf("%s: %v, %+v", ref, err, r)
		}
		return strings.TrimSpace(r.stdout.String())
	}
	if got := said("base", ""); got != value {
		t.Errorf("the context has %q", got)
	}
	p, err := x.Machine.StartProcess(ctx, "base", api.StartRequest{Argv: []string{"sleep", "1000"}})
	if err != nil {
		t.Fatal(err)
	}
	x.ForkNamed("base", "child")
	environ := func(ref string) string {
		t.Helper()
		out, err := x.Run(ref, api.ExecRequest{Argv: []string{"cat", fmt.Sprintf("/proc/%d/environ", p.PID)}}, "")
		if err != nil || out.ExitCode != 0 {
			t.Fatalf("%v: %s", err, out.Stderr.String())
		}
		return out.Stdout.String()
	}
	if !strings.Contains(environ("child"), "KEY="+value) {
		t.Error("a process does not have what it was started with")
	}
	if got := said("child", ""); got != value {
		t.Errorf("a context that was forked has %q", got)
	}
	if _, err := x.Machine.CreateContext(ctx, "child", api.ContextRequest{Language: "bash", Name: "new"}); err != nil {
		t.Fatal(err)
	}
	list, err := x.Machine.Contexts(ctx, "child")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range list {
		if _, err := x.Machine.RestartContext(ctx, "child", c.Name); err != nil {
			t.Fatal(err)
		}
		if got := said("child", c.Name); got != "" {
			t.Errorf("context %s, which begins in the child, has %q", c.Name, got)
		}
	}
	if got := said("child", "new"); got != "" || len(list) != 2 {
		t.Errorf("of %d contexts a new one has %q", len(list), got)
	}
}
