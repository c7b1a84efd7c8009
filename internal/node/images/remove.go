package images

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/image"
	"ramet.dev/ramet/internal/image/debian/pkgcache"
	"ramet.dev/ramet/internal/service/access"
)

// RemoveImage removes a name of an image, and the image with its last one. An
// image that sandboxes or snapshots need stays.
func (c *Catalog) RemoveImage(ctx context.Context, ref string) error {
	if err := access.From(ctx).MayMakeTree("or remove images"); err != nil {
		return err
	}
	images, err := c.visible(ctx)
	if err != nil {
		return err
	}
	return c.remove(access.From(ctx), images, ref)
}

// remove tells the caller by what of its own an image is used.
func (c *Catalog) remove(caller access.Caller, from *image.Store, ref string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := from.Remove(ref, func(id string) error {
		used, by := c.users(caller, id)
		switch {
		case !used:
			return nil
		case len(by) == 0: // by what is being made, or is kept for a sandbox, or is another tenant's
			return api.Errorf(api.CodeConflict, "image %s is in use", ref)
		}
		those := "them"
		if len(by) == 1 {
			those = "that"
		}
		return api.Errorf(api.CodeConflict, "image %s is in use by %s: remove %s first", ref, shortList(by), those)
	})
	return err
}

// errNeeded keeps an image from being pruned.
var errNeeded = errors.New("the image is needed")

// PruneImages removes the images that have no name any more, as builds and imports of
// the same name leave them, and that nothing is made of. The cached packages are all
// tenants'.
func (c *Catalog) PruneImages(ctx context.Context, req api.PruneRequest) (*api.Pruned, error) {
	caller := access.From(ctx)
	if err := caller.MayMakeTree("or remove images"); err != nil {
		return nil, err
	}
	if req.Cache && !caller.Operator() {
		return nil, api.Errorf(api.CodeForbidden, "cache: the cached packages are all tenants': the owner of the daemon removes them, or a token of tenant %s with scope admin that is bound to nothing", access.DefaultTenant)
	}
	list, err := c.Images(ctx)
	if err != nil {
		return nil, err
	}
	out := &api.Pruned{Removed: []string{}}
	if req.Cache {
		gone, err := pkgcache.Prune(c.cfg.PackageCache, time.Duration(req.CacheUnusedMS)*time.Millisecond)
		if err != nil {
			return nil, fmt.Errorf("prune cached packages: %w", err)
		}
		out.Packages, out.FreedBytes = gone.Files, gone.Bytes
	}
	for _, img := range list {
		if len(img.Names) > 0 {
			continue
		}
		gone, err := c.prune(&img)
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

func (c *Catalog) prune(img *api.Image) (gone bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.building > 0 && img.Source == "" { // it may be what a build has unpacked so far
		return false, nil
	}
	gone, err = c.cfg.Store.RemoveNameless(img.ID, func(id string) error {
		if used, _ := c.users(access.Caller{}, id); used {
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
func (c *Catalog) beginBuild() (done func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.building++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.building--
	}
}

// users reports whether an image is used, and by which sandboxes and snapshots that the
// caller sees. It is called with c.mu held.
func (c *Catalog) users(caller access.Caller, id string) (used bool, by []string) {
	used, by = c.cfg.Users(caller, id)
	return used || c.uses[id] > 0, by
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
