package build

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"path"
	"slices"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/build/contextdir"
	"ramet.dev/ramet/internal/build/dockerfile"
)

// cachePrefix begins the names of the volumes that caches are.
const cachePrefix = "build-cache-"

// runApart runs a command that has secrets or caches. Its sandbox is never frozen: the files are committed as an image,
// and the sandbox ends.
func (w *worker) runApart(step *dockerfile.Step) (err error) {
	w.drop()
	var volumes []api.VolumeMount
	for _, m := range step.Run.Mounts {
		if m.Kind != dockerfile.MountCache {
			continue
		}
		name, err := w.cache(m.ID)
		if err != nil {
			return err
		}
		volumes = append(volumes, api.VolumeMount{Volume: name, Path: m.Target, ReadOnly: m.ReadOnly})
	}
	if w.id, err = w.start(w.from, volumes...); err != nil {
		return err
	}
	defer w.drop()
	if err := w.run(step.Run); err != nil {
		return err
	}
	img, err := w.client.Images.Commit(w.ctx, w.id, api.CommitRequest{Name: stateName(step.Key), Message: stepMessage, Replace: true}, func(api.Progress) {})
	if err != nil {
		return err
	}
	w.from = state{image: img.ID}
	return nil
}

// drop destroys the sandbox of the worker.
func (w *worker) drop() {
	if w.id == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.ctx), cleanup)
	defer cancel()
	_ = w.client.Sandboxes.Destroy(ctx, w.id) // the end of the build tries it again
	w.id, w.closed = "", false
}

// cache returns the volume of a cache, which is made if there is none.
func (w *worker) cache(id string) (string, error) {
	sum := sha256.Sum256([]byte(id))
	name := cachePrefix + hex.EncodeToString(sum[:8])
	_, err := w.client.Volumes.Create(w.ctx, api.VolumeRequest{Name: name})
	if api.CodeOf(err) == api.CodeNameTaken {
		err = nil
	}
	return name, err
}

// mount makes the mounts of a command. It returns the variables that the command has, and the files to remove when it
// has ended.
func (w *worker) mount(r *dockerfile.Run) (env map[string]string, unmount []string, err error) {
	env = r.Env
	for i := range r.Mounts {
		m := &r.Mounts[i]
		if m.Kind == dockerfile.MountCache {
			continue // the sandbox was made with it
		}
		if m.Kind == dockerfile.MountSecret {
			text, ok := w.Secrets[m.ID]
			if !ok {
				continue // it is not required
			}
			if m.Env != "" {
				env = maps.Clone(env)
				env[m.Env] = text
			}
			if m.Target == "" {
				continue
			}
		}
		made, err := w.vacant(m.Target)
		if err != nil {
			return nil, nil, err
		}
		unmount = append(unmount, made)
		if err := w.fill(m); err != nil {
			return nil, nil, err
		}
	}
	return env, unmount, nil
}

// contents is the end of a path whose directory stays when it is removed.
const contents = "/."

// vacant checks that nothing is at a target that mounting would hide, and returns the path to remove afterwards.
func (w *worker) vacant(target string) (string, error) {
	info, err := w.client.Files.Stat(w.ctx, w.id, api.FileRef{Path: target})
	if api.CodeOf(err) == api.CodeNotFound {
		return target, nil
	}
	if err != nil {
		return "", err
	}
	entries := 0
	if info.Type == "dir" {
		err = w.client.Files.List(w.ctx, w.id, api.ListRequest{FileRef: api.FileRef{Path: target}, Depth: 1}, func(api.FileInfo) error {
			entries++
			return nil
		})
	}
	if err == nil && (info.Type != "dir" || entries > 0) {
		err = api.Errorf(api.CodeUnsupported, "RUN --mount at %s is not supported: the stage has files there", target)
	}
	return target + contents, err
}

// fill puts the files of a mount in place.
func (w *worker) fill(m *dockerfile.Mount) error {
	switch m.Kind {
	case dockerfile.MountBind:
		return w.copy(m.Copy)
	case dockerfile.MountTmpfs:
		return w.makeDir(m.Target, contextdir.Attributes{})
	}
	if err := w.makeDir(path.Dir(m.Target), contextdir.Attributes{}); err != nil {
		return err
	}
	return w.send(path.Dir(m.Target), func(to *archive) error {
		return to.file(path.Base(m.Target), w.Secrets[m.ID], contextdir.Attributes{UID: m.UID, GID: m.GID, Mode: &m.Mode})
	})
}

// remove removes files, the last one first, or what is in directories.
func (w *worker) remove(paths []string) error {
	for _, p := range slices.Backward(paths) {
		remove := []string{p}
		if dir := path.Clean(p); dir != p {
			remove = nil
			err := w.client.Files.List(w.ctx, w.id, api.ListRequest{FileRef: api.FileRef{Path: dir}, Depth: 1}, func(f api.FileInfo) error {
				remove = append(remove, f.Path)
				return nil
			})
			if err != nil {
				return err
			}
		}
		for _, p := range remove {
			_, err := w.client.Files.Change(w.ctx, w.id, api.FileChange{FileRef: api.FileRef{Path: p, NoFollow: true}, Action: api.FileRemove, Recursive: true})
			if err != nil && api.CodeOf(err) != api.CodeNotFound {
				return err
			}
		}
	}
	return nil
}
