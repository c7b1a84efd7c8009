package portable

import (
	"context"
	"fmt"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/artefact"
	"ramet.dev/ramet/internal/artefact/registry"
	"ramet.dev/ramet/internal/service/access"
)

// Push sends a snapshot to a registry: the blobs that it lacks.
func (p *Porter) Push(ctx context.Context, snap string, req api.PushRequest, progress func(api.Progress)) (_ *api.PushResult, err error) {
	ctx, ended := p.cfg.Observe(ctx, "push")
	defer ended(&err)
	res, err := p.push(ctx, snap, req, progress)
	if err != nil {
		return nil, fmt.Errorf("push: %w", noSpace(err))
	}
	return res, nil
}

func (p *Porter) push(ctx context.Context, snap string, req api.PushRequest, progress func(api.Progress)) (*api.PushResult, error) {
	name, err := registry.Name(req.Ref)
	if err != nil {
		return nil, err
	}
	turn, err := p.cfg.Turn(ctx)
	if err != nil {
		return nil, err
	}
	defer turn()
	c, err := p.open(ctx, snap)
	if err != nil {
		return nil, err
	}
	defer c.close()
	progress(api.Progress{Phase: "pack"})
	b, err := p.compress(ctx, c, carried{image: !req.WithoutImage, engine: req.WithEngine})
	if err != nil {
		return nil, err
	}
	defer b.spool.Close()
	manifest, err := b.manifest(c)
	if err != nil {
		return nil, err
	}
	res := &api.PushResult{Ref: name, Snapshot: c.id, Digest: artefact.Digest(manifest)}
	signature, err := p.sign(ctx, req.Sign, manifest)
	if err != nil {
		return nil, err
	}
	u := registry.Upload{Manifest: manifest, Signature: signature, Config: c.raw, Layers: b.order, Open: b.open, Sent: func(sent, had int64) {
		res.SentBytes += sent
		res.SizeBytes += sent + had
		progress(api.Progress{Phase: "push", Done: res.SizeBytes, Total: b.end + int64(len(c.raw))})
	}}
	if err := registry.Push(ctx, req.Ref, u, p.asked(ctx)); err != nil {
		return nil, err
	}
	return res, nil
}

// asked says on whose behalf a registry is asked: the credentials are those of the owner of
// the daemon, whose tenant alone may use them, and no caller that is bound to a tree or is a sandbox.
func (p *Porter) asked(ctx context.Context) registry.Options {
	caller := access.From(ctx)
	return registry.Options{Anonymous: caller.Tenant != access.DefaultTenant || caller.Bound() || caller.By != ""}
}

// Pull makes a snapshot of one in a registry.
func (p *Porter) Pull(ctx context.Context, req api.PullRequest, progress func(api.Progress)) (_ *api.Snapshot, err error) {
	ctx, ended := p.cfg.Observe(ctx, "pull")
	defer ended(&err)
	snap, err := p.pull(ctx, req, progress)
	if err != nil {
		return nil, fmt.Errorf("pull: %w", noSpace(err))
	}
	return snap, nil
}

func (p *Porter) pull(ctx context.Context, req api.PullRequest, progress func(api.Progress)) (*api.Snapshot, error) {
	as := api.UnpackRequest{Name: req.Name, Trust: req.Trust}
	if err := mayUnpack(ctx, as); err != nil {
		return nil, err
	}
	turn, err := p.cfg.Turn(ctx)
	if err != nil {
		return nil, err
	}
	defer turn()
	done, total, told := int64(0), int64(0), int64(0)
	d, err := registry.Pull(ctx, req.Ref, len(req.Trust)+len(p.cfg.Trust) > 0, p.asked(ctx), func(n int64) {
		if done += n; done-told >= progressStep {
			told = done
			progress(api.Progress{Phase: "fetch", Done: done, Total: total})
		}
	})
	if err != nil {
		return nil, err
	}
	a := &arrival{porter: p, req: as}
	defer a.end()
	skip, err := a.begin(ctx, d.Head)
	if err != nil {
		return nil, err
	}
	for _, l := range d.Head.Manifest.Layers {
		if !skip[l.Digest] {
			total += l.Size
		}
	}
	return a.finish(ctx, d)
}

// progressStep is how much is fetched between two reports of the progress.
const progressStep = 1 << 20

var (
	_ blobs = (*registry.Download)(nil)
	_ blobs = (*artefact.Archive)(nil)
)
