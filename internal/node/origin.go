package node

import (
	"context"
	"os"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/node/freezes"
)

// All sandboxes begin in the same way, whoever waits for them: a blank sentry is
// prepared, it loads a state (or boots an image), it is detached, and the sandbox is
// installed in it. prepare and detach are in instance.go, and so is install.
//
//	                prepare   load   detach         install
//	fork, restore   each      each   when all are   all at once
//	fork, no wait   each      each   each           each, in the sandbox that is listed
//	rollback, wake  the one   the one, in the sandbox that exists
//	create          the one, which boots

// origin is a freeze that sandboxes are loaded from, with its files open.
type origin struct {
	freeze *freezes.Freeze
	files  []*os.File // the state, the image and the memory files
}

// openOrigin opens the files of f. The caller holds a reference on f until close.
func (m *Node) openOrigin(f *freezes.Freeze, image string) (*origin, error) {
	files, err := m.freezes.OpenFiles(f)
	if err != nil {
		return nil, err
	}
	img, err := m.OpenImage(image)
	if err != nil {
		return nil, err
	}
	return &origin{f, append([]*os.File{f.State, img}, files...)}, nil
}

// close closes the image, the only file that is the origin's own.
func (o *origin) close() { o.files[1].Close() }

// load has a prepared sentry become the sandbox that d describes. load carries what
// differs between the ways to make a sandbox.
func (o *origin) load(ctx context.Context, d *draft, s *launch.Sentry, load wire.Load) (*wire.Loaded, error) {
	load.Common, load.Generations = d.common(), o.freeze.Generations
	var loaded wire.Loaded
	if _, err := s.Call(ctx, &wire.Call{Op: wire.OpLoad, Load: &load}, &loaded, o.files...); err != nil {
		return nil, err
	}
	d.rec.Freeze = o.freeze.ID
	return &loaded, nil
}

// beginTimeout is how long a sandbox may take to begin to run. What is large is read
// when it is used, so this takes milliseconds.
const beginTimeout = time.Minute

// begin makes the call that makes a blank sentry a sandbox.
func begin(ctx context.Context, sentry *launch.Sentry, call *wire.Call, files ...*os.File) error {
	ctx, cancel := beginning(ctx)
	defer cancel()
	_, err := sentry.Call(ctx, call, nil, files...)
	return err
}

// beginning bounds the call that makes a blank sentry a sandbox: a sentry would wait
// for ever for a process of its platform that somebody killed.
func beginning(ctx context.Context) (context.Context, context.CancelFunc) {
	late := api.Errorf(api.CodeTimeout, "the sandbox did not begin to run within %v", beginTimeout)
	return context.WithTimeoutCause(ctx, beginTimeout, late)
}
