package kern

import (
	"fmt"
	"io"
	"os"
	"path"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/fspath"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
	"gvisor.dev/gvisor/pkg/usermem"

	"ramet.dev/ramet/api"
)

// PathAt names a path, with a symbolic link at its end followed.
func PathAt(root vfs.VirtualDentry, path string) *vfs.PathOperation {
	return &vfs.PathOperation{Root: root, Start: root, Path: fspath.Parse(path), FollowFinalSymlink: true}
}

// LinkAt names a path whose final symbolic link stands for itself.
func LinkAt(root vfs.VirtualDentry, path string) *vfs.PathOperation {
	pop := PathAt(root, path)
	pop.FollowFinalSymlink = false
	return pop
}

// PathIn names a file in an open directory. A symbolic link stands for itself.
func PathIn(root vfs.VirtualDentry, dir *vfs.FileDescription, name string) *vfs.PathOperation {
	return &vfs.PathOperation{Root: root, Start: dir.VirtualDentry(), Path: fspath.Parse(name)}
}

// MakeDir makes a directory unless there is something of that name.
func (k *Kernel) MakeDir(ctx context.Context, creds *auth.Credentials, root vfs.VirtualDentry, path string, mode linux.FileMode) error {
	// mkdir(2) never follows a link at the end of a path.
	err := k.VFS().MkdirAt(ctx, creds, LinkAt(root, path), &vfs.MkdirOptions{Mode: mode})
	if err != nil && !linuxerr.Equals(linuxerr.EEXIST, err) {
		return fmt.Errorf("make directory %s: %w", path, err)
	}
	return nil
}

// MakeDirOf makes a directory of the sandbox, unless it is there. Those above it must be.
func (k *Kernel) MakeDirOf(ctx context.Context, path string) error {
	root, err := k.Root(ctx)
	if err != nil {
		return err
	}
	defer root.DecRef(ctx)
	return k.MakeDir(ctx, k.RootCredentials(), root, path, 0o755)
}

// ModeOf returns the type and mode of a file, which root looks up.
func (k *Kernel) ModeOf(ctx context.Context, mns *vfs.MountNamespace, name string) (linux.FileMode, error) {
	root := mns.Root(ctx)
	defer root.DecRef(ctx)
	st, err := k.VFS().StatAt(ctx, k.RootCredentials(), PathAt(root, name), &vfs.StatOptions{Mask: linux.STATX_TYPE})
	return linux.FileMode(st.Mode), err
}

// ListDir returns the names in a directory of the sandbox.
func (k *Kernel) ListDir(ctx context.Context, dir string) ([]string, error) {
	root, err := k.Root(ctx)
	if err != nil {
		return nil, err
	}
	defer root.DecRef(ctx)
	file, err := k.VFS().OpenAt(ctx, k.RootCredentials(), PathAt(root, dir), &vfs.OpenOptions{Flags: linux.O_RDONLY | linux.O_DIRECTORY})
	if err != nil {
		return nil, err
	}
	defer file.DecRef(ctx)
	var names []string
	err = file.IterDirents(ctx, vfs.IterDirentsCallbackFunc(func(d vfs.Dirent) error {
		if d.Name != "." && d.Name != ".." {
			names = append(names, d.Name)
		}
		return nil
	}))
	return names, err
}

// WriteFile writes a file of root's, with the directory that it is in.
func (k *Kernel) WriteFile(ctx context.Context, name, text string) error {
	root, err := k.Root(ctx)
	if err != nil {
		return err
	}
	defer root.DecRef(ctx)
	creds := k.RootCredentials()
	if err := k.MakeDir(ctx, creds, root, path.Dir(name), 0o755); err != nil {
		return err
	}
	// It may be a pipe, and nothing would end the wait for its reader.
	opts := &vfs.OpenOptions{Flags: linux.O_WRONLY | linux.O_CREAT | linux.O_NONBLOCK, Mode: 0o644}
	file, err := k.VFS().OpenAt(ctx, creds, PathAt(root, name), opts)
	if err != nil && k.VFS().UnlinkAt(ctx, creds, LinkAt(root, name)) == nil { // a link to nowhere, or a pipe without a reader
		file, err = k.VFS().OpenAt(ctx, creds, PathAt(root, name), opts)
	}
	if err != nil {
		return err
	}
	defer file.DecRef(ctx)
	// An existing file is overwritten in place, which the limit of the disk does not
	// refuse: a sandbox whose disk is full can still be forked.
	n, err := file.Write(ctx, usermem.BytesIOSequence([]byte(text)), vfs.WriteOptions{})
	if err == nil && int(n) < len(text) {
		err = linuxerr.ENOSPC
	}
	if err != nil {
		return err
	}
	err = file.SetStat(ctx, vfs.SetStatOptions{Stat: linux.Statx{Mask: linux.STATX_SIZE, Size: uint64(len(text))}})
	if linuxerr.Equals(linuxerr.EINVAL, err) {
		return nil // no regular file
	}
	return err
}

// FileReader returns a reader of a guest file from where it stands.
func FileReader(ctx context.Context, file *vfs.FileDescription) io.Reader {
	return &fileReader{ctx, file}
}

type fileReader struct {
	ctx  context.Context
	file *vfs.FileDescription
}

// Read implements io.Reader.
func (r *fileReader) Read(buf []byte) (int, error) {
	n, err := r.file.Read(r.ctx, usermem.BytesIOSequence(buf), vfs.ReadOptions{})
	if n == 0 && err == nil && len(buf) > 0 {
		err = io.EOF
	}
	return int(n), err
}

// MapFile maps a file of the host for reading.
func MapFile(f *os.File) ([]byte, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("stat %s: %w", f.Name(), err)
	}
	if st.Size() == 0 {
		return nil, api.Errorf(api.CodeCorrupt, "%s is empty", f.Name())
	}
	data, err := unix.Mmap(int(f.Fd()), 0, int(st.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", f.Name(), err)
	}
	return data, nil
}
