package build

import (
	"context"
	"slices"
	"strings"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
)

// statePrefix begins the names of kept states.
const statePrefix = "build-"

// stepMessage describes an image that is a kept state.
const stepMessage = "build step"

// Prune removes the states and caches that builds have kept, those made before a time. It returns how many. States
// that others depend on are removed too: snapshots do not lose their files.
func Prune(ctx context.Context, c *client.Client, before time.Time) (removed int, err error) {
	snaps, err := c.Snapshots.List(ctx)
	if err != nil {
		return 0, err
	}
	for _, s := range slices.Backward(snaps) {
		if s.Metadata[MetaStep] == "" || !strings.HasPrefix(s.Name, statePrefix) || s.CreatedAt.After(before) {
			continue
		}
		if err := c.Snapshots.Delete(ctx, s.ID, api.SnapshotDeletion{Flatten: true}); err != nil && api.CodeOf(err) != api.CodeNotFound {
			return removed, err
		}
		removed++
	}
	images, err := c.Images.List(ctx)
	if err != nil {
		return removed, err
	}
	for _, img := range images {
		if !strings.HasSuffix(img.Source, ": "+stepMessage) || img.CreatedAt.After(before) {
			continue
		}
		for _, name := range img.Names {
			if !strings.HasPrefix(name, statePrefix) {
				continue
			}
			switch err := c.Images.Remove(ctx, name); api.CodeOf(err) {
			case "":
				removed++
			case api.CodeNotFound, api.CodeConflict: // a sandbox uses it
			default:
				return removed, err
			}
		}
	}
	volumes, err := c.Volumes.List(ctx)
	if err != nil {
		return removed, err
	}
	for _, v := range volumes {
		if !strings.HasPrefix(v.Name, cachePrefix) || v.CreatedAt.After(before) {
			continue
		}
		switch err := c.Volumes.Remove(ctx, v.ID); api.CodeOf(err) {
		case "":
			removed++
		case api.CodeNotFound, api.CodeConflict:
		default:
			return removed, err
		}
	}
	return removed, nil
}
