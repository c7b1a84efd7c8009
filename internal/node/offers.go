package node

import (
	"context"
	"io"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/service"
)

// offers is what the node offers to servers. Each interface has those methods of a part of the
// node that serve users: the other methods of the part are for other parts, and are no methods
// of the node.
type offers struct {
	creates
	inspects
	updates
	rests
	forks
	swaps
	draws
	takes
	keeps
	travels
	imports
	admits
	runs
	connects
	guards
	holds
	shares
	compares
	steps
	explores
	publishes
	listens
}

// The interfaces are areas of package service, or parts of them, by what implements them.
type (
	creates interface {
		Create(ctx context.Context, req api.CreateRequest) (*api.Sandbox, error)
	}
	inspects interface {
		Get(ctx context.Context, ref string) (*api.Sandbox, error)
		List(ctx context.Context, filter api.ListFilter) ([]api.Sandbox, error)
		Stats(ctx context.Context, ref string) (*api.Stats, error)
		Trace(ctx context.Context, ref string) (*api.Trace, error)
	}
	updates interface {
		Update(ctx context.Context, ref string, req api.UpdateRequest) (*api.Sandbox, error)
	}
	rests interface {
		Pause(ctx context.Context, ref string) (*api.Sandbox, error)
		Resume(ctx context.Context, ref string) (*api.Sandbox, error)
		Hibernate(ctx context.Context, ref string) (*api.Sandbox, error)
		Wake(ctx context.Context, ref string) (*api.Sandbox, error)
	}
	forks interface {
		Fork(ctx context.Context, ref string, req api.ForkRequest) (*api.ForkResult, error)
		Restore(ctx context.Context, snapRef string, req api.RestoreRequest) (*api.ForkResult, error)
	}
	swaps interface {
		Promote(ctx context.Context, childRef string) (*api.Sandbox, error)
		Rollback(ctx context.Context, ref, snapRef string) (*api.Sandbox, error)
	}
	draws interface {
		Tree(ctx context.Context, ref string) ([]*api.TreeNode, error)
		LineageID(ctx context.Context, ref string) (string, error)
		SandboxID(ctx context.Context, ref string) (string, error)
	}
	takes interface {
		Snapshot(ctx context.Context, ref string, req api.SnapshotRequest) (*api.Snapshot, error)
	}
	keeps interface {
		Snapshots(ctx context.Context) ([]api.Snapshot, error)
		GetSnapshot(ctx context.Context, ref string) (*api.Snapshot, error)
		DeleteSnapshot(ctx context.Context, ref string, how api.SnapshotDeletion) error
		VerifySnapshot(ctx context.Context, ref string) (*api.Snapshot, error)
	}
	travels interface {
		Pack(ctx context.Context, ref string, req api.PackRequest, w io.Writer) error
		PackContents(ctx context.Context, ref string) (*api.PackContents, error)
		Unpack(ctx context.Context, r io.Reader, req api.UnpackRequest) (*api.Snapshot, error)
		Push(ctx context.Context, ref string, req api.PushRequest, progress func(api.Progress)) (*api.PushResult, error)
		Pull(ctx context.Context, req api.PullRequest, progress func(api.Progress)) (*api.Snapshot, error)
		SigningKey(ctx context.Context) (*api.SigningKey, error)
	}
	imports interface {
		service.Images
		GiveImage(ctx context.Context, tenant string, req api.GiveRequest) (*api.Image, error)
	}
	admits interface {
		Tenants(ctx context.Context) ([]api.Tenant, error)
		GetTenant(ctx context.Context, name string) (*api.Tenant, error)
		UpdateTenant(ctx context.Context, name string, req api.TenantUpdate) (*api.Tenant, error)
	}
	runs interface {
		service.Processes
		service.Contexts
		service.Files
		service.Ports
	}
	connects  interface{ service.Networks }
	guards    interface{ service.Secrets }
	holds     interface{ service.Held }
	shares    interface{ service.Volumes }
	compares  interface{ service.Compare }
	steps     interface{ service.Timeline }
	explores  interface{ service.Explorations }
	publishes interface{ service.Events }
	listens   interface{ service.PublishedPorts }
)
