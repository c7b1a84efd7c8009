package volumes

import (
	"context"

	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/storage/volume"
)

// heldFile is a file of a volume that has no name and is open in a sandbox. It is there as long as
// one of the sandboxes lives that opened it, and this daemon: the next one removes such files.
type heldFile struct {
	volume string
	ino    uint64
}

// opened notes that a sandbox opened a file, which may be one without a name: a child does so with
// what its parent had open.
func (v *Volumes) opened(s *launch.Sentry, f heldFile) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if having := v.held[f]; having != nil {
		having[s] = true
	}
}

// forget notes that a sandbox does not need a file any more, which is removed with the last one.
func (v *Volumes) forget(ctx context.Context, s *launch.Sentry, f heldFile, files *volume.Volume) error {
	v.mu.Lock()
	having := v.held[f]
	delete(having, s)
	last := having != nil && len(having) == 0
	if last {
		delete(v.held, f)
	}
	v.mu.Unlock()
	if !last {
		return nil
	}
	return files.Forget(ctx, f.ino)
}

// forgetAll is forget for all files of a sandbox that ended.
func (v *Volumes) forgetAll(s *launch.Sentry) {
	type of struct {
		file  heldFile
		files *volume.Volume
	}
	var all []of
	v.mu.Lock()
	for f, having := range v.held {
		if e := v.all[f.volume]; having[s] && e != nil && e.opened != nil {
			all = append(all, of{f, e.opened})
		}
	}
	v.mu.Unlock()
	for _, x := range all {
		if err := v.forget(context.Background(), s, x.file, x.files); err != nil {
			v.cfg.Log.Warn("remove a file without a name", "volume", x.file.volume, "error", err)
		}
	}
}
