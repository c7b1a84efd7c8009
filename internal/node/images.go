package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/image"
	"ramet.dev/ramet/internal/image/debian"
	"ramet.dev/ramet/internal/node/fsview"
	"ramet.dev/ramet/internal/service/access"
)

// Images lists the images.
func (m *Node) Images(ctx context.Context) ([]api.Image, error) {
	images, err := m.imagesFor(ctx)
	if err != nil {
		return nil, err
	}
	if access.From(ctx).AllTenants {
		images = m.images.ForEveryone()
	}
	return images.List()
}

// imagesFor returns the images as the caller sees them. The owner of the daemon
// sees those besides that have lost all their names.
func (m *Node) imagesFor(ctx context.Context) (*image.Store, error) {
	c := access.From(ctx)
	switch err := c.Known(); {
	case err != nil:
		return nil, err
	case c.Owner:
		return m.images.ForAll(), nil
	}
	return m.images.For(ownerIn(c.Tenant)), nil
}

// findImage returns the image that the caller calls ref, which may be its id.
func (m *Node) findImage(ctx context.Context, ref string) (api.Image, error) {
	images, err := m.imagesFor(ctx)
	if err != nil {
		return api.Image{}, err
	}
	return images.Resolve(ref)
}

// GetImage returns one image.
func (m *Node) GetImage(ctx context.Context, ref string) (*api.Image, error) {
	img, err := m.findImage(ctx, ref)
	if err != nil {
		return nil, err
	}
	return &img, nil
}

// RemoveImage removes a name of an image, and the image with its last one. An
// image that sandboxes or snapshots need stays.
func (m *Node) RemoveImage(ctx context.Context, ref string) error {
	if err := access.From(ctx).MayMakeTree("or remove images"); err != nil {
		return err
	}
	images, err := m.imagesFor(ctx)
	if err != nil {
		return err
	}
	return m.removeImage(access.From(ctx), images, ref)
}

// removeImage tells the caller by what of its own an image is used.
func (m *Node) removeImage(caller access.Caller, from *image.Store, ref string) error {
	m.imageMu.Lock()
	defer m.imageMu.Unlock()
	_, err := from.Remove(ref, func(id string) error {
		used, by := m.imageUsers(caller, id)
		switch {
		case !used:
			return nil
		case len(by) == 0: // by what is being made, or is kept for a sandbox, or is another tenant's
			return api.Errorf(api.CodeConflict, "image %s is in use", ref)
		}
		return api.Errorf(api.CodeConflict, "image %s is in use by %s: remove %s first", ref, shortList(by), plural(len(by), "that", "them"))
	})
	return err
}

// errNeeded keeps an image from being pruned.
var errNeeded = errors.New("the image is needed")

// PruneImages removes the images that have no name any more, as builds and imports of
// the same name leave them, and that nothing is made of. The cached packages are all
// tenants'.
func (m *Node) PruneImages(ctx context.Context, req api.PruneRequest) (*api.Pruned, error) {
	caller := access.From(ctx)
	if err := caller.MayMakeTree("or remove images"); err != nil {
		return nil, err
	}
	if req.Cache && !caller.Operator() {
		return nil, api.Errorf(api.CodeForbidden, "cache: the cached packages are all tenants': the owner of the daemon removes them, or a token of tenant %s with scope admin that is bound to nothing", access.DefaultTenant)
	}
	list, err := m.Images(ctx)
	if err != nil {
		return nil, err
	}
	out := &api.Pruned{Removed: []string{}}
	if req.Cache {
		gone, err := debian.PruneCache(m.cfg.Paths.PackageCache(), time.Duration(req.CacheUnusedMS)*time.Millisecond)
		if err != nil {
			return nil, fmt.Errorf("prune cached packages: %w", err)
		}
		out.Packages, out.FreedBytes = gone.Files, gone.Bytes
	}
	for _, img := range list {
		if len(img.Names) > 0 {
			continue
		}
		gone, err := m.pruneImage(&img)
		if err != nil {
			return nil, fmt.Errorf("prune images: %w", err)
		}
		if gone {
			out.Removed = append(out.Removed, img.ID)
			out.FreedBytes += img.SizeBytes
		}
	}
	return out, nil
}

func (m *Node) pruneImage(img *api.Image) (gone bool, err error) {
	m.imageMu.Lock()
	defer m.imageMu.Unlock()
	if m.building > 0 && img.Source == "" { // it may be what a build has unpacked so far
		return false, nil
	}
	gone, err = m.images.RemoveNameless(img.ID, func(id string) error {
		if used, _ := m.imageUsers(access.Caller{}, id); used {
			return errNeeded
		}
		return nil
	})
	if errors.Is(err, errNeeded) {
		err = nil
	}
	return gone, err
}

// beginBuild keeps images that have no source, until the result is called.
func (m *Node) beginBuild() (done func()) {
	m.imageMu.Lock()
	defer m.imageMu.Unlock()
	m.building++
	return func() {
		m.imageMu.Lock()
		defer m.imageMu.Unlock()
		m.building--
	}
}

// maxNamed is how many of those are named that are in the way of something.
const maxNamed = 5

// shortList names the first few of list, and says how many more there are.
func shortList(list []string) string {
	if len(list) <= maxNamed {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(list[:maxNamed], ", "), len(list)-maxNamed)
}

// useImage keeps an image while something is made of it that is not listed yet,
// until the result is called. Look whether the image is there after it.
func (m *Node) useImage(id string) (release func()) {
	m.imageMu.Lock()
	defer m.imageMu.Unlock()
	m.imageUses[id]++
	return func() {
		m.imageMu.Lock()
		defer m.imageMu.Unlock()
		if m.imageUses[id]--; m.imageUses[id] == 0 {
			delete(m.imageUses, id)
		}
	}
}

// imageUsers reports whether an image is used, and by which sandboxes and snapshots
// that the caller sees. It is called with imageMu locked.
func (m *Node) imageUsers(caller access.Caller, id string) (used bool, by []string) {
	used = m.imageUses[id] > 0
	note := func(what, id, name string, seen bool) {
		used = true
		if seen {
			by = append(by, what+" "+cmp.Or(name, id))
		}
	}
	for _, b := range oldestFirst(m.all()) {
		if v := b.view(); v.Image == id {
			note("sandbox", v.ID, v.Name, b.seenBy(caller))
		}
	}
	for _, s := range m.allSnapshots() {
		if v := s.view(); v.Image == id {
			note("snapshot", v.ID, v.Name, s.seenBy(caller))
		}
	}
	return used, by
}

// CreateImage builds, imports or pulls an image.
func (m *Node) CreateImage(ctx context.Context, req api.ImageRequest, progress func(api.Progress)) (*api.Image, error) {
	given := 0
	for _, is := range []bool{req.Build != nil, req.Path != "", req.Ref != ""} {
		if is {
			given++
		}
	}
	if given != 1 {
		return nil, api.Invalid("build", "exactly one of build, path and ref must be given")
	}
	if req.Select != "" && req.Path == "" {
		return nil, api.Invalid("select", "only what is imported from a path can hold several images")
	}
	caller := access.From(ctx)
	if err := caller.MayMakeTree("images"); err != nil {
		return nil, err
	}
	if req.Path != "" && !caller.Owner {
		return nil, api.Errorf(api.CodeForbidden, "only the owner of the daemon may import files of its host: pull the image from a registry, or commit a sandbox")
	}
	images, err := m.imagesFor(ctx)
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
		if !filepath.IsAbs(req.Path) {
			return nil, api.Invalid("path", "%q is not an absolute path", req.Path)
		}
		opt.Select = req.Select
		img, err = images.ImportPath(ctx, req.Path, opt)
	default:
		if _, err := image.ParseName("name", req.Name); err != nil {
			return nil, err
		}
		img, err = m.buildImage(ctx, req.Build, opt)
	}
	if err != nil {
		return nil, err
	}
	noteImage(ctx, img.ID)
	return &img, nil
}

// buildImage makes an image of a distribution's packages: it unpacks them, runs
// their maintainer scripts in a sandbox and packs what came out.
func (m *Node) buildImage(ctx context.Context, req *api.ImageBuild, opt image.Options) (api.Image, error) {
	if req.From != "debian" {
		return api.Image{}, api.Invalid("build.from", "%q is not known: debian is", req.From)
	}
	defer m.beginBuild()()
	unpacked, err := m.unpackDebian(ctx, req, opt.Progress)
	m.boundPackages()
	if err != nil {
		return api.Image{}, fmt.Errorf("build image: %w", err)
	}
	defer m.removeImage(access.From(ctx), m.images, unpacked.ID) // an intermediate result, whatever comes of it
	sentry, err := m.scratch(ctx, unpacked.ID)
	if err != nil {
		return api.Image{}, fmt.Errorf("build image: %w", err)
	}
	defer sentry.Kill()
	steps := debian.ConfigureSteps()
	for i, step := range steps {
		opt.Progress(api.Progress{Phase: "configure", Done: int64(i), Total: int64(len(steps)), Detail: step.Name})
		if err := runStep(ctx, sentry, step); err != nil {
			return api.Image{}, fmt.Errorf("build image: %s: %w", step.Name, err)
		}
	}
	opt.Source = describeBuild(req)
	img, err := m.packRoot(ctx, sentry, unpacked.ID, opt)
	if err != nil {
		return api.Image{}, fmt.Errorf("build image: %w", err)
	}
	return img, nil
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
func (m *Node) unpackDebian(ctx context.Context, req *api.ImageBuild, progress func(api.Progress)) (api.Image, error) {
	return m.importFrom(ctx, image.Options{}, func(w io.Writer) error {
		_, err := debian.Build(ctx, debian.Options{
			Suite: req.Suite, Include: req.Include, CacheDir: m.cfg.Paths.PackageCache(),
			Progress: func(p debian.Progress) {
				progress(api.Progress{Phase: p.Phase, Done: p.Done, Total: p.Total, Detail: p.Detail})
			},
		}, w)
		return err
	})
}

// boundPackages keeps the cached packages within their bound. While another build uses
// them, it is that build's to do.
func (m *Node) boundPackages() {
	if m.cfg.PackageCache <= 0 {
		return
	}
	gone, err := debian.BoundCache(m.cfg.Paths.PackageCache(), m.cfg.PackageCache)
	switch {
	case api.CodeOf(err) == api.CodeConflict:
	case err != nil:
		m.log.Warn("bound the package cache", "error", err)
	case gone.Files > 0:
		m.log.Info("removed cached packages", "files", gone.Files, "bytes", gone.Bytes)
	}
}

// importFrom makes an image of the tar stream that fill writes.
func (m *Node) importFrom(ctx context.Context, opt image.Options, fill func(io.Writer) error) (api.Image, error) {
	r, w := io.Pipe()
	filled := make(chan error, 1)
	go func() {
		err := fill(w)
		w.CloseWithError(err)
		filled <- err
	}()
	img, err := m.images.ImportTar(ctx, r, opt)
	r.CloseWithError(errors.New("import ended"))
	// If filling failed, that is the reason for a failed import.
	if ferr := <-filled; ferr != nil && err != nil {
		return api.Image{}, ferr
	}
	return img, err
}

// scratch starts a sandbox that nobody sees and that ends with the daemon.
func (m *Node) scratch(ctx context.Context, imageID string) (*launch.Sentry, error) {
	d := newDraft(access.From(ctx).Tenant, api.NewID(api.KindSandbox), "build", 0)
	img, err := m.openImage(imageID)
	if err != nil {
		return nil, err
	}
	defer img.Close()
	sentry, err := m.prepare(ctx, &d, nil)
	if err != nil {
		return nil, err
	}
	if err := begin(ctx, sentry, &wire.Call{Op: wire.OpBoot, Boot: &wire.Boot{Common: d.common()}}, img); err != nil {
		sentry.Kill()
		return nil, err
	}
	return sentry, nil
}

func runStep(ctx context.Context, sentry *launch.Sentry, step debian.Step) error {
	env := map[string]string{}
	for _, kv := range step.Env {
		k, v, _ := strings.Cut(kv, "=")
		env[k] = v
	}
	out := &tailBuffer{}
	exited, err := sentry.Exec(ctx, &wire.Exec{Argv: step.Argv, Env: env}, launch.ExecIO{Stdout: out, Stderr: out})
	if err != nil {
		return err
	}
	if exited.Code != 0 {
		return api.Errorf(api.CodeUnsupported, "exit code %d: %s", exited.Code, out.String())
	}
	return nil
}

// packRoot makes an image of a scratch sandbox's root file system above the image
// it was made of.
func (m *Node) packRoot(ctx context.Context, sentry *launch.Sentry, imageID string, opt image.Options) (api.Image, error) {
	mo := &fsview.View{ID: "the build", Image: imageID}
	defer mo.Close()
	if err := m.pinFiles(ctx, mo, sentry, nil); err != nil {
		return api.Image{}, err
	}
	src, err := m.sourceOf(mo)
	if err != nil {
		return api.Image{}, err
	}
	images, err := m.imagesFor(ctx)
	if err != nil {
		return api.Image{}, err
	}
	return images.Make(ctx, opt, func(d *image.Draft) error { return packError(src.Fill(ctx, d)) })
}

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
