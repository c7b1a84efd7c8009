package rootfs

import (
	"math"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
	"gvisor.dev/gvisor/pkg/sentry/vfs"

	"ramet.dev/ramet/internal/sentry/rootfs/inode"
	"ramet.dev/ramet/internal/storage/cowfs"
)

// maxLinks bounds a file's names.
const maxLinks = math.MaxUint32

// setgidProgram is the mode of a program that runs with the rights of its group. Without
// permission to execute for the group the bit was once a mark for mandatory locks, and Linux
// leaves it alone.
const setgidProgram = linux.S_ISGID | 0o010

// newFile describes a file to be made.
type newFile struct {
	mode         linux.FileMode // type and permissions
	major, minor uint32
	target       string // of a symbolic link
}

// create makes a file in directory d, with a name unless name is "". It returns a dentry with
// one user. names.mu must be locked.
func (d *dentry) create(name string, creds *auth.Credentials, f newFile) (*dentry, error) {
	dir, tree := d.inode.Attr(), d.names.table.Tree()
	now := d.names.table.Now()
	a := cowfs.Attr{
		Mode: uint32(f.mode), UID: uint32(creds.EffectiveKUID), GID: uint32(creds.EffectiveKGID), Nlink: 1, Major: f.major, Minor: f.minor,
		Size: uint64(len(f.target)), Atime: now, Mtime: now, Ctime: now, Btime: now,
	}
	if a.IsDir() {
		a.Nlink = 2
	}
	// See inode(7), and mode_strip_sgid in Linux, which looks at the mode before the umask is
	// applied: a program that loses the permission by the umask keeps the bit here.
	if dir.Mode&linux.S_ISGID != 0 {
		a.GID = dir.GID
		if a.IsDir() {
			a.Mode |= linux.S_ISGID
		} else if a.Mode&setgidProgram == setgidProgram && vfs.ShouldClearSGID(creds, linux.FileMode(a.Mode), auth.KUID(a.UID), auth.KGID(a.GID)) {
			a.Mode &^= linux.S_ISGID
		}
	}
	if err := tree.Room(len(f.target)); err != nil {
		return nil, inode.Errno(err)
	}
	if name == "" {
		a.Nlink = 0
	} else if err := d.note(); err != nil {
		return nil, err
	}
	ino := tree.NewIno()
	err := tree.SetAttr(ino, &a)
	if err == nil && f.mode.FileType() == linux.S_IFLNK {
		err = tree.SetTarget(ino, f.target)
	}
	if err == nil && name != "" {
		err = tree.Insert(d.inode.Ino(), cowfs.Entry{Name: name, Ino: ino, Type: a.DirentType()})
	}
	if err != nil {
		_ = tree.Remove(ino) // removing needs no space
		return nil, inode.Errno(err)
	}
	made := d.names.newDentry(d.names.table.Add(ino, a))
	made.refs.Store(1)
	if name != "" {
		d.adopt(made, name)
		if a.IsDir() {
			d.inode.Set(func(p *cowfs.Attr) { p.Nlink++ })
		}
		d.inode.Touch(true)
	}
	return made, nil
}

// createAt checks whether a file may be made at rp, lets make do it, and notifies watchers.
// make returns a dentry with one user, or nil. check, which may be nil, is called before
// permissions to write are checked.
func (n *names) createAt(ctx context.Context, rp *vfs.ResolvingPath, dir bool, check func() error, make func(parent *dentry, name string) (*dentry, error)) error {
	n.sweepIfMany(ctx)
	made, err := n.createLocked(ctx, rp, dir, check, make)
	if made != nil {
		made.DecRef(ctx)
	}
	return err
}

func (n *names) createLocked(ctx context.Context, rp *vfs.ResolvingPath, dir bool, check func() error, make func(parent *dentry, name string) (*dentry, error)) (*dentry, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	parent, err := resolveParent(ctx, rp, startOf(rp))
	if err != nil {
		return nil, err
	}
	if err := parent.inode.Check(rp.Credentials(), vfs.MayExec); err != nil {
		return nil, err
	}
	name := rp.Component()
	if name == "." || name == ".." {
		return nil, linuxerr.EEXIST
	}
	if child, err := parent.child(name); err != nil {
		return nil, err
	} else if child != nil {
		return nil, linuxerr.EEXIST
	}
	if !dir && rp.MustBeDir() {
		return nil, linuxerr.ENOENT
	}
	if parent.vfsd.IsDead() {
		return nil, linuxerr.ENOENT
	}
	mnt := rp.Mount()
	if err := mnt.CheckBeginWrite(); err != nil {
		return nil, err
	}
	defer mnt.EndWrite()
	if check != nil {
		if err := check(); err != nil {
			return nil, err
		}
	}
	if err := parent.inode.Check(rp.Credentials(), vfs.MayWrite); err != nil {
		return nil, err
	}
	made, err := make(parent, name)
	if err != nil {
		return nil, err
	}
	event := uint32(linux.IN_CREATE)
	if dir {
		event |= linux.IN_ISDIR
	}
	parent.inode.Watches.Notify(ctx, name, event, 0, vfs.InodeEvent, false)
	return made, nil
}

// MkdirAt implements vfs.FilesystemImpl.MkdirAt.
func (fs *filesystem) MkdirAt(ctx context.Context, rp *vfs.ResolvingPath, opts vfs.MkdirOptions) error {
	return fs.createAt(ctx, rp, true, nil, func(parent *dentry, name string) (*dentry, error) {
		if parent.inode.Attr().Nlink == maxLinks {
			return nil, linuxerr.EMLINK
		}
		return parent.create(name, rp.Credentials(), newFile{mode: linux.S_IFDIR | opts.Mode})
	})
}

// SymlinkAt implements vfs.FilesystemImpl.SymlinkAt.
func (fs *filesystem) SymlinkAt(ctx context.Context, rp *vfs.ResolvingPath, target string) error {
	return fs.createAt(ctx, rp, false, nil, func(parent *dentry, name string) (*dentry, error) {
		return parent.create(name, rp.Credentials(), newFile{mode: linux.S_IFLNK | 0o777, target: target})
	})
}

// MknodAt implements vfs.FilesystemImpl.MknodAt.
func (fs *filesystem) MknodAt(ctx context.Context, rp *vfs.ResolvingPath, opts vfs.MknodOptions) error {
	return fs.createAt(ctx, rp, false, nil, func(parent *dentry, name string) (*dentry, error) {
		f := newFile{mode: opts.Mode}
		switch opts.Mode.FileType() {
		case linux.S_IFREG, linux.S_IFIFO, linux.S_IFSOCK:
		case linux.S_IFBLK, linux.S_IFCHR:
			f.major, f.minor = opts.DevMajor, opts.DevMinor
		default:
			return nil, linuxerr.EINVAL
		}
		d, err := parent.create(name, rp.Credentials(), f)
		if err == nil {
			d.inode.Endpoint = opts.Endpoint
		}
		return d, err
	})
}

// LinkAt implements vfs.FilesystemImpl.LinkAt.
func (fs *filesystem) LinkAt(ctx context.Context, rp *vfs.ResolvingPath, vd vfs.VirtualDentry) error {
	check := func() error {
		if rp.Mount() != vd.Mount() {
			return linuxerr.EXDEV
		}
		a := vd.Dentry().Impl().(*dentry).inode.Attr()
		// A program with the rights of its group gets names from its owner only, see
		// protected_hardlinks in proc_sys_fs(5): vfs.MayLink leaves this out.
		if a.Mode&setgidProgram == setgidProgram && !vfs.CanActAsOwner(rp.Credentials(), auth.KUID(a.UID)) {
			return linuxerr.EPERM
		}
		return vfs.MayLink(rp.Credentials(), linux.FileMode(a.Mode), nil, auth.KUID(a.UID), auth.KGID(a.GID))
	}
	return fs.createAt(ctx, rp, false, check, func(parent *dentry, name string) (*dentry, error) {
		return parent.link(ctx, name, vd.Dentry().Impl().(*dentry))
	})
}

// link gives old another name in directory d. It returns a dentry with one user. names.mu
// must be locked.
func (d *dentry) link(ctx context.Context, name string, old *dentry) (*dentry, error) {
	i, table := old.inode, d.names.table
	if i.IsDir() {
		return nil, linuxerr.EPERM
	}
	a := i.Attr()
	// A file that never had a name may get one, see O_TMPFILE in open(2).
	if a.Nlink == 0 && (old.parent.Load() != nil || i.Nameless.Load()) {
		return nil, linuxerr.ENOENT
	}
	if a.Nlink == maxLinks {
		return nil, linuxerr.EMLINK
	}
	if err := table.Tree().Room(0); err != nil {
		return nil, inode.Errno(err)
	}
	if err := firstError(old.note(), d.note()); err != nil {
		return nil, err
	}
	if err := table.Tree().Insert(d.inode.Ino(), cowfs.Entry{Name: name, Ino: i.Ino(), Type: a.DirentType()}); err != nil {
		return nil, inode.Errno(err)
	}
	i.Set(func(a *cowfs.Attr) { a.Nlink++ })
	i.Touch(false)
	d.inode.Touch(true)
	i.Watches.Notify(ctx, "", linux.IN_ATTRIB, 0, vfs.InodeEvent, false)
	again, err := table.Get(i.Ino())
	if err != nil {
		return nil, inode.Errno(err)
	}
	made := d.names.newDentry(again)
	made.refs.Store(1)
	d.adopt(made, name)
	return made, nil
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
