package harness

import (
	"context"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/image"
	who "ramet.dev/ramet/internal/service/access"
)

// AsTenant returns the context of a caller that may do everything within a tenant.
func AsTenant(tenant string) context.Context {
	return who.With(AsOwner, who.Caller{Tenant: tenant, Scope: api.ScopeAdmin})
}

// GiveImage lets a tenant use the image "box".
func (n *Node) GiveImage(tenant string) {
	n.T.Helper()
	n.GiveImageAs(tenant, "box")
}

// GiveImageAs lets a tenant use the image "box" under a name.
func (n *Node) GiveImageAs(tenant, name string) {
	n.T.Helper()
	store, err := image.Open(n.Paths.Images())
	if err != nil {
		n.T.Fatal(err)
	}
	img, err := store.Resolve("box")
	if err != nil {
		n.T.Fatal(err)
	}
	if _, err := store.Give(img.ID, tenant, name, false); err != nil {
		n.T.Fatal(err)
	}
}

// CreateAs makes a sandbox of a tenant.
func (n *Node) CreateAs(ctx context.Context, name string) *api.Sandbox {
	n.T.Helper()
	s, err := n.Machine.Create(ctx, api.CreateRequest{Image: "box", Name: name})
	if err != nil {
		n.T.Fatal(err)
	}
	return s
}
