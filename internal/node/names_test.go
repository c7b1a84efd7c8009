package node

import (
	"context"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/service/access"
)

// What is asked on behalf of nobody is refused: a part of the daemon that forgot to
// say for whom it does something is not taken for its owner.
func TestNobodyIsRefused(t *testing.T) {
	m, b := nodeOf(t, nil)
	ctx := context.Background()
	for what, ask := range map[string]func() error{
		"get":      func() error { _, err := m.Get(ctx, b.ID); return err },
		"destroy":  func() error { return m.Destroy(ctx, b.ID) },
		"snapshot": func() error { _, err := m.snapshots.Find(ctx, api.NewID(api.KindSnapshot)); return err },
		"create":   func() error { _, err := m.Create(ctx, api.CreateRequest{Image: "box"}); return err },
		"images":   func() error { _, err := m.Images(ctx); return err },
		"rm image": func() error { return m.RemoveImage(ctx, "box") },
	} {
		if err := ask(); api.CodeOf(err) != api.CodeUnknownUser {
			t.Errorf("%s: %v", what, err)
		}
	}
	if list := m.sandboxes.Visible(ctx); len(list) != 0 {
		t.Errorf("nobody sees %d sandboxes", len(list))
	}
	if list := m.sandboxes.Visible(access.With(ctx, access.Owner(0))); len(list) != 1 {
		t.Errorf("the owner sees %d sandboxes", len(list))
	}
}
