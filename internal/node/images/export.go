package images

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/image"
	"ramet.dev/ramet/internal/node/fsview"
	"ramet.dev/ramet/internal/service/access"
	"ramet.dev/ramet/internal/storage/cowfs"
	"ramet.dev/ramet/internal/storage/pack"
)

// Export writes the files of a sandbox or snapshot as they are at one moment. The
// sandbox goes on meanwhile.
func (c *Catalog) Export(ctx context.Context, ref string, req api.ExportRequest, w io.Writer) (err error) {
	ctx, ended := c.cfg.Observe(ctx, "export")
	defer ended(&err)
	turn, err := c.cfg.Turn(ctx)
	if err != nil {
		return fmt.Errorf("export: %w", err)
	}
	defer turn()
	p, err := c.packing(ctx, ref)
	if err != nil {
		return fmt.Errorf("export: %w", err)
	}
	defer p.Close()
	write := func(w io.Writer) error { return p.src.Layer(ctx, w) }
	switch req.Format {
	case api.ExportLayer:
	case api.ExportTar:
		write = func(w io.Writer) error { return p.src.Tar(ctx, w) }
	case api.ExportOCI:
		return packError(p.src.OCI(ctx, w, p.archive(req.Gzip)))
	default:
		return api.Invalid("format", "%q is not known: layer, oci and tar are", req.Format)
	}
	if req.Gzip {
		return packError(pack.Gzip(w, write))
	}
	return packError(write(w))
}

// Commit makes an image of the files of a sandbox or snapshot as they are at one
// moment. The sandbox goes on meanwhile.
func (c *Catalog) Commit(ctx context.Context, ref string, req api.CommitRequest, progress func(api.Progress)) (_ *api.Image, err error) {
	ctx, ended := c.cfg.Observe(ctx, "commit")
	defer ended(&err)
	if err := req.Valid(); err != nil {
		return nil, err
	}
	name, err := image.ParseName("name", req.Name)
	if err != nil {
		return nil, err
	}
	turn, err := c.cfg.Turn(ctx)
	if err != nil {
		return nil, fmt.Errorf("commit: %w", err)
	}
	defer turn()
	p, err := c.packing(ctx, ref)
	if err != nil {
		return nil, fmt.Errorf("commit: %w", err)
	}
	defer p.Close()
	source := "commit of " + p.title
	if req.Message != "" {
		source += ": " + req.Message
	}
	config := image.ConfigOf(cmp.Or(req.Config, &p.image.ImageConfig))
	if err := access.From(ctx).MayMakeTree("images"); err != nil {
		return nil, err
	}
	images, err := c.visible(ctx)
	if err != nil {
		return nil, err
	}
	if !req.Replace {
		if err := images.CheckName(name, ""); err != nil { // before the work; Make looks again
			return nil, fmt.Errorf("commit: %w", err)
		}
	}
	img, err := images.Make(ctx, image.Options{Name: name, KeepName: !req.Replace, Source: source, Config: config, Progress: progress}, func(d *image.Draft) error {
		return packError(p.src.Fill(ctx, d))
	})
	if err != nil {
		return nil, fmt.Errorf("commit: %w", err)
	}
	note(ctx, img.ID)
	c.cfg.Committed(ctx, p.ID, img.ID)
	return &img, nil
}

// packing is a view that is packed.
type packing struct {
	*fsview.View
	src   pack.Source
	image api.Image
	title string // of the sandbox or snapshot: its name, or its id
}

// packing pins the files that ref refers to, until close.
func (c *Catalog) packing(ctx context.Context, ref string) (_ *packing, err error) {
	view, err := c.cfg.View(ctx, ref)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			view.Close()
		}
	}()
	view.OnClose(c.UseImage(view.Image))
	p := &packing{View: view, title: ref}
	if p.image, err = c.cfg.Store.Resolve(view.Image); err != nil {
		return nil, err
	}
	// Names are the caller's, who may have none for it any more.
	seen, err := c.FindImage(ctx, view.Image)
	if err != nil && api.CodeOf(err) != api.CodeNotFound {
		return nil, err
	}
	p.image.Names = seen.Names
	p.src, err = sourceOf(view)
	return p, err
}

// sourceOf returns what is packed of a view, until that is closed.
func sourceOf(view *fsview.View) (pack.Source, error) {
	base, err := view.ImageFiles()
	if err != nil {
		return pack.Source{}, err
	}
	return pack.Source{Image: base, Files: view.Files, Keep: fsview.SkippedPaths()}, nil
}

// archive describes an archive of what is packed. What a sandbox was given besides
// its image's configuration, its environment above all, stays out: it may be
// secret.
func (p *packing) archive(zipped bool) pack.Archive {
	base := p.image.ID
	if len(p.image.Names) > 0 {
		base = p.image.Names[0]
	}
	return pack.Archive{
		Name: p.title, Tag: "latest", Gzip: zipped,
		Config:  containerConfig(&p.image.ImageConfig),
		Base:    pack.Step{Created: p.image.CreatedAt, CreatedBy: "ramet image " + base, Comment: p.image.Source},
		Changes: pack.Step{Created: p.At.UTC().Truncate(time.Second), CreatedBy: "ramet export " + p.title},
	}
}

// containerConfig returns a configuration as containers have it.
func containerConfig(c *api.ImageConfig) pack.Config {
	config := pack.Config{
		Env: c.Env, Cmd: c.Cmd, Entrypoint: c.Entry, WorkingDir: c.Cwd, User: c.User,
		Labels: c.Labels, ExposedPorts: setOf(c.Ports), Volumes: setOf(c.VolumePaths), StopSignal: c.StopSignal,
	}
	if h := c.Healthcheck; h != nil {
		ms := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
		config.Healthcheck = &pack.HealthConfig{Test: h.Test, Interval: ms(h.IntervalMS), Timeout: ms(h.TimeoutMS), StartPeriod: ms(h.StartPeriodMS), Retries: h.Retries}
	}
	return config
}

// setOf returns the set of some texts, or nil if there are none.
func setOf(texts []string) map[string]struct{} {
	if len(texts) == 0 {
		return nil
	}
	set := map[string]struct{}{}
	for _, text := range texts {
		set[text] = struct{}{}
	}
	return set
}

// packError gives errors of packing a code.
func packError(err error) error {
	switch {
	case errors.Is(err, pack.ErrUnfit):
		return api.Errorf(api.CodeUnsupported, "%w", err)
	case errors.Is(err, pack.ErrLimit):
		return api.Errorf(api.CodeLimit, "%w", err)
	case cowfs.IsCorrupt(err):
		return api.Errorf(api.CodeCorrupt, "%w", err)
	}
	return err
}
