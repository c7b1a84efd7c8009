package compare

import (
	"context"
	"os"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/interp"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/node/fsview"
)

// Config is what a Comparer needs of the node.
type Config struct {
	// NewFile makes a file without a name on the disk of sandboxes' files.
	NewFile func() (*os.File, error)
	// View opens the files of the sandbox or snapshot that ref refers to.
	View func(ctx context.Context, ref string) (*fsview.View, error)
	// MergeBase opens the files from which two views went different ways.
	MergeBase func(ctx context.Context, a, b *fsview.View) (*fsview.View, error)
	// Target finds the sandbox that is merged into.
	Target func(ctx context.Context, ref string) (Target, error)
	// Guests asks running sandboxes for what is not in files.
	Guests Guests
	// Turn waits until a heavy operation of the caller may begin. The result is called
	// at its end.
	Turn func(ctx context.Context) (done func(), err error)
	// Observe is told of an operation that begins, and the result of its end.
	Observe func(ctx context.Context, operation string) (context.Context, func(*error))
	// MergePaused is told how long a merge paused its sandbox.
	MergePaused func(milliseconds float64)
}

// Guests asks running sandboxes. A ref that is not of a sandbox is a CodeNotFound error.
type Guests interface {
	// Processes lists the processes of a sandbox.
	Processes(ctx context.Context, ref string, all bool) ([]api.Process, error)
	// Contexts lists the interpreters of a sandbox.
	Contexts(ctx context.Context, ref string) ([]api.Context, error)
	// Variables has the interpreter of a context describe its variables.
	Variables(ctx context.Context, ref, context string) ([]interp.Variable, error)
}

// Target is the sandbox that is merged into.
type Target interface {
	ID() string
	// Hold keeps the sandbox in its sentry until release.
	Hold(ctx context.Context) (release func(), err error)
	// View opens the present files of the sandbox.
	View(ctx context.Context) (*fsview.View, error)
	// Patch has the sandbox carry out what is in file.
	Patch(ctx context.Context, patch *wire.Patch, file *os.File) (*wire.Patched, error)
	// Merged publishes that paths files of the sandbox were changed.
	Merged(from []string, paths int)
}

// Comparer compares and merges. It is safe for concurrent use.
type Comparer struct {
	cfg   Config
	turns turns
}

// New returns a Comparer.
func New(cfg Config) *Comparer { return &Comparer{cfg: cfg} }
