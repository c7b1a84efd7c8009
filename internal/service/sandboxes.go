package service

import (
	"context"

	"ramet.dev/ramet/api"
)

// Sandboxes is the life of sandboxes and their lineage.
type Sandboxes interface {
	Create(ctx context.Context, req api.CreateRequest) (*api.Sandbox, error)
	Get(ctx context.Context, ref string) (*api.Sandbox, error)
	// List returns the sandboxes that match, in any order.
	List(ctx context.Context, filter api.ListFilter) ([]api.Sandbox, error)
	// Update changes a sandbox's name, metadata and lifecycle.
	Update(ctx context.Context, ref string, req api.UpdateRequest) (*api.Sandbox, error)
	// Destroy ends a sandbox. A second call is a not-found error.
	Destroy(ctx context.Context, ref string) error
	Pause(ctx context.Context, ref string) (*api.Sandbox, error)
	Resume(ctx context.Context, ref string) (*api.Sandbox, error)
	// Hibernate writes a running sandbox to disk, and Wake makes it run again.
	Hibernate(ctx context.Context, ref string) (*api.Sandbox, error)
	Wake(ctx context.Context, ref string) (*api.Sandbox, error)
	// Stats returns what a sandbox uses now.
	Stats(ctx context.Context, ref string) (*api.Stats, error)
	// Trace returns what a sandbox's kernel does. It does not wait for one that hangs.
	Trace(ctx context.Context, ref string) (*api.Trace, error)

	// Fork reports a child that failed in the child's entry of the result. The error is for
	// a fork that made no child at all.
	Fork(ctx context.Context, ref string, req api.ForkRequest) (*api.ForkResult, error)
	// Promote gives the child's state to its parent and returns the parent.
	Promote(ctx context.Context, childRef string) (*api.Sandbox, error)
	// Tree returns the lineage below ref, or all lineages if ref is empty.
	Tree(ctx context.Context, ref string) ([]*api.TreeNode, error)
}
