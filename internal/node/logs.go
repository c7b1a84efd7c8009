package node

import (
	"context"
	"errors"
	"sync"

	"golang.org/x/sync/errgroup"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/service"
)

// Logs calls each with what all processes of a sandbox wrote whose output is kept,
// and with where it has read each of them to; to follow means until ctx ends or the
// sandbox is destroyed, with the processes that are started meanwhile. It calls began
// before. Only one call of each is under way at a time.
func (m *Node) Logs(ctx context.Context, ref string, follow bool, began func(), each func(api.LogPiece) error) error {
	since := m.events.Now() // before the processes are listed: none is missed
	b, err := m.resolve(ctx, ref)
	if err != nil {
		return err
	}
	_, done, err := m.use(ctx, b, api.StateRunning, api.StatePaused)
	if err != nil {
		return err
	}
	ps, err := m.Processes(ctx, b.id, true)
	done()
	if err != nil {
		return err
	}
	began()
	l := &logs{m: m, b: b, follow: follow, each: each}
	if !follow {
		for _, p := range ps {
			if p.Kept != nil {
				if err := l.read(ctx, p.PID); err != nil {
					return err
				}
			}
		}
		return nil
	}
	g, ctx := errgroup.WithContext(ctx)
	seen := map[int]bool{}
	show := func(pid int) {
		if !seen[pid] {
			seen[pid] = true
			g.Go(func() error { return l.read(ctx, pid) })
		}
	}
	for _, p := range ps {
		if p.Kept != nil {
			show(p.PID)
		}
	}
	g.Go(func() error {
		req := api.EventRequest{Sandbox: b.id, Follow: true, Since: since, Kinds: []api.EventKind{api.EventStarted, api.EventDestroyed}}
		err := m.Events(ctx, req, func() {}, func(e api.Event) error {
			if e.Kind == api.EventStarted {
				show(e.PID)
			}
			return nil
		})
		if err == nil || api.CodeOf(err) == api.CodeNotFound {
			return errRemoved
		}
		return err
	})
	if err := g.Wait(); !errors.Is(err, errRemoved) {
		return err
	}
	return nil
}

// errRemoved ends what follows a sandbox that was destroyed.
var errRemoved = errors.New("the sandbox was removed")

// logs is the output of several processes.
type logs struct {
	m      *Node
	b      *instance
	follow bool
	mu     sync.Mutex // one piece after another
	each   func(api.LogPiece) error
}

// read tells what one process wrote. One that is forgotten meanwhile has nothing
// more to tell.
func (l *logs) read(ctx context.Context, pid int) error {
	tell := func(p api.LogPiece) error {
		l.mu.Lock()
		defer l.mu.Unlock()
		p.PID = pid
		return l.each(p)
	}
	pos, err := l.m.Attach(ctx, l.b.id, pid, api.AttachRequest{Follow: l.follow}, service.AttachIO{
		Output: func(c api.Chunk) error { return tell(api.LogPiece{Chunk: c}) },
	})
	if err == nil {
		return tell(api.LogPiece{Read: pos})
	}
	if api.CodeOf(err) == api.CodeNotFound || l.follow && l.m.gone(l.b) {
		return nil
	}
	return err
}
