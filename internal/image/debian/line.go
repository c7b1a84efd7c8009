package debian

import (
	"context"
	"errors"
	"runtime"
	"sync"

	"golang.org/x/sync/errgroup"
)

// downloads is how many files are fetched at a time.
const downloads = 4

// line is the production line of packages: fetched in parallel, decompressed in
// parallel, consumed in order. Few packages are on it at a time, so that the
// spool stays small however large the image is.
type line struct {
	opts  *Options
	f     *fetcher
	pkgs  []*pkg
	total int64

	ready []chan struct{}  // closed when the package is in the cache
	out   []chan *unpacked // one value each
	slots chan struct{}    // held from decompression to consumption

	mu      sync.Mutex
	arrived int64 // bytes of packages present
	fetched int64 // bytes that came over the network
}

func newLine(opts *Options, f *fetcher, pkgs []*pkg) *line {
	l := &line{
		opts: opts, f: f, pkgs: pkgs,
		ready: make([]chan struct{}, len(pkgs)),
		out:   make([]chan *unpacked, len(pkgs)),
		slots: make(chan struct{}, 2*runtime.GOMAXPROCS(0)),
	}
	for i, p := range pkgs {
		l.ready[i], l.out[i] = make(chan struct{}), make(chan *unpacked, 1)
		l.total += p.digest.size
	}
	return l
}

// run hands every package to consume in order. It returns after all of its
// goroutines have ended and every spool file is closed.
func (l *line) run(ctx context.Context, cancel context.CancelCauseFunc, consume func(*unpacked) error) error {
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
			u.close()
		default:
		}
	}
	return err
}

func (l *line) fetchAll(ctx context.Context) error {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(downloads)
	for i, p := range l.pkgs {
		if gctx.Err() != nil {
			break
		}
		g.Go(func() error {
			addr := p.src.url(p.filename)
			fetched, err := l.f.store(gctx, "package "+p.name, []string{addr}, p.digest, func(n int64) { l.arrive(n, p) })
			if err != nil {
				return err
			}
			if fetched {
				l.mu.Lock()
				l.fetched += p.digest.size
				l.mu.Unlock()
			}
			close(l.ready[i])
			return nil
		})
	}
	return g.Wait()
}

func (l *line) arrive(n int64, p *pkg) {
	l.mu.Lock()
	l.arrived += n
	done := l.arrived
	l.mu.Unlock()
	l.opts.report(PhaseDownload, done, l.total, p.name)
}

func (l *line) unpackAll(ctx context.Context) error {
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
			u, err := unpackDeb(gctx, l.f.cache, p, l.f.cache.path(p.digest))
			if err != nil {
				return err
			}
			l.out[i] <- u
			return nil
		})
	}
	return g.Wait()
}

func (l *line) consumeAll(ctx context.Context, consume func(*unpacked) error) error {
	for i, p := range l.pkgs {
		l.opts.report(PhaseUnpack, int64(i), int64(len(l.pkgs)), p.name)
		var u *unpacked
		select {
		case u = <-l.out[i]:
		case <-ctx.Done():
			return ctx.Err()
		}
		err := consume(u)
		u.close()
		if err != nil {
			return err
		}
		<-l.slots
	}
	l.opts.report(PhaseUnpack, int64(len(l.pkgs)), int64(len(l.pkgs)), "")
	return nil
}
