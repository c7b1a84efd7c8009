package limitfs

import (
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/fsimpl/kernfs"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
)

// Name is that of the file system's type, by which programs find it in /proc/self/mountinfo.
const Name = "cgroup2"

// Limits are the numbers that are shown, 0 for none.
type Limits struct {
	Memory int64 // bytes
	CPU    int64 // microseconds of processor time in each period
	Pids   int64
}

// Period is that of Limits.CPU, in microseconds.
const Period = 100_000

// FilesystemType implements vfs.FilesystemType. It takes a Limits as internal data.
type FilesystemType struct{}

// Name implements vfs.FilesystemType.Name.
func (*FilesystemType) Name() string { return Name }

// Release implements vfs.FilesystemType.Release.
func (*FilesystemType) Release(context.Context) {}

// GetFilesystem implements vfs.FilesystemType.GetFilesystem.
func (t *FilesystemType) GetFilesystem(ctx context.Context, v *vfs.VirtualFilesystem, _ *auth.Credentials, _ string, opts vfs.GetFilesystemOptions) (*vfs.Filesystem, *vfs.Dentry, error) {
	limits, ok := opts.InternalData.(Limits)
	if !ok {
		return nil, nil, linuxerr.EPERM
	}
	minor, err := v.GetAnonBlockDevMinor()
	if err != nil {
		return nil, nil, err
	}
	fs := &filesystem{minor: minor}
	fs.VFSFilesystem().Init(v, t, fs)
	creds := auth.NewRootCredentials(auth.CredentialsFromContext(ctx).UserNamespace.Root())
	children := map[string]kernfs.Inode{}
	for name := range groupFiles {
		f := &file{name: name, limits: limits}
		f.Init(ctx, creds, linux.UNNAMED_MAJOR, minor, fs.NextIno(), f, 0o444)
		children[name] = f
	}
	root := &directory{}
	root.Init(ctx, creds, linux.UNNAMED_MAJOR, minor, fs.NextIno(), 0o555, kernfs.GenericDirectoryFDOptions{SeekEnd: kernfs.SeekEndStaticEntries})
	root.InitRefs()
	root.OrderedChildren.Init(kernfs.OrderedChildrenOptions{})
	root.Populate(children)
	var d kernfs.Dentry
	d.InitRoot(&fs.Filesystem, root)
	return fs.VFSFilesystem(), d.VFSDentry(), nil
}

// filesystem implements vfs.FilesystemImpl.
type filesystem struct {
	kernfs.Filesystem
	minor uint32
}

// Release implements vfs.FilesystemImpl.Release.
func (fs *filesystem) Release(ctx context.Context) {
	fs.VFSFilesystem().VirtualFilesystem().PutAnonBlockDevMinor(fs.minor)
	fs.Filesystem.Release(ctx)
}

// MountOptions implements vfs.FilesystemImpl.MountOptions.
func (*filesystem) MountOptions() string { return "" }

// statFS says that a file is of version 2 of control groups.
func statFS() (linux.Statfs, error) { return vfs.GenericStatFS(linux.CGROUP2_SUPER_MAGIC), nil }

// directory is the root directory.
type directory struct {
	kernfs.StaticDirectory
}

// StatFS implements kernfs.Inode.StatFS.
func (*directory) StatFS(context.Context, *vfs.Filesystem) (linux.Statfs, error) { return statFS() }
