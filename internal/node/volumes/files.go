package volumes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/storage/volume"
)

// Files and directories that clients make belong to root, and have these modes, unless the client
// says otherwise.
const (
	defaultFile = 0o644
	defaultDir  = 0o755
)

// maxDepth bounds how deep a list goes.
const maxDepth = 64

// maxListed bounds the entries of a list.
const maxListed = 100_000

// files returns the files of a volume, which is not removed until release is called.
func (v *Volumes) files(ctx context.Context, ref string) (files *volume.Volume, release func(), err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	e, err := v.find(ctx, ref)
	if err != nil {
		return nil, nil, err
	}
	if files, err = v.open(e); err != nil {
		return nil, nil, err
	}
	e.uses++
	return files, func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		e.uses--
	}, nil
}

// split returns the components of a path in a volume.
func split(p string) ([]string, error) {
	if strings.ContainsRune(p, 0) {
		return nil, api.Invalid("path", "%q has a zero byte", p)
	}
	clean := path.Clean("/" + p)
	if clean == "/" {
		return nil, nil
	}
	return strings.Split(clean[1:], "/"), nil
}

// walk returns what a path leads to. Symbolic links are not followed.
func walk(ctx context.Context, f *volume.Volume, parts []string) (*volume.Attr, error) {
	a, err := f.Stat(ctx, volume.Root)
	for _, part := range parts {
		if err != nil {
			return nil, err
		}
		if a.Mode&unix.S_IFMT != unix.S_IFDIR {
			return nil, unix.ENOTDIR
		}
		a, err = f.Lookup(ctx, a.Ino, []byte(part))
	}
	return a, err
}

// pathError returns the error that users get of a path.
func pathError(p string, err error) error {
	var e unix.Errno
	if err == nil || !errors.As(err, &e) {
		return err
	}
	code := api.CodeInvalid
	switch e {
	case unix.ENOENT, unix.ESTALE, unix.ENOTDIR:
		code = api.CodeNotFound
	case unix.EEXIST, unix.ENOTEMPTY:
		code = api.CodeConflict
	case unix.ENOSPC:
		code = api.CodeNoSpace
	case unix.EIO:
		code = api.CodeInternal
	}
	return api.Errorf(code, "%s: %w", p, err)
}

func entryOf(ctx context.Context, f *volume.Volume, parts []string, a *volume.Attr) (api.VolumeEntry, error) {
	e := api.VolumeEntry{
		Path: "/" + strings.Join(parts, "/"), Size: a.Size, Mode: a.Mode &^ unix.S_IFMT, UID: a.UID, GID: a.GID,
		ATime: time.Unix(0, a.Atime).UTC(), MTime: time.Unix(0, a.Mtime).UTC(), CTime: time.Unix(0, a.Ctime).UTC(),
	}
	switch a.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		e.Type = "file"
	case unix.S_IFDIR:
		e.Type = "dir"
	case unix.S_IFLNK:
		e.Type = "symlink"
		target, err := f.Readlink(ctx, a.Ino)
		e.Target = string(target)
		return e, err
	case unix.S_IFIFO:
		e.Type = "fifo"
	case unix.S_IFSOCK:
		e.Type = "socket"
	default:
		e.Type = "device"
	}
	return e, nil
}

// at calls do with the files of a volume and the components of a path.
func (v *Volumes) at(ctx context.Context, ref, p string, do func(f *volume.Volume, parts []string) error) error {
	parts, err := split(p)
	if err != nil {
		return err
	}
	f, release, err := v.files(ctx, ref)
	if err != nil {
		return err
	}
	defer release()
	return pathError(p, do(f, parts))
}

// VolumeStat describes what is at a path.
func (v *Volumes) VolumeStat(ctx context.Context, ref, p string) (out *api.VolumeEntry, err error) {
	err = v.at(ctx, ref, p, func(f *volume.Volume, parts []string) error {
		a, err := walk(ctx, f, parts)
		if err != nil {
			return err
		}
		e, err := entryOf(ctx, f, parts, a)
		out = &e
		return err
	})
	return out, err
}

// VolumeList describes what is in a directory, and so many levels deep.
func (v *Volumes) VolumeList(ctx context.Context, ref, p string, depth int) (list []api.VolumeEntry, err error) {
	if depth < 1 || depth > maxDepth {
		return nil, api.Invalid("depth", "%d is not from 1 to %d", depth, maxDepth)
	}
	err = v.at(ctx, ref, p, func(f *volume.Volume, parts []string) error {
		dir, err := walk(ctx, f, parts)
		if err != nil {
			return err
		}
		if dir.Mode&unix.S_IFMT != unix.S_IFDIR {
			return unix.ENOTDIR
		}
		list, err = appendBelow(ctx, f, []api.VolumeEntry{}, parts, dir.Ino, depth)
		return err
	})
	return list, err
}

func appendBelow(ctx context.Context, f *volume.Volume, list []api.VolumeEntry, parts []string, dir uint64, depth int) ([]api.VolumeEntry, error) {
	var after []byte
	for {
		const page = 1000
		entries, err := f.List(ctx, dir, after, page)
		if err != nil {
			return nil, err
		}
		for _, n := range entries {
			after = n.Name
			if len(list) >= maxListed {
				return nil, api.Errorf(api.CodeLimit, "there are more than %d files: ask for less depth", maxListed)
			}
			a, err := f.Stat(ctx, n.Ino)
			if errors.Is(err, unix.ESTALE) {
				continue // it was removed meanwhile
			}
			if err != nil {
				return nil, err
			}
			at := append(parts[:len(parts):len(parts)], string(n.Name))
			e, err := entryOf(ctx, f, at, a)
			if err != nil {
				return nil, err
			}
			list = append(list, e)
			if depth > 1 && e.Type == "dir" {
				if list, err = appendBelow(ctx, f, list, at, n.Ino, depth-1); err != nil {
					return nil, err
				}
			}
		}
		if len(entries) < page {
			return list, nil
		}
	}
}

// value returns what p points to, or a default.
func value(p *uint32, or uint32) uint32 {
	if p == nil {
		return or
	}
	return *p
}

// parent returns the directory that the last component is in, and makes those that there are not
// if the options say so.
func parent(ctx context.Context, f *volume.Volume, parts []string, o api.VolumeFileOptions) (uint64, error) {
	dir := uint64(volume.Root)
	for _, part := range parts[:len(parts)-1] {
		a, err := f.Lookup(ctx, dir, []byte(part))
		if errors.Is(err, unix.ENOENT) && o.Parents {
			a, err = f.Make(ctx, dir, []byte(part), volume.Node{Mode: unix.S_IFDIR | defaultDir, UID: value(o.UID, 0), GID: value(o.GID, 0)})
			if errors.Is(err, unix.EEXIST) { // somebody else made it
				a, err = f.Lookup(ctx, dir, []byte(part))
			}
		}
		if err != nil {
			return 0, err
		}
		if a.Mode&unix.S_IFMT != unix.S_IFDIR {
			return 0, unix.ENOTDIR
		}
		dir = a.Ino
	}
	return dir, nil
}

// VolumeMkdir makes a directory. One that is there already is an error of CodeConflict, unless
// the options ask for parents.
func (v *Volumes) VolumeMkdir(ctx context.Context, ref, p string, o api.VolumeFileOptions) (out *api.VolumeEntry, err error) {
	err = v.at(ctx, ref, p, func(f *volume.Volume, parts []string) error {
		if len(parts) == 0 {
			return unix.EEXIST
		}
		dir, err := parent(ctx, f, parts, o)
		if err != nil {
			return err
		}
		name := []byte(parts[len(parts)-1])
		a, err := f.Make(ctx, dir, name, volume.Node{Mode: unix.S_IFDIR | value(o.Mode, defaultDir)&0o7777, UID: value(o.UID, 0), GID: value(o.GID, 0)})
		if errors.Is(err, unix.EEXIST) && o.Parents {
			if a, err = f.Lookup(ctx, dir, name); err == nil && a.Mode&unix.S_IFMT != unix.S_IFDIR {
				err = unix.EEXIST
			}
		}
		if err != nil {
			return err
		}
		e, err := entryOf(ctx, f, parts, a)
		out = &e
		return err
	})
	return out, err
}

// VolumeChange changes the owner, the group or the mode of what is at a path.
func (v *Volumes) VolumeChange(ctx context.Context, ref, p string, o api.VolumeFileOptions) (out *api.VolumeEntry, err error) {
	err = v.at(ctx, ref, p, func(f *volume.Volume, parts []string) error {
		a, err := walk(ctx, f, parts)
		if err != nil {
			return err
		}
		if a, err = f.SetAttr(ctx, a.Ino, volume.Changes{Mode: o.Mode, UID: o.UID, GID: o.GID}); err != nil {
			return err
		}
		e, err := entryOf(ctx, f, parts, a)
		out = &e
		return err
	})
	return out, err
}

// VolumeRemove removes what is at a path, with all that is in it.
func (v *Volumes) VolumeRemove(ctx context.Context, ref, p string) error {
	return v.at(ctx, ref, p, func(f *volume.Volume, parts []string) error {
		if len(parts) == 0 {
			return api.Invalid("path", "the root of a volume cannot be removed: remove the volume")
		}
		dir, err := parent(ctx, f, parts, api.VolumeFileOptions{})
		if err != nil {
			return err
		}
		return removeAll(ctx, f, dir, []byte(parts[len(parts)-1]))
	})
}

func remove(ctx context.Context, f *volume.Volume, dir uint64, name []byte, isDir bool) error {
	_, err := f.Remove(ctx, dir, name, volume.Removal{Dir: isDir})
	return err
}

func removeAll(ctx context.Context, f *volume.Volume, dir uint64, name []byte) error {
	a, err := f.Lookup(ctx, dir, name)
	if err != nil {
		return err
	}
	if a.Mode&unix.S_IFMT != unix.S_IFDIR {
		return remove(ctx, f, dir, name, false)
	}
	for {
		err := remove(ctx, f, dir, name, true)
		if !errors.Is(err, unix.ENOTEMPTY) {
			return err
		}
		entries, err := f.List(ctx, a.Ino, nil, 1000)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if err := removeAll(ctx, f, a.Ino, e.Name); err != nil && !errors.Is(err, unix.ENOENT) {
				return err
			}
		}
	}
}

// VolumeRead opens a file for reading. The caller closes it.
func (v *Volumes) VolumeRead(ctx context.Context, ref, p string) (out io.ReadCloser, info *api.VolumeEntry, err error) {
	err = v.at(ctx, ref, p, func(f *volume.Volume, parts []string) error {
		a, err := walk(ctx, f, parts)
		if err != nil {
			return err
		}
		if a.Mode&unix.S_IFMT != unix.S_IFREG {
			return api.Invalid("path", "%s is no file", p)
		}
		e, err := entryOf(ctx, f, parts, a)
		if err != nil {
			return err
		}
		file, err := f.Data(ctx, a.Ino, unix.O_RDONLY)
		out, info = file, &e
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	return out, info, nil
}

// VolumeWrite replaces the contents of a file, which it makes if there is none. The new contents
// are there at once, when all was read: until then the file is as it was.
func (v *Volumes) VolumeWrite(ctx context.Context, ref, p string, in io.Reader, o api.VolumeFileOptions) (out *api.VolumeEntry, err error) {
	err = v.at(ctx, ref, p, func(f *volume.Volume, parts []string) error {
		if len(parts) == 0 {
			return unix.EISDIR
		}
		dir, err := parent(ctx, f, parts, o)
		if err != nil {
			return err
		}
		name := []byte(parts[len(parts)-1])
		n := volume.Node{Mode: unix.S_IFREG | value(o.Mode, defaultFile)&0o7777, UID: value(o.UID, 0), GID: value(o.GID, 0)}
		switch old, err := f.Lookup(ctx, dir, name); {
		case err == nil && old.Mode&unix.S_IFMT == unix.S_IFDIR:
			return unix.EISDIR
		case err == nil:
			n.Mode = unix.S_IFREG | value(o.Mode, old.Mode)&0o7777
			n.UID, n.GID = value(o.UID, old.UID), value(o.GID, old.GID)
		case !errors.Is(err, unix.ENOENT):
			return err
		}
		temporary := fmt.Appendf(nil, ".%s.%s", api.NewID(api.KindVolume), "part")
		a, err := f.Make(ctx, dir, temporary, n)
		if err != nil {
			return err
		}
		err = fill(ctx, f, a.Ino, in)
		if err == nil {
			_, err = f.Rename(ctx, dir, temporary, dir, name, false, false)
		}
		if err != nil {
			return errors.Join(err, remove(context.WithoutCancel(ctx), f, dir, temporary, false))
		}
		if a, err = f.Stat(ctx, a.Ino); err != nil {
			return err
		}
		e, err := entryOf(ctx, f, parts, a)
		out = &e
		return err
	})
	return out, err
}

// fill writes what can be read of in to a new file.
func fill(ctx context.Context, f *volume.Volume, ino uint64, in io.Reader) error {
	file, err := f.Data(ctx, ino, unix.O_RDWR)
	if err != nil {
		return err
	}
	defer file.Close()
	buf := make([]byte, 1<<20)
	var end int64
	for {
		n, err := io.ReadFull(in, buf)
		if n > 0 {
			if err := f.Grow(ctx, ino, end+int64(n)); err != nil {
				return err
			}
			if _, err := file.WriteAt(buf[:n], end); err != nil {
				return err
			}
			end += int64(n)
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
