package node

import (
	"context"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
	callers "ramet.dev/ramet/internal/service/access"
	"ramet.dev/ramet/test/harness"
)

// TestVolumes shares a volume between sandboxes and what is made of them, over daemons that come
// and go, and refuses what others would lose by.
func TestVolumes(t *testing.T) {
	ctx := harness.AsOwner
	n := harness.NewNode(t)
	m := n.Machine
	if _, err := m.CreateVolume(ctx, api.VolumeRequest{Name: "data", LimitMiB: 8}); err != nil {
		t.Fatal(err)
	}
	const image = "box"
	create := func(ctx context.Context, name string, mounts ...api.VolumeMount) error {
		_, err := n.Machine.Create(ctx, api.CreateRequest{Image: image, Name: name, Volumes: mounts})
		return err
	}
	at := func(path string, readOnly bool) api.VolumeMount {
		return api.VolumeMount{Volume: "data", Path: path, ReadOnly: readOnly}
	}
	for name, mount := range map[string]api.VolumeMount{"one": at("/mnt/a/data", false), "reader": at("/data", true)} {
		if err := create(ctx, name, mount); err != nil {
			t.Fatal(err)
		}
	}
	write := func(ref, path, text string) error {
		_, err := n.Machine.WriteFile(ctx, ref, api.WriteRequest{FileRef: harness.At(path)}, strings.NewReader(text))
		return err
	}
	if err := write("one", "/mnt/a/data/f", "first"); err != nil {
		t.Fatal(err)
	}
	n.MustRead("reader", "/data/f", "first")
	if err := write("reader", "/data/f", "x"); err == nil {
		t.Error("a volume that is to be read only was written to")
	}
	if err := write("one", "/mnt/a/data/big", strings.Repeat("x", 9<<20)); api.CodeOf(err) != api.CodeNoSpace {
		t.Errorf("more than the limit: %v", err)
	}

	// A child, and a sandbox of a snapshot, have it at the same place.
	n.ForkNamed("one", "child")
	if err := write("child", "/mnt/a/data/f", "second"); err != nil {
		t.Fatal(err)
	}
	snap := n.Snapshot("one", api.SnapshotRequest{Name: "s"})
	if _, err := m.Restore(ctx, snap.ID, api.RestoreRequest{Names: []string{"again"}, Volumes: []api.VolumeMount{at("/more", false)}}); err != nil {
		t.Fatal(err)
	}
	n.MustRead("again", "/more/f", "second")
	n.MustRead("again", "/mnt/a/data/f", "second")
	if err := write("again", "/more/f", "third"); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Rollback(ctx, "one", snap.ID); err != nil {
		t.Fatal(err)
	}
	n.MustRead("one", "/mnt/a/data/f", "third") // it is no part of the state
	n.Hibernate("child")

	n.Reopen()
	m = n.Machine
	n.MustRead("reader", "/data/f", "third")
	n.MustRead("child", "/mnt/a/data/f", "third") // it wakes
	if got, err := m.GetVolume(ctx, "data"); err != nil || len(got.Sandboxes) != 4 || got.LimitMiB != 8 {
		t.Errorf("the volume is %+v, %v", got, err)
	}

	other := callers.With(ctx, callers.Caller{Tenant: "other", Scope: api.ScopeAdmin})
	for what, c := range map[string]struct {
		err  error
		code api.Code
	}{
		"a name that is taken":       {last(m.CreateVolume(ctx, api.VolumeRequest{Name: "data"})), api.CodeNameTaken},
		"another tenant's look":      {last(m.GetVolume(other, "data")), api.CodeNotFound},
		"another tenant's sandbox":   {create(other, "theirs", at("/v", false)), api.CodeNotFound},
		"one that is missing":        {create(ctx, "two", api.VolumeMount{Volume: "none", Path: "/v"}), api.CodeNotFound},
		"a path that is not clean":   {create(ctx, "two", at("/v/../w", false)), api.CodeInvalid},
		"the kernel's directory":     {create(ctx, "two", at("/proc/v", false)), api.CodeInvalid},
		"two at one place":           {create(ctx, "two", at("/v", false), at("/v", true)), api.CodeInvalid},
		"a file in the way":          {create(ctx, "two", at("/etc/hostname", false)), api.CodeInvalid},
		"a file on the way":          {create(ctx, "two", at("/etc/hostname/v", false)), api.CodeInvalid},
		"removing one that is used":  {m.RemoveVolume(ctx, "data"), api.CodeConflict},
		"a path that leads outside":  {last(m.VolumeStat(ctx, "data", "/../../etc/passwd")), api.CodeNotFound},
		"making one with a bad name": {last(m.CreateVolume(ctx, api.VolumeRequest{Name: "A/b"})), api.CodeInvalid},
	} {
		if api.CodeOf(c.err) != c.code {
			t.Errorf("%s: %v, not %s", what, c.err, c.code)
		}
	}
	n.Destroy("one", "reader", "child", "again")
	if err := m.RemoveVolume(ctx, "data"); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Restore(ctx, snap.ID, api.RestoreRequest{}); api.CodeOf(err) != api.CodeNotFound {
		t.Errorf("a snapshot whose volume is gone: %v", err)
	}
}

// last returns the error of a call.
func last[T any](_ T, err error) error { return err }
