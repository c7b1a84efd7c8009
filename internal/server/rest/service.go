package rest

import (
	"context"
	"io"

	"ramet.dev/ramet/api"
)

// Service is what the REST interface offers. All methods may be called
// concurrently and block until the work is done or ctx is cancelled, which
// happens when the client goes away. Errors carry a *api.Error where the
// user can do something about them. A ref is an id or a name, and has the form
// of one.
type Service interface {
	Create(ctx context.Context, req api.CreateRequest) (*api.Sandbox, error)
	Get(ctx context.Context, ref string) (*api.Sandbox, error)
	// List returns the sandboxes that match, in any order.
	List(ctx context.Context, filter api.ListFilter) ([]api.Sandbox, error)
	// Update changes a sandbox's name, metadata and lifecycle.
	Update(ctx context.Context, ref string, req api.UpdateRequest) (*api.Sandbox, error)
	// Destroy ends a sandbox; a second call is a not-found error.
	Destroy(ctx context.Context, ref string) error
	Pause(ctx context.Context, ref string) (*api.Sandbox, error)
	Resume(ctx context.Context, ref string) (*api.Sandbox, error)
	// Hibernate puts a sandbox on disk, and Wake lets it run again.
	Hibernate(ctx context.Context, ref string) (*api.Sandbox, error)
	Wake(ctx context.Context, ref string) (*api.Sandbox, error)

	// Exec runs a command to its end and copies its streams meanwhile. The
	// result has empty Stdout and Stderr. req.Stdin is empty: its text comes
	// from streams.Stdin. When ctx is cancelled, the command is killed. Exec
	// must not write to the streams after it returned, nor wait for a read of
	// streams.Stdin: that one ends when Exec has returned.
	Exec(ctx context.Context, ref string, req api.ExecRequest, streams ExecIO) (*api.ExecResult, error)
	ProcessService
	FileService
	PortService
	ContextService
	EventService
	TokenService
	AnswerService
	AuditService
	TenantService

	Stats(ctx context.Context, ref string) (*api.Stats, error)

	// Fork reports a child that failed in its entry; the error is for a fork
	// that made no child at all.
	Fork(ctx context.Context, ref string, req api.ForkRequest) (*api.ForkResult, error)
	// Promote gives the child's state to its parent and returns the parent.
	Promote(ctx context.Context, childRef string) (*api.Sandbox, error)
	Diff(ctx context.Context, from, to string, req api.DiffRequest) (*api.Diff, error)
	// Merge brings what the files of others changed since they parted to the
	// sandbox into. Conflicts are a result, not an error.
	Merge(ctx context.Context, into string, req api.MergeRequest) (*api.MergeResult, error)
	// Export writes the files of a sandbox or snapshot as they are at one moment.
	// What fails before the first write is told as for other methods.
	Export(ctx context.Context, ref string, req api.ExportRequest, w io.Writer) error
	// Commit makes an image of a sandbox's or snapshot's files. Of progress the same
	// is true as for CreateImage.
	Commit(ctx context.Context, ref string, req api.CommitRequest, progress func(api.Progress)) (*api.Image, error)
	// Tree returns the lineage below ref, or everything if ref is empty.
	Tree(ctx context.Context, ref string) ([]*api.TreeNode, error)

	Snapshot(ctx context.Context, ref string, req api.SnapshotRequest) (*api.Snapshot, error)
	Snapshots(ctx context.Context) ([]api.Snapshot, error)
	GetSnapshot(ctx context.Context, ref string) (*api.Snapshot, error)
	DeleteSnapshot(ctx context.Context, ref string, how api.SnapshotDeletion) error
	// VerifySnapshot compares all of a snapshot on disk with its digests.
	VerifySnapshot(ctx context.Context, ref string) (*api.Snapshot, error)
	Restore(ctx context.Context, snapRef string, req api.RestoreRequest) (*api.ForkResult, error)
	// Rollback returns a sandbox to a snapshot of it; it keeps its id.
	Rollback(ctx context.Context, ref, snapRef string) (*api.Sandbox, error)
	// Rewind returns a sandbox to a step of its timeline.
	Rewind(ctx context.Context, ref string, step int) (*api.Sandbox, error)
	// Timeline returns the steps of a sandbox, the first one first.
	Timeline(ctx context.Context, ref string) ([]api.Step, error)
	// Bisect finds the first step at which a command fails. That it fails at none is
	// a result, not an error.
	Bisect(ctx context.Context, ref string, req api.BisectRequest) (*api.BisectResult, error)

	Images(ctx context.Context) ([]api.Image, error)
	GetImage(ctx context.Context, ref string) (*api.Image, error)
	RemoveImage(ctx context.Context, ref string) error
	// PruneImages removes images without a name that nothing is made of, and what else
	// is asked for.
	PruneImages(ctx context.Context, req api.PruneRequest) (*api.Pruned, error)
	// CreateImage calls progress from one goroutine at a time and not after it
	// returned.
	CreateImage(ctx context.Context, req api.ImageRequest, progress func(api.Progress)) (*api.Image, error)
}

// ExecIO are the streams of a command.
type ExecIO struct {
	// Stdin is nil for a command without standard input.
	Stdin io.Reader
	// Stdout and Stderr are never nil. A write blocks while the client does not
	// read, and fails when it is gone.
	Stdout, Stderr io.Writer
}
