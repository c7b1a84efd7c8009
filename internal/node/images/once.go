package images

import (
	"cmp"
	"context"
	"fmt"
	"sync"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/service/access"
)

// making is an image that a tenant wants.
type making struct{ tenant, ref string }

// flight is an image that one request makes, and others wait for.
type flight struct {
	mu      sync.Mutex
	last    api.Progress
	changed chan struct{} // closed and replaced when last changes
	// done is closed when img and err are set, or broken, which says that the request that
	// made the image was cancelled.
	done   chan struct{}
	img    *api.Image
	err    error
	broken bool
}

// report notes a progress for those who wait.
func (f *flight) report(p api.Progress) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = p
	close(f.changed)
	f.changed = make(chan struct{})
}

// latest returns the last progress, and the channel that is closed at the next one.
func (f *flight) latest() (api.Progress, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last, f.changed
}

// wait waits for the image, and calls progress meanwhile.
func (f *flight) wait(ctx context.Context, progress func(api.Progress)) error {
	for {
		last, changed := f.latest()
		if last != (api.Progress{}) {
			progress(last)
		}
		select {
		case <-changed:
		case <-f.done:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// makeOnce returns the image that req means if it is there. Of several requests for it at the
// same time, one makes it. If that one is cancelled, another takes its place.
func (c *Catalog) makeOnce(ctx context.Context, req api.ImageRequest, progress func(api.Progress)) (*api.Image, error) {
	what := making{access.From(ctx).Tenant, cmp.Or(req.Name, req.Ref)}
	for {
		f, first := c.join(what)
		if first {
			return c.lead(ctx, what, f, req, progress)
		}
		if err := f.wait(ctx, progress); err != nil {
			return nil, err
		}
		if !f.broken {
			return f.img, f.err
		}
	}
}

// join returns the flight of an image, and whether the caller has to make the image.
func (c *Catalog) join(what making) (f *flight, first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f := c.makings[what]; f != nil {
		return f, false
	}
	f = &flight{changed: make(chan struct{}), done: make(chan struct{}), broken: true}
	c.makings[what] = f
	return f, true
}

// lead makes the image of a flight unless it is there, and ends the flight.
func (c *Catalog) lead(ctx context.Context, what making, f *flight, req api.ImageRequest, progress func(api.Progress)) (*api.Image, error) {
	defer func() {
		c.mu.Lock()
		delete(c.makings, what)
		c.mu.Unlock()
		close(f.done)
	}()
	img, err := c.makeMissing(ctx, what.ref, req, func(p api.Progress) {
		f.report(p)
		progress(p)
	})
	f.img, f.err, f.broken = img, err, err != nil && ctx.Err() != nil
	return img, err
}

// makeMissing makes an image unless it is there.
func (c *Catalog) makeMissing(ctx context.Context, ref string, req api.ImageRequest, progress func(api.Progress)) (*api.Image, error) {
	found, err := c.FindImage(ctx, ref)
	if err == nil {
		return &found, nil
	}
	if api.CodeOf(err) != api.CodeNotFound {
		return nil, err
	}
	img, err := c.make(ctx, req, progress)
	switch {
	case err == nil || ctx.Err() != nil:
		return img, err
	case req.Build != nil:
		return nil, fmt.Errorf("image %s is not here, and was not built: %w. 'ramet image import %s PATH' makes it of files, 'ramet image pull REF --name %s' gets it from a registry", ref, err, ref, ref)
	case req.Ref != "":
		return nil, fmt.Errorf("image %s is not here, and was not pulled: %w. 'ramet image import NAME PATH' makes an image of a directory or archive, and 'ramet image ls' lists those that are here", ref, err)
	}
	return nil, err
}
