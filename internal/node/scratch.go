package node

import (
	"cmp"
	"context"
	"strings"
	"sync"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/image"
	"ramet.dev/ramet/internal/node/fsview"
	"ramet.dev/ramet/internal/node/images"
	"ramet.dev/ramet/internal/node/sandboxes"
	"ramet.dev/ramet/internal/node/spawn"
	"ramet.dev/ramet/internal/service/access"
)

// newCatalog puts the catalog of images together.
func (m *Node) newCatalog(store *image.Store) *images.Catalog {
	return images.New(images.Config{
		Store: store, Log: m.cfg.Log, PackageCache: m.cfg.Paths.PackageCache(), PackageCacheBytes: m.cfg.PackageCache,
		Users: m.imageUsers, View: func(ctx context.Context, ref string) (*fsview.View, error) { return m.views.Open(ctx, ref) }, Scratch: m.startScratch, Turn: m.heavyTurn, Observe: m.meter.Observe,
		Committed: func(ctx context.Context, of, image string) {
			if b, err := m.sandboxes.Find(ctx, of); err == nil { // else it was of a snapshot
				m.sandboxes.Events.Publish(api.EventCommitted, b, api.Event{Image: image})
			}
		},
	})
}

// imageUsers reports whether an image is used, and by which sandboxes and snapshots
// that the caller sees. It is called with the lock of the catalog of images held.
func (m *Node) imageUsers(caller access.Caller, id string) (used bool, by []string) {
	note := func(what, id, name string, seen bool) {
		used = true
		if seen {
			by = append(by, what+" "+cmp.Or(name, id))
		}
	}
	for _, b := range sandboxes.OldestFirst(m.sandboxes.All()) {
		if v := b.View(); v.Image == id {
			note("sandbox", v.ID, v.Name, b.SeenBy(caller))
		}
	}
	for _, s := range m.snapshots.All() {
		if v := s.View(); v.Image == id {
			note("snapshot", v.ID, v.Name, s.SeenBy(caller))
		}
	}
	return used, by
}

// startScratch starts a sandbox that nobody sees and that ends with the daemon.
func (m *Node) startScratch(ctx context.Context, imageID string) (images.Scratch, error) {
	rec := sandboxes.NewRecord(access.From(ctx).Tenant, api.NewID(api.KindSandbox), "build", 0)
	img, err := m.images.OpenImage(imageID)
	if err != nil {
		return nil, err
	}
	defer img.Close()
	sentry, _, err := m.spawner.Prepare(ctx, "", &rec.Sandbox, nil)
	if err != nil {
		return nil, err
	}
	if _, err := spawn.Boot(ctx, sentry, &rec.Sandbox, img, nil); err != nil { // it has no network
		sentry.Kill()
		return nil, err
	}
	return &scratch{m, sentry, imageID}, nil
}

// scratch is a sandbox in which an image is finished.
type scratch struct {
	m      *Node
	sentry *launch.Sentry
	image  string
}

// Run implements images.Scratch.
func (s *scratch) Run(ctx context.Context, argv []string, env map[string]string) (code int, output string, err error) {
	out := &tailBuffer{}
	exited, err := s.sentry.Exec(ctx, &wire.Exec{Argv: argv, Env: env}, api.ExecIO{Stdout: out, Stderr: out})
	if err != nil {
		return 0, "", err
	}
	return exited.Code, out.String(), nil
}

// View implements images.Scratch.
func (s *scratch) View(ctx context.Context) (*fsview.View, error) {
	view := &fsview.View{ID: "the build", Image: s.image}
	if err := s.m.views.OfSentry(ctx, view, s.sentry, nil); err != nil {
		view.Close()
		return nil, err
	}
	return view, nil
}

// Close implements images.Scratch.
func (s *scratch) Close() { s.sentry.Kill() }

// tailBuffer keeps the end of what is written to it.
type tailBuffer struct {
	mu  sync.Mutex
	buf []byte
	max int // bytes that are kept; 0 for tailBytes
}

const tailBytes = 4 << 10

// Write implements io.Writer. It never fails.
func (t *tailBuffer) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if over := len(t.buf) - cmp.Or(t.max, tailBytes); over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	return len(p), nil
}

// String returns what was kept.
func (t *tailBuffer) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.buf))
}
