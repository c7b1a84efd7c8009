package dataplane

import (
	"context"
	"errors"
	"sync"

	"golang.org/x/sync/errgroup"

	"ramet.dev/ramet/api"
)

// logs reads the output of all kept processes of a sandbox.
type logs struct {
	sandboxes Sandboxes
	processes processes
	events    EventLog
}

// Logs calls each with what all processes of a sandbox wrote whose output is kept,
// and with where it has read each of them to; to follow means until ctx ends or the
// sandbox is destroyed, with the processes that are started meanwhile. It calls began
// before. Only one call of each is under way at a time.
func (p logs) Logs(ctx context.Context, ref string, follow bool, began func(), each func(api.LogPiece) error) error {
	since := p.events.Now() // before the processes are listed: none is missed
	b, err := p.sandboxes.Find(ctx, ref)
	if err != nil {
		return err
	}
	_, release, err := b.Acquire(ctx, api.StateRunning, api.StatePaused)
	if err != nil {
		return err
	}
	list, err := p.processes.Processes(ctx, b.ID(), true)
	release()
	if err != nil {
		return err
	}
	began()
	l := &logReader{processes: p.processes, b: b, follow: follow, each: each}
	if !follow {
		for _, x := range list {
			if x.Kept != nil {
				if err := l.read(ctx, x.PID); err != nil {
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
	for _, x := range list {
		if x.Kept != nil {
			show(x.PID)
		}
	}
	g.Go(func() error {
		req := api.EventRequest{Sandbox: b.ID(), Follow: true, Since: since, Kinds: []api.EventKind{api.EventStarted, api.EventDestroyed}}
		err := p.events.Events(ctx, req, func() {}, func(e api.Event) error {
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

// errRemoved ends the reading of the logs of a sandbox that was destroyed.
var errRemoved = errors.New("the sandbox was removed")

// logReader reads the output of several processes at the same time.
type logReader struct {
	processes processes
	b         Sandbox
	follow    bool
	mu        sync.Mutex // held while each is called
	each      func(api.LogPiece) error
}

// read passes on the output of one process. The output of a process that is removed
// meanwhile just ends.
func (l *logReader) read(ctx context.Context, pid int) error {
	pass := func(p api.LogPiece) error {
		l.mu.Lock()
		defer l.mu.Unlock()
		p.PID = pid
		return l.each(p)
	}
	pos, err := l.processes.Attach(ctx, l.b.ID(), pid, api.AttachRequest{Follow: l.follow}, api.AttachIO{
		Output: func(c api.Chunk) error { return pass(api.LogPiece{Chunk: c}) },
	})
	if err == nil {
		return pass(api.LogPiece{Read: pos})
	}
	if api.CodeOf(err) == api.CodeNotFound || l.follow && l.b.Gone() {
		return nil
	}
	return err
}
