package envd

import (
	"context"
	"crypto/rand"
	"sync"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/service/access"
)

type (
	watchRequest struct {
		Path         string `json:"path"`
		Recursive    bool   `json:"recursive"`
		IncludeEntry bool   `json:"includeEntry"`
		// NetworkMounts is of no meaning: no file of a sandbox lies on another machine.
		NetworkMounts bool `json:"allowNetworkMounts"`
	}
	fileEvent struct {
		Name  string     `json:"name"`
		Type  string     `json:"type"`
		Entry *entryInfo `json:"entry,omitempty"`
	}
	watchStream struct {
		Start      *struct{}  `json:"start,omitempty"`
		Filesystem *fileEvent `json:"filesystem,omitempty"`
		Keepalive  *struct{}  `json:"keepalive,omitempty"`
	}
	watcherRef struct {
		ID string `json:"watcherId"`
	}
	watcherEvents struct {
		Events []fileEvent `json:"events,omitempty"`
	}
)

// Bounds of watchers that clients make and ask.
const (
	maxWatchers   = 1000
	maxWatchersOf = 64
	maxEvents     = 10_000 // of a watcher that nobody asks; the oldest are dropped
	watcherIdle   = 10 * time.Minute
)

var eventTypes = map[string]string{
	"created": "EVENT_TYPE_CREATE", "modified": "EVENT_TYPE_WRITE", "deleted": "EVENT_TYPE_REMOVE", "attributes": "EVENT_TYPE_CHMOD",
	"moved": "EVENT_TYPE_RENAME",
}

// events calls f with the changes below a directory until ctx ends. It calls began when changes from then
// on are told.
func (fs *filesystem) events(ctx context.Context, s *Sandbox, dir string, in *watchRequest, began func() error, f func(fileEvent) error) error {
	return fs.svc.WatchFiles(ctx, s.ID, api.WatchRequest{FileRef: s.ref(dir), Recursive: in.Recursive, Every: true}, func(e api.FileEvents) error {
		if e.Ready {
			if err := began(); err != nil {
				return err
			}
		}
		for _, c := range e.Changes {
			one := fileEvent{Name: relative(dir, c.Path), Type: eventTypes[c.Kind]}
			if in.IncludeEntry && c.Kind != "deleted" && c.Kind != "moved" {
				one.Entry, _ = fs.look(ctx, s, c.Path) // it may be gone already
			}
			if err := f(one); err != nil {
				return err
			}
		}
		return nil
	})
}

// watch tells a client of changes as long as it listens.
func (fs *filesystem) watch(ctx context.Context, s *Sandbox, in *watchRequest, to *sender[watchStream]) error {
	dir, err := fs.directory(ctx, s, in.Path)
	if err != nil {
		return err
	}
	stop := to.keepAlive(ctx, s.ping, &watchStream{Keepalive: &struct{}{}})
	defer stop()
	return fs.events(ctx, s, dir, in, func() error { return to.send(&watchStream{Start: &struct{}{}}) }, func(e fileEvent) error {
		return to.send(&watchStream{Filesystem: &e})
	})
}

// watcher collects changes for a client that asks for them.
type watcher struct {
	sandbox string
	cancel  context.CancelFunc
	idle    *time.Timer

	mu     sync.Mutex
	events []fileEvent
	err    error // that ended it
}

// watchers are those of all sandboxes. Their goroutines end with close.
type watchers struct {
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu  sync.Mutex
	all map[string]*watcher
}

func newWatchers() *watchers {
	w := &watchers{all: map[string]*watcher{}}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	return w
}

func (w *watchers) close() {
	w.cancel()
	w.wg.Wait()
}

// add makes a watcher of a sandbox.
func (w *watchers) add(sandbox string, cancel context.CancelFunc) (id string, _ *watcher, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	of := 0
	for _, other := range w.all {
		if other.sandbox == sandbox {
			of++
		}
	}
	if len(w.all) >= maxWatchers || of >= maxWatchersOf {
		return "", nil, api.Errorf(api.CodeLimit, "%s", errTooMany)
	}
	id = rand.Text()
	one := &watcher{sandbox: sandbox, cancel: cancel}
	one.idle = time.AfterFunc(watcherIdle, cancel)
	w.all[id] = one
	return id, one, nil
}

// find returns a watcher of a sandbox.
func (w *watchers) find(sandbox, id string) (*watcher, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if one := w.all[id]; one != nil && one.sandbox == sandbox {
		one.idle.Reset(watcherIdle)
		return one, nil
	}
	return nil, api.NotFound("watcher", id)
}

func (w *watchers) remove(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if one := w.all[id]; one != nil {
		one.idle.Stop()
		delete(w.all, id)
	}
}

// createWatcher begins to collect changes, and returns when all from then on are collected.
func (fs *filesystem) createWatcher(ctx context.Context, s *Sandbox, in *watchRequest) (*watcherRef, error) {
	dir, err := fs.directory(ctx, s, in.Path)
	if err != nil {
		return nil, err
	}
	own, cancel := context.WithCancel(access.With(fs.watchers.ctx, access.From(ctx)))
	id, one, err := fs.watchers.add(s.ID, cancel)
	if err != nil {
		cancel()
		return nil, err
	}
	began := make(chan struct{})
	ended := make(chan struct{})
	fs.watchers.wg.Go(func() {
		defer close(ended)
		defer cancel()
		err := fs.events(own, s, dir, in, func() error { close(began); return nil }, func(e fileEvent) error {
			one.mu.Lock()
			defer one.mu.Unlock()
			one.events = append(one.events, e)
			if over := len(one.events) - maxEvents; over > 0 {
				one.events = one.events[over:]
			}
			return nil
		})
		one.mu.Lock()
		one.err = err
		one.mu.Unlock()
		if own.Err() != nil {
			fs.watchers.remove(id) // nobody asks any more
		}
	})
	select {
	case <-began:
		return &watcherRef{id}, nil
	case <-ended:
		fs.watchers.remove(id)
		return nil, one.err
	case <-ctx.Done():
		cancel()
		return nil, context.Cause(ctx)
	}
}

// watcherEvents returns the changes since it was called last.
func (fs *filesystem) watcherEvents(_ context.Context, s *Sandbox, in *watcherRef) (*watcherEvents, error) {
	one, err := fs.watchers.find(s.ID, in.ID)
	if err != nil {
		return nil, err
	}
	one.mu.Lock()
	defer one.mu.Unlock()
	out := &watcherEvents{Events: one.events}
	one.events = nil
	if len(out.Events) == 0 && one.err != nil {
		return nil, one.err
	}
	return out, nil
}

func (fs *filesystem) removeWatcher(_ context.Context, s *Sandbox, in *watcherRef) (*nothing, error) {
	one, err := fs.watchers.find(s.ID, in.ID)
	if err != nil {
		return nil, err
	}
	one.cancel()
	fs.watchers.remove(in.ID)
	return &nothing{}, nil
}
