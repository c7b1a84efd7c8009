package images

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/image"
	"ramet.dev/ramet/internal/node/fsview"
	"ramet.dev/ramet/internal/service/access"
	"ramet.dev/ramet/internal/service/audit"
)

// Config is what a Catalog needs of the node.
type Config struct {
	Store *image.Store
	Log   *slog.Logger
	// PackageCache is the directory of cached packages, and PackageCacheBytes how many
	// bytes of them are kept; 0 for all.
	PackageCache      string
	PackageCacheBytes int64
	// Users reports whether sandboxes or snapshots are made of an image, and which of
	// them the caller sees. It is called with the lock of the catalog held.
	Users func(caller access.Caller, id string) (used bool, by []string)
	// View opens the files of the sandbox or snapshot that ref refers to.
	View func(ctx context.Context, ref string) (*fsview.View, error)
	// Scratch starts a sandbox from an image.
	Scratch func(ctx context.Context, id string) (Scratch, error)
	// Committed is told that an image was made of the sandbox or snapshot of.
	Committed func(ctx context.Context, of, image string)
	// Turn waits until a heavy operation of the caller may begin. The result is called
	// at its end.
	Turn func(ctx context.Context) (done func(), err error)
	// Observe is told of an operation that begins, and the result of its end.
	Observe func(ctx context.Context, operation string) (context.Context, func(*error))
}

// Scratch is a sandbox in which an image is finished. It has no record, users do not see
// it, and it ends with the daemon.
type Scratch interface {
	// Run runs a command to its end and returns its exit code and the end of its output.
	Run(ctx context.Context, argv []string, env map[string]string) (code int, output string, err error)
	// View opens the present files.
	View(ctx context.Context) (*fsview.View, error)
	Close()
}

// Catalog is the images of all tenants. It is safe for concurrent use.
type Catalog struct {
	cfg Config

	mu       sync.Mutex         // held while an image is removed
	makings  map[making]*flight // images that are being made; guarded by mu
	uses     map[string]int     // what is being made of images, by id; guarded by mu
	building int                // builds under way; guarded by mu
}

// New returns a catalog of the images in cfg.Store.
func New(cfg Config) *Catalog {
	return &Catalog{cfg: cfg, uses: map[string]int{}, makings: map[making]*flight{}}
}

// Images lists the images.
func (c *Catalog) Images(ctx context.Context) ([]api.Image, error) {
	images, err := c.visible(ctx)
	if err != nil {
		return nil, err
	}
	if access.From(ctx).AllTenants {
		images = c.cfg.Store.ForEveryone()
	}
	return images.List()
}

// visible returns the images as the caller sees them. The owner of the daemon also sees
// images that have lost all their names.
func (c *Catalog) visible(ctx context.Context) (*image.Store, error) {
	caller := access.From(ctx)
	switch err := caller.Known(); {
	case err != nil:
		return nil, err
	case caller.Owner:
		return c.cfg.Store.ForAll(), nil
	}
	return c.cfg.Store.For(access.Recorded(caller.Tenant)), nil
}

// FindImage returns the image that the caller calls ref: an id, a name, or the reference in a
// registry that it was pulled by.
func (c *Catalog) FindImage(ctx context.Context, ref string) (api.Image, error) {
	images, err := c.visible(ctx)
	if err != nil {
		return api.Image{}, err
	}
	img, err := images.Resolve(ref)
	if code := api.CodeOf(err); code != api.CodeNotFound && code != api.CodeInvalid {
		return img, err
	}
	local, source, ok := image.NamesOf(ref)
	if !ok || local == ref {
		return img, err
	}
	// The name in the store has neither the port nor the default registry. Images of several
	// references can have it if it lacks the port, or is like the names that users give.
	if found, ferr := images.Resolve(local); local != "" && ferr == nil {
		ambiguous := api.CodeOf(err) == api.CodeInvalid || !strings.ContainsAny(local, "/:")
		if !ambiguous || found.Source == source {
			return found, nil
		}
	}
	if local == "" { // a digest
		list, err := images.List()
		if err != nil {
			return api.Image{}, err
		}
		if i := slices.IndexFunc(list, func(i api.Image) bool { return i.Source == source }); i >= 0 {
			return list[i], nil
		}
	}
	return api.Image{}, api.NotFound("image", ref)
}

// GetImage returns one image.
func (c *Catalog) GetImage(ctx context.Context, ref string) (*api.Image, error) {
	img, err := c.FindImage(ctx, ref)
	if err != nil {
		return nil, err
	}
	return &img, nil
}

// OpenImage opens the image with an id.
func (c *Catalog) OpenImage(id string) (*os.File, error) {
	path, err := c.cfg.Store.Path(id)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open image: %w", err)
	}
	return f, nil
}

// UseImage keeps an image while something is made of it that Config.Users does not list
// yet, until the result is called. The caller looks for the image afterwards.
func (c *Catalog) UseImage(id string) (release func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.uses[id]++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.uses[id]--; c.uses[id] == 0 {
			delete(c.uses, id)
		}
	}
}

// GiveImage lets a tenant use an image that the caller has.
func (c *Catalog) GiveImage(ctx context.Context, tenant string, req api.GiveRequest) (*api.Image, error) {
	if err := access.From(ctx).OwnerOnly("gives images away"); err != nil {
		return nil, err
	}
	if err := api.ValidTenant(tenant); err != nil {
		return nil, err
	}
	from, err := c.visible(ctx)
	if err != nil {
		return nil, err
	}
	img, err := from.Resolve(req.Image)
	if err != nil {
		return nil, err
	}
	name := req.Name
	if name == "" && len(img.Names) > 0 {
		name = img.Names[0]
	}
	audit.Of(ctx).Object(tenant)
	given, err := from.Give(img.ID, access.Recorded(tenant), name, req.Replace)
	if err != nil {
		return nil, err
	}
	note(ctx, img.ID)
	return &given, nil
}

// ImageOwners returns the tenants that have an image.
func (c *Catalog) ImageOwners() (map[string]bool, error) {
	list, err := c.cfg.Store.ForEveryone().List()
	if err != nil {
		return nil, err
	}
	owners := map[string]bool{}
	for _, img := range list {
		for tenant := range img.Tenants {
			owners[tenant] = true
		}
	}
	return owners, nil
}

// note adds to the audit which image was made.
func note(ctx context.Context, id string) {
	audit.Of(ctx).Object(id)
	audit.Of(ctx).Set(func(d *api.AuditDetails) { d.Image = id })
}
