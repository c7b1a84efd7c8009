package guest

import (
	"fmt"
	"slices"

	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/devices/memdev"
	"gvisor.dev/gvisor/pkg/sentry/devices/ttydev"
	"gvisor.dev/gvisor/pkg/sentry/fsimpl/dev"
	"gvisor.dev/gvisor/pkg/sentry/fsimpl/devpts"
	"gvisor.dev/gvisor/pkg/sentry/fsimpl/devtmpfs"
	"gvisor.dev/gvisor/pkg/sentry/fsimpl/mqfs"
	"gvisor.dev/gvisor/pkg/sentry/fsimpl/overlay"
	"gvisor.dev/gvisor/pkg/sentry/fsimpl/proc"
	"gvisor.dev/gvisor/pkg/sentry/fsimpl/sys"
	"gvisor.dev/gvisor/pkg/sentry/fsimpl/tmpfs"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
	"gvisor.dev/gvisor/pkg/sentry/usage"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
	"gvisor.dev/gvisor/pkg/usermem"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/sentry/guestinit"
	"ramet.dev/ramet/internal/sentry/kern"
	"ramet.dev/ramet/internal/sentry/limitfs"
	"ramet.dev/ramet/internal/sentry/rootfs"
	"ramet.dev/ramet/internal/sentry/volumes"
	"ramet.dev/ramet/internal/storage/cowfs"
	"ramet.dev/ramet/internal/storage/pages"
)

func registerFilesystems(k *kernel.Kernel) error {
	v := k.VFS()
	user := &vfs.RegisterFilesystemTypeOptions{AllowUserMount: true, AllowUserList: true}
	// In the place of gVisor's of that name: see package limitfs.
	v.MustRegisterFilesystemType(limitfs.Name, &limitfs.FilesystemType{}, &vfs.RegisterFilesystemTypeOptions{AllowUserList: true})
	v.MustRegisterFilesystemType(devpts.Name, &devpts.FilesystemType{}, user)
	v.MustRegisterFilesystemType(dev.Name, &dev.FilesystemType{}, &vfs.RegisterFilesystemTypeOptions{})
	v.MustRegisterFilesystemType(devtmpfs.Name, &devtmpfs.FilesystemType{}, user)
	v.MustRegisterFilesystemType(rootfs.Name, &rootfs.FilesystemType{}, &vfs.RegisterFilesystemTypeOptions{AllowUserList: true})
	v.MustRegisterFilesystemType(overlay.Name, &overlay.FilesystemType{}, user)
	v.MustRegisterFilesystemType(proc.Name, &limitfs.ProcType{}, user)
	v.MustRegisterFilesystemType(sys.Name, &sys.FilesystemType{}, user)
	v.MustRegisterFilesystemType(tmpfs.Name, &tmpfs.FilesystemType{}, user)
	v.MustRegisterFilesystemType(volumes.Name, &volumes.FilesystemType{}, &vfs.RegisterFilesystemTypeOptions{AllowUserList: true})
	v.MustRegisterFilesystemType(mqfs.Name, &mqfs.FilesystemType{}, user)
	if err := memdev.Register(v); err != nil {
		return fmt.Errorf("register memory devices: %w", err)
	}
	if err := ttydev.Register(v); err != nil {
		return fmt.Errorf("register terminal devices: %w", err)
	}
	return nil
}

// mountAll makes the sandbox's mount namespace.
func (g *Guest) mountAll(ctx context.Context, creds *auth.Credentials) (*vfs.MountNamespace, error) {
	src, err := g.disk.open(cowfs.State{Limit: g.id().Limits.DiskMiB << 20 / pages.PageSize})
	if err != nil {
		return nil, err
	}
	k := g.k
	mns, err := mountRoot(ctx, k, creds, src)
	if err != nil {
		return nil, err
	}
	root := mns.Root(ctx)
	defer root.DecRef(ctx)
	for _, m := range append(g.statelessMounts(), []mount{
		{path: "/dev", fs: dev.Name, flags: vfs.MountFlags{NoSUID: true}},
		{path: "/dev/pts", fs: devpts.Name, flags: vfs.MountFlags{NoSUID: true, NoExec: true}},
		{path: "/dev/shm", fs: tmpfs.Name, data: fmt.Sprintf("mode=1777,size=%d", usage.MaximumTotalMemoryBytes/2), flags: vfs.MountFlags{NoSUID: true, NoDev: true}},
	}...) {
		if m.path != groupDir { // which is there
			if err := k.MakeDir(ctx, creds, root, m.path, 0o755); err != nil {
				return nil, err
			}
		}
		if err := m.mountAt(ctx, k, creds, root); err != nil {
			return nil, err
		}
	}
	if err := k.MakeDir(ctx, creds, root, "/tmp", 0o1777); err != nil {
		return nil, err
	}
	g.disk.fs = root.Mount().Filesystem()
	g.disk.fs.IncRef() // the guest may unmount it, and its forks need it
	return mns, nil
}

// mountRoot makes a mount namespace whose root is src. Like Linux's, its first mount is an empty file system that
// programs cannot reach, and the root is mounted over it: pivot_root refuses a root that is the first mount.
func mountRoot(ctx context.Context, k *kern.Kernel, creds *auth.Credentials, src *rootfs.Source) (*vfs.MountNamespace, error) {
	mns, err := k.VFS().NewMountNamespace(ctx, creds, "rootfs", tmpfs.Name, &vfs.MountOptions{ReadOnly: true, Locked: true}, k.Kernel)
	if err != nil {
		return nil, fmt.Errorf("make mount namespace: %w", err)
	}
	first := mns.Root(ctx)
	defer first.DecRef(ctx)
	_, err = k.VFS().MountAt(ctx, creds, "", kern.PathAt(first, "/"), rootfs.Name, &vfs.MountOptions{
		GetFilesystemOptions: vfs.GetFilesystemOptions{InternalMount: true, InternalData: src},
	})
	if err != nil {
		return nil, fmt.Errorf("mount root: %w", err)
	}
	return mns, nil
}

// mount is one file system to mount.
type mount struct {
	path, fs, data string
	flags          vfs.MountFlags
	readOnly       bool
	internal       any
}

func (m *mount) mountAt(ctx context.Context, k *kern.Kernel, creds *auth.Credentials, root vfs.VirtualDentry) error {
	opts := &vfs.MountOptions{
		Flags:                m.flags,
		ReadOnly:             m.readOnly,
		GetFilesystemOptions: vfs.GetFilesystemOptions{Data: m.data, InternalData: m.internal, InternalMount: true},
	}
	_, err := k.VFS().MountAt(ctx, creds, "none", kern.PathAt(root, m.path), m.fs, opts)
	switch {
	case linuxerr.Equals(linuxerr.ENOENT, err), linuxerr.Equals(linuxerr.ELOOP, err), linuxerr.Equals(linuxerr.ENOTDIR, err):
		return api.Errorf(api.CodeUnsupported, "mount %s: the image has no directory there, but something that leads to none: %w", m.path, err)
	case err != nil:
		return fmt.Errorf("mount %s: %w", m.path, err)
	case m.fs != proc.Name:
		return nil
	}
	vd, err := k.VFS().GetDentryAt(ctx, creds, kern.PathAt(root, m.path), &vfs.GetDentryOptions{})
	if err != nil {
		return fmt.Errorf("find %s: %w", m.path, err)
	}
	defer vd.DecRef(ctx)
	// A sandbox of a version before limitfs.ProcType has gVisor's type.
	return limitfs.ReplaceProc(ctx, vd.Mount().Filesystem(), vd.Dentry())
}

// groupDir is where programs look for control groups.
const groupDir = "/sys/fs/cgroup"

// procOptions bound how many entries of /proc nobody uses are kept, which gVisor does for the last thousand. Each
// keeps the directory of its thread, of some forty objects: those of 80 threads of a browser, which has /proc open,
// were more than half of its state.
const procOptions = "dentry_cache_limit=4"

// statelessMounts returns the file systems that only show the kernel's state
// and have none of their own. Their hundreds of inodes are a third of what a
// save would have to write, so a freeze takes them away for as long as it
// lasts, and children mount new ones: see detachStateless. A file system that is mounted in
// another comes behind that.
func (g *Guest) statelessMounts() []mount {
	flags := vfs.MountFlags{NoExec: true, NoSUID: true, NoDev: true}
	return []mount{
		{path: "/proc", fs: proc.Name, data: procOptions, flags: flags, internal: &proc.InternalData{}},
		{path: "/sys", fs: sys.Name, flags: flags, internal: &sys.InternalData{}},
		{path: groupDir, fs: limitfs.Name, flags: flags, readOnly: true, internal: shownLimits(g.id().Limits)},
	}
}

// detachStateless unmounts file systems that can be mounted again without a process
// noticing, and returns their mount points. A file system in use stays. The kernel must be
// paused until attachStateless.
func (g *Guest) detachStateless(ctx context.Context) (detached []string, err error) {
	root, err := g.k.Root(ctx)
	if err != nil {
		return nil, err
	}
	defer root.DecRef(ctx)
	creds := g.k.RootCredentials()
	for _, m := range slices.Backward(g.statelessMounts()) {
		if !g.isMounted(ctx, creds, root, m) {
			continue // the guest unmounted it, or mounted something else there
		}
		if g.k.VFS().UmountAt(ctx, creds, kern.PathAt(root, m.path), &vfs.UmountOptions{}) == nil {
			detached = append(detached, m.path)
		}
	}
	return detached, nil
}

func (g *Guest) isMounted(ctx context.Context, creds *auth.Credentials, root vfs.VirtualDentry, m mount) bool {
	vd, err := g.k.VFS().GetDentryAt(ctx, creds, kern.PathAt(root, m.path), &vfs.GetDentryOptions{})
	if err != nil {
		return false
	}
	defer vd.DecRef(ctx)
	return vd.Mount().Filesystem().FilesystemType().Name() == m.fs && vd.Dentry() == vd.Mount().Root()
}

// attachStateless mounts the file systems again that detachStateless took away, in the frozen
// sandbox or in its child.
func (g *Guest) attachStateless(ctx context.Context, detached []string) error {
	root, err := g.k.Root(ctx)
	if err != nil {
		return err
	}
	defer root.DecRef(ctx)
	creds := g.k.RootCredentials()
	for _, m := range g.statelessMounts() {
		if slices.Contains(detached, m.path) {
			if err := m.mountAt(ctx, g.k, creds, root); err != nil {
				return err
			}
		}
	}
	return nil
}

// newInitFile returns an anonymous file with the init program.
func newInitFile(ctx context.Context, k *kernel.Kernel, creds *auth.Credentials) (*vfs.FileDescription, error) {
	file, err := tmpfs.NewMemfd(ctx, creds, k.ShmMount(), false, "init")
	if err != nil {
		return nil, fmt.Errorf("create init program: %w", err)
	}
	if _, err := file.PWrite(ctx, usermem.BytesIOSequence(guestinit.ELF()), 0, vfs.WriteOptions{}); err != nil {
		file.DecRef(ctx)
		return nil, fmt.Errorf("write init program: %w", err)
	}
	return file, nil
}
