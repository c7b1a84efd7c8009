package debian

import (
	"context"
	"errors"
	"runtime"
	"sync"

	"golang.org/x/sync/errgroup"

	"ramet.dev/ramet/internal/image/debian/archive"
	"ramet.dev/ramet/internal/image/debian/deb"
	"ramet.dev/ramet/internal/image/debian/pkgcache"
)

// pipeline moves packages through the build: they are fetched in parallel, decompressed in
// parallel, consumed in order. Few packages are in it at a time, so that the
// spool stays small however large the image is.
type pipeline struct {
	opts  *Options
	f     *archive.Fetcher
	cache *pkgcache.Cache
	pkgs  []*archive.Package
	total int64

	ready []chan struct{}     // closed when the package is in the cache
	out   []chan *deb.Package // one value each
	slots chan struct{}       // held from decompression to consumption

	mu      sync.Mutex
	arrived int64 // bytes of packages present
	fetched int64 // bytes that came over the network
}

func newPipeline(opts *Options, f *archive.Fetcher, c *pkgcache.Cache, pkgs []*archive.Package) *pipeline {
	l := &pipeline{
		opts: opts, f: f, cache: c, pkgs: pkgs,
		ready: make([]chan struct{}, len(pkgs)),
		out:   make([]chan *deb.Package, len(pkgs)),
		slots: make(chan struct{}, 2*runtime.GOMAXPROCS(0)),
	}
	for i, p := range pkgs {
		l.ready[i], l.out[i] = make(chan struct{}), make(chan *deb.Package, 1)
		l.total += p.Digest.Size
	}
	return l
}

// run hands every package to consume in order. It returns after all of its
// goroutines have ended and every spool file is closed.
func (l *pipeline) run(ctx context.Context, cancel context.CancelCauseFunc, consume func(*deb.Package) error) error {
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return l.fetchAll(gctx) })
	g.Go(func() error { return l.unpackAll(gctx) })
	err := l.consumeAll(gctx, consume)
	if err != nil {
		cancel(err)
	}
	// A worker that failed ended the group, which is all the consumer saw.
	if workerErr := g.Wait(); workerErr != nil && (err == nil || errors.Is(err, context.Canceled)) {
		err = workerErr
	}
	for _, ch := range l.out {
		select {
		case u := <-ch:
			u.Close()
		default:
		}
	}
	return err
}

func (l *pipeline) fetchAll(ctx context.Context) error {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(archive.Downloads)
	for i, p := range l.pkgs {
		if gctx.Err() != nil {
			break
		}
		g.Go(func() error {
			fetched, err := l.f.Store(gctx, "package "+p.Name, []string{p.URL()}, p.Digest, func(n int64) { l.arrive(n, p) })
			if err != nil {
				return err
			}
			if fetched {
				l.mu.Lock()
				l.fetched += p.Digest.Size
				l.mu.Unlock()
			}
			close(l.ready[i])
			return nil
		})
	}
	return g.Wait()
}

func (l *pipeline) arrive(n int64, p *archive.Package) {
	l.mu.Lock()
	l.arrived += n
	done := l.arrived
	l.mu.Unlock()
	l.opts.report(PhaseDownload, done, l.total, p.Name)
}

func (l *pipeline) unpackAll(ctx context.Context) error {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for i, p := range l.pkgs {
		// Slots are taken in order, so the package consumed next always has one.
		select {
		case l.slots <- struct{}{}:
		case <-gctx.Done():
			return g.Wait()
		}
		g.Go(func() error {
			select {
			case <-l.ready[i]:
			case <-gctx.Done():
				return gctx.Err()
			}
			u, err := deb.Open(gctx, l.cache, p)
			if err != nil {
				return err
			}
			l.out[i] <- u
			return nil
		})
	}
	return g.Wait()
}

func (l *pipeline) consumeAll(ctx context.Context, consume func(*deb.Package) error) error {
	for i, p := range l.pkgs {
		l.opts.report(PhaseUnpack, int64(i), int64(len(l.pkgs)), p.Name)
		var u *deb.Package
		select {
		case u = <-l.out[i]:
		case <-ctx.Done():
			return ctx.Err()
		}
		err := consume(u)
		u.Close()
		if err != nil {
			return err
		}
		<-l.slots
	}
	l.opts.report(PhaseUnpack, int64(len(l.pkgs)), int64(len(l.pkgs)), "")
	return nil
}
