package trust

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sys/unix"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/network/truststore"
	"ramet.dev/ramet/internal/node/freezes"
	"ramet.dev/ramet/internal/node/fsview"
	"ramet.dev/ramet/internal/node/sandboxes"
	"ramet.dev/ramet/internal/node/snapdir"
	"ramet.dev/ramet/internal/storage/btree"
	"ramet.dev/ramet/internal/storage/cowfs"
)

const (
	// maxPlans is how many plans are kept, each of one image, and maxKept how large the files of one
	// that is kept may be, in bytes. That of an image of Debian has some 230 KiB.
	maxPlans = 16
	maxKept  = 2 << 20
	// planTime bounds how long the files of a guest are looked at.
	planTime = 5 * time.Second
)

// Config is what a Trust works with.
type Config struct {
	// Bundle is the file with the certificates that the host trusts; empty for that of the machine.
	Bundle string
	Views  Views
	Log    *slog.Logger
}

// Views opens the files of sandboxes, and of frozen states of an image.
type Views interface {
	OfSandbox(ctx context.Context, b *sandboxes.Instance) (*fsview.View, error)
	OfFreeze(f *freezes.Freeze, image string) (*fsview.View, error)
}

// Trust has sandboxes trust authorities. It is safe for concurrent use.
type Trust struct {
	cfg Config

	mu    sync.Mutex // held while a plan is made, so that one of an image is made once
	host  bundle
	plans *lru.Cache[key, *Plan]
}

// New returns a Trust.
func New(cfg Config) (*Trust, error) {
	plans, err := lru.New[key, *Plan](maxPlans)
	return &Trust{cfg: cfg, plans: plans}, err
}

// key names what a plan was made of.
type key struct {
	image string
	host  uint64 // version of the bundle; 0 if the host's authorities are not wanted
}

// Plan is what is done in a guest; nil if nothing is.
type Plan struct {
	archive []byte // of files, empty if all are there
	env     map[string]string
	// count is how many of the host's own authorities the guest lacks.
	count int
}

// OfImage completes the record of a sandbox with a network that is to be made of an image. The
// result writes its files once it has booted, and is nil if there are none to write.
func (t *Trust) OfImage(ctx context.Context, rec *sandboxes.Record, image *os.File) (write func(context.Context, *launch.Sentry) error, err error) {
	if rec.Sandbox.Network == nil {
		return nil, nil
	}
	p, err := t.plan(ctx, rec, rec.Sandbox.Image, func(make func(*cowfs.Files) error) error {
		data, err := snapdir.MapFile(image)
		if err != nil {
			return fmt.Errorf("map image: %w", err)
		}
		defer unix.Munmap(data)
		files, err := cowfs.NewFiles(btree.OpenView(nil, 0), data)
		if err != nil {
			return fmt.Errorf("open image: %w", err)
		}
		return make(files)
	})
	if p == nil || err != nil {
		return nil, err
	}
	p.Complete(rec)
	return p.Write, nil
}

// OfRunning serves a sandbox that runs in s. rec is its record to be, with a network, and is
// completed. The caller holds b.Op.
func (t *Trust) OfRunning(ctx context.Context, b *sandboxes.Instance, rec *sandboxes.Record, s *launch.Sentry) error {
	p, err := t.plan(ctx, rec, "", func(make func(*cowfs.Files) error) error {
		view, err := t.cfg.Views.OfSandbox(ctx, b)
		if err != nil {
			return err
		}
		defer view.Close()
		return make(view.Files)
	})
	if p == nil || err != nil {
		return err
	}
	p.Complete(rec)
	return p.Write(ctx, s)
}

// Frozen is the state of a sandbox that others are loaded from.
type Frozen struct {
	Freeze *freezes.Freeze
	// Source is the sandbox as it was frozen, and Certificate that of the authority that its tree had.
	Source      *api.Sandbox
	Certificate []byte
}

// OfFrozen plans for sandboxes that are loaded from a state, whose records are like rec: Complete
// completes each before it is loaded, and Write is called once it is. A state whose programs trust all
// that they are to trust needs no plan, which costs nothing.
func (t *Trust) OfFrozen(ctx context.Context, rec *sandboxes.Record, from Frozen) (*Plan, error) {
	if !Lacks(from.Source, from.Certificate, rec) {
		return nil, nil
	}
	return t.plan(ctx, rec, "", func(make func(*cowfs.Files) error) error {
		view, err := t.cfg.Views.OfFreeze(from.Freeze, rec.Sandbox.Image)
		if err != nil {
			return err
		}
		defer view.Close()
		return make(view.Files)
	})
}

// Lacks reports whether programs of a sandbox of rec are to trust what those of source, whose tree had
// an authority with a certificate, do not.
func Lacks(source *api.Sandbox, certificate []byte, rec *sandboxes.Record) bool {
	if rec.Sandbox.Network == nil {
		return false
	}
	return source.Network == nil || len(rec.Reach.Certificate) > 0 && !bytes.Equal(certificate, rec.Reach.Certificate)
}

// Inherit has rec, of a sandbox that goes on with the files of source, say what these have.
func Inherit(rec *sandboxes.Record, source *api.Sandbox) {
	s := &rec.Sandbox
	s.TrustedCAs = source.TrustedCAs
	names := map[string]string{}
	for _, name := range truststore.Variables() {
		if path, has := source.Env[name]; has && path == truststore.MainBundle() {
			names[name] = path
		}
	}
	s.Env = sandboxes.Merged(names, s.Env)
}

// Complete adds the variables that are not set otherwise, and says what is trusted.
func (p *Plan) Complete(rec *sandboxes.Record) {
	if p == nil {
		return
	}
	s := &rec.Sandbox
	s.Env, s.TrustedCAs = sandboxes.Merged(p.env, s.Env), s.TrustedCAs+p.count
}

// Write unpacks the files.
func (p *Plan) Write(ctx context.Context, s *launch.Sentry) error {
	if p == nil || len(p.archive) == 0 {
		return nil
	}
	req := &wire.File{Verb: wire.FileExtract, Path: []byte("/")}
	if err := s.FileSend(ctx, req, bytes.NewReader(p.archive), &api.ExtractResult{}); err != nil {
		return fmt.Errorf("write the certificates that programs with a network trust (create with trust_host_ca false leaves out those of the host): %w", err)
	}
	return nil
}

// plan returns what is to be done in the guest whose files open opens, so that it trusts the host's
// own authorities and that of its tree, if there is one. That of an image is kept without the latter.
// Files that cannot be looked at keep no sandbox from being made.
func (t *Trust) plan(ctx context.Context, rec *sandboxes.Record, image string, open func(func(*cowfs.Files) error) error) (*Plan, error) {
	wanted := rec.Sandbox.TrustHostCA == nil || *rec.Sandbox.TrustHostCA
	t.mu.Lock()
	defer t.mu.Unlock()
	k, further := key{image: image}, rec.Reach.Certificate
	var host []byte
	if wanted {
		if err := t.host.refresh(t.cfg.Bundle); err != nil {
			t.cfg.Log.Warn("sandboxes do not trust the authorities of the host", "reason", err)
		}
		k.host, host = t.host.version, t.host.own
	}
	if len(host)+len(further) == 0 {
		return nil, nil
	}
	keep := image != "" && len(further) == 0 // the authority of a tree is of use once
	if keep {
		if p, ok := t.plans.Get(k); ok {
			return p, nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, planTime)
	defer cancel()
	var p *Plan
	err := open(func(files *cowfs.Files) (err error) {
		p, err = makePlan(newTree(ctx, files), host, t.host.all, further, func(problem string) {
			t.cfg.Log.Info("not all programs of a sandbox trust the authorities that they should", "image", rec.Sandbox.Image, "reason", problem)
		})
		return err
	})
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		t.cfg.Log.Warn("a sandbox does not trust the authorities that it should", "id", rec.Sandbox.ID, "image", rec.Sandbox.Image, "reason", err)
		return nil, nil
	}
	if keep && (p == nil || len(p.archive) <= maxKept) {
		t.plans.Add(k, p)
	}
	return p, nil
}

// makePlan plans for guest, which is to trust further and what it lacks of host. roots is the bundle
// of a guest that has none. problem is told of stores that stay as they are.
func makePlan(guest *tree, host, roots, further []byte, problem func(string)) (*Plan, error) {
	has, err := truststore.Bundle(guest)
	if err != nil {
		return nil, err
	}
	missing := truststore.Missing(host, has)
	if len(missing)+len(further) == 0 {
		return nil, nil
	}
	made, err := truststore.Make(guest, truststore.Request{Trusted: append(missing, further...), Roots: roots})
	if err != nil {
		return nil, err
	}
	for _, p := range made.Problems {
		problem(p)
	}
	p := &Plan{env: made.Env, count: truststore.Count(missing)}
	for name, path := range made.Env {
		if _, err := guest.place(path[1:]); err != nil { // nothing is there, nor will be
			delete(made.Env, name)
		}
	}
	p.archive, err = archive(guest, made.Files, problem)
	return p, err
}

// archive packs files by the paths that they have without symbolic links: unpacking replaces links.
func archive(guest *tree, files []truststore.File, problem func(string)) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	packed := map[string]bool{}
	for _, f := range files {
		name, err := guest.place(strings.TrimPrefix(f.Path, "/"))
		if err != nil {
			problem(err.Error())
			continue
		}
		if packed[name] {
			continue
		}
		packed[name] = true
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(f.Content)), ModTime: time.Now()}); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.Content); err != nil {
			return nil, err
		}
	}
	if len(packed) == 0 {
		return nil, nil
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
