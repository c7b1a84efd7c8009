package node

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/test/harness"
)

// TestSecretVariables are those of the sandbox alone, unless a fork asks for them, and nothing shows
// them.
func TestSecretVariables(t *testing.T) {
	n := harness.NewNode(t)
	const value = "s3cret-value"
	s, err := n.Machine.Create(harness.AsOwner, api.CreateRequest{Image: "box", Name: "base", Env: map[string]string{"PLAIN": "p"}, SecretEnv: map[string]string{"KEY": value}})
	if err != nil {
		t.Fatal(err)
	}
	has := func(ref, want string) {
		t.Helper()
		if got := n.Guest(ref, "env", "KEY", "PLAIN"); strings.Contains(got, value) != (want != "") || !strings.Contains(got, "p") {
			t.Errorf("%s has %q", ref, got)
		}
	}
	has("base", value)
	has(n.Fork("base", 1)[0].ID, "")
	r, err := n.Machine.Fork(harness.AsOwner, "base", api.ForkRequest{SecretEnv: true})
	if err != nil {
		t.Fatal(err)
	}
	with := n.Children(r)[0]
	has(with.ID, value)
	has(n.Fork(with.ID, 1)[0].ID, "")
	snap := n.Snapshot("base", api.SnapshotRequest{})
	restored, err := n.Machine.Restore(harness.AsOwner, snap.ID, api.RestoreRequest{})
	if err != nil {
		t.Fatal(err)
	}
	has(n.Children(restored)[0].ID, "")
	n.Hibernate("base")
	if _, err := n.Machine.Wake(harness.AsOwner, "base"); err != nil {
		t.Fatal(err)
	}
	has("base", value)
	if _, err := n.Machine.Rollback(harness.AsOwner, "base", snap.ID); err != nil {
		t.Fatal(err)
	}
	has("base", value)
	n.Reopen()
	has("base", value)
	if _, err := n.Machine.Promote(harness.AsOwner, with.ID); err != nil {
		t.Fatal(err)
	}
	has("base", value)
	_, err = n.Machine.Create(harness.AsOwner, api.CreateRequest{Image: snap.ID, SecretEnv: map[string]string{"KEY": value}})
	harness.WantCode(t, err, api.CodeInvalid)
	shown, err := json.Marshal([]any{s, n.Get("base"), with, n.Snapshot("base", api.SnapshotRequest{})})
	if err != nil || strings.Contains(string(shown), value) || len(n.Get("base").SecretEnv) != 1 {
		t.Errorf("it is shown: %s, %v", shown, err)
	}
	for _, f := range harness.FilesBelow(t, filepath.Join(n.Paths.DataDir(), "audit")) {
		if b, err := os.ReadFile(f); err == nil && strings.Contains(string(b), value) {
			t.Errorf("it is in %s", f)
		}
	}
}
