package images

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/image"
	"ramet.dev/ramet/internal/image/debian"
	"ramet.dev/ramet/internal/image/debian/pkgcache"
	"ramet.dev/ramet/internal/service/access"
)

// CreateImage builds, imports or pulls an image.
func (c *Catalog) CreateImage(ctx context.Context, req api.ImageRequest, progress func(api.Progress)) (*api.Image, error) {
	if err := req.Valid(); err != nil {
		return nil, err
	}
	caller := access.From(ctx)
	if err := caller.MayMakeTree("images"); err != nil {
		return nil, err
	}
	if req.Path != "" && !caller.Owner {
		return nil, api.Errorf(api.CodeForbidden, "only the owner of the daemon may import files of its host: pull the image from a registry, or commit a sandbox")
	}
	if req.IfMissing {
		return c.makeOnce(ctx, req, progress)
	}
	return c.make(ctx, req, progress)
}

// make is CreateImage for a request that was checked.
func (c *Catalog) make(ctx context.Context, req api.ImageRequest, progress func(api.Progress)) (*api.Image, error) {
	caller := access.From(ctx)
	images, err := c.visible(ctx)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex // phases of a build overlap
	opt := image.Options{Name: req.Name, Progress: func(p api.Progress) {
		mu.Lock()
		defer mu.Unlock()
		progress(p)
	}}
	var img api.Image
	switch {
	case req.Ref != "":
		// The credentials are the owner's: other tenants see what is public.
		img, err = images.Pull(ctx, req.Ref, image.PullOptions{Options: opt, Anonymous: caller.Tenant != access.DefaultTenant})
	case req.Path != "":
		opt.Select = req.Select
		img, err = images.ImportPath(ctx, req.Path, opt)
	default:
		if _, err := image.ParseName("name", req.Name); err != nil {
			return nil, err
		}
		img, err = c.build(ctx, req.Build, opt)
	}
	if err != nil {
		return nil, err
	}
	note(ctx, img.ID)
	return &img, nil
}

// build makes an image of a distribution's packages: it unpacks them, runs
// their maintainer scripts in a sandbox and packs what came out.
func (c *Catalog) build(ctx context.Context, req *api.ImageBuild, opt image.Options) (api.Image, error) {
	switch req.From {
	case "debian":
	case "scratch":
		return c.scratch(ctx, opt)
	default:
		return api.Image{}, api.Invalid("build.from", "%q is not known: debian and scratch are", req.From)
	}
	defer c.beginBuild()()
	unpacked, err := c.unpackDebian(ctx, req, opt.Progress)
	c.boundPackages()
	if err != nil {
		return api.Image{}, fmt.Errorf("build image: %w", err)
	}
	defer c.remove(access.From(ctx), c.cfg.Store, unpacked.ID) // an intermediate result, whatever comes of it
	scratch, err := c.cfg.Scratch(ctx, unpacked.ID)
	if err != nil {
		return api.Image{}, fmt.Errorf("build image: %w", err)
	}
	defer scratch.Close()
	steps := debian.ConfigureSteps()
	for i, step := range steps {
		opt.Progress(api.Progress{Phase: "configure", Done: int64(i), Total: int64(len(steps)), Detail: step.Name})
		if err := runStep(ctx, scratch, step); err != nil {
			return api.Image{}, fmt.Errorf("build image: %s: %w", step.Name, err)
		}
	}
	opt.Source = describeBuild(req)
	img, err := c.pack(ctx, scratch, opt)
	if err != nil {
		return api.Image{}, fmt.Errorf("build image: %w", err)
	}
	return img, nil
}

// scratch makes an image without files. It has the directories that a sandbox needs.
func (c *Catalog) scratch(ctx context.Context, opt image.Options) (api.Image, error) {
	images, err := c.visible(ctx)
	if err != nil {
		return api.Image{}, err
	}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, dir := range []tar.Header{{Name: "dev/", Mode: 0o755}, {Name: "etc/", Mode: 0o755}, {Name: "proc/", Mode: 0o755}, {Name: "sys/", Mode: 0o755}, {Name: "tmp/", Mode: 0o1777}} {
		dir.Typeflag = tar.TypeDir
		if err := w.WriteHeader(&dir); err != nil {
			return api.Image{}, fmt.Errorf("build image: %w", err)
		}
	}
	if err := w.Close(); err != nil {
		return api.Image{}, fmt.Errorf("build image: %w", err)
	}
	opt.Source = "scratch"
	return images.ImportTar(ctx, &archive, opt)
}

// describeBuild says for people what an image is made of.
func describeBuild(req *api.ImageBuild) string {
	words := []string{req.From}
	if req.Suite != "" {
		words = append(words, req.Suite)
	}
	return strings.Join(append(words, req.Include...), " ")
}

// unpackDebian makes an image of unpacked packages, without a name.
func (c *Catalog) unpackDebian(ctx context.Context, req *api.ImageBuild, progress func(api.Progress)) (api.Image, error) {
	return c.importFrom(ctx, image.Options{}, func(w io.Writer) error {
		_, err := debian.Build(ctx, debian.Options{
			Suite: req.Suite, Include: req.Include, CacheDir: c.cfg.PackageCache,
			Progress: func(p debian.Progress) {
				progress(api.Progress{Phase: p.Phase, Done: p.Done, Total: p.Total, Detail: p.Detail})
			},
		}, w)
		return err
	})
}

// boundPackages keeps the cached packages within their bound. While another build uses
// them, it is that build's to do.
func (c *Catalog) boundPackages() {
	if c.cfg.PackageCacheBytes <= 0 {
		return
	}
	gone, err := pkgcache.Bound(c.cfg.PackageCache, c.cfg.PackageCacheBytes)
	switch {
	case api.CodeOf(err) == api.CodeConflict:
	case err != nil:
		c.cfg.Log.Warn("bound the package cache", "error", err)
	case gone.Files > 0:
		c.cfg.Log.Info("removed cached packages", "files", gone.Files, "bytes", gone.Bytes)
	}
}

// importFrom makes an image of the tar stream that fill writes.
func (c *Catalog) importFrom(ctx context.Context, opt image.Options, fill func(io.Writer) error) (api.Image, error) {
	r, w := io.Pipe()
	filled := make(chan error, 1)
	go func() {
		err := fill(w)
		w.CloseWithError(err)
		filled <- err
	}()
	img, err := c.cfg.Store.ImportTar(ctx, r, opt)
	r.CloseWithError(errors.New("import ended"))
	// If filling failed, that is the reason for a failed import.
	if ferr := <-filled; ferr != nil && err != nil {
		return api.Image{}, ferr
	}
	return img, err
}

// runStep runs a step of a build.
func runStep(ctx context.Context, scratch Scratch, step debian.Step) error {
	env := map[string]string{}
	for _, kv := range step.Env {
		k, v, _ := strings.Cut(kv, "=")
		env[k] = v
	}
	code, output, err := scratch.Run(ctx, step.Argv, env)
	if err != nil {
		return err
	}
	if code != 0 {
		return api.Errorf(api.CodeUnsupported, "exit code %d: %s", code, output)
	}
	return nil
}

// pack makes an image of the files of a scratch sandbox.
func (c *Catalog) pack(ctx context.Context, scratch Scratch, opt image.Options) (api.Image, error) {
	view, err := scratch.View(ctx)
	if err != nil {
		return api.Image{}, err
	}
	defer view.Close()
	src, err := sourceOf(view)
	if err != nil {
		return api.Image{}, err
	}
	images, err := c.visible(ctx)
	if err != nil {
		return api.Image{}, err
	}
	return images.Make(ctx, opt, func(d *image.Draft) error { return packError(src.Fill(ctx, d)) })
}
