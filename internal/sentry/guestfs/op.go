package guestfs

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	gverrors "gvisor.dev/gvisor/pkg/errors"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
	"gvisor.dev/gvisor/pkg/sentry/vfs"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/sentry/gate"
	"ramet.dev/ramet/internal/sentry/guestfs/names"
	"ramet.dev/ramet/internal/sentry/kern"
)

// Files are the files of a sandbox, for operations of the host side.
type Files struct {
	k        *kern.Kernel
	gate     *gate.Gate
	matching sync.Mutex // see fileOp.doMatching; above the gate's accesses
	held     *Held
}

// New returns the files of a guest. held is saved with the kernel k under HeldKey.
func New(k *kern.Kernel, g *gate.Gate, held *Held) *Files {
	return &Files{k: k, gate: g, held: held}
}

// fileOp is an operation of the host side on files, as a user of the sandbox.
// It looks files up as the sandbox's processes do, from the same root, so no
// path and no symbolic link leads out of the sandbox.
type fileOp struct {
	fs    *Files
	ctx   context.Context
	creds *auth.Credentials
	// owner is whom what is made is given to; nil for the user.
	owner *auth.Credentials
	// xattrs begins the names of the attributes that are told; empty for none.
	xattrs string
	// changes is whether it may change something, see gate.Gate.BeginChange.
	changes bool
}

// maxWalkPath bounds the paths that a walk makes of names: deeper trees are
// refused. With all that JSON may make of it, a path of that length fits a packet.
const maxWalkPath = 16 << 10

// changeOp is fileOp for an operation that changes something.
func (fs *Files) changeOp(req *wire.File) (*fileOp, error) {
	o, err := fs.requestOp(req)
	if err == nil {
		o.changes = true
	}
	return o, err
}

// requestOp is fileOp for a request.
func (fs *Files) requestOp(req *wire.File) (*fileOp, error) {
	o, err := fs.fileOp(req.User)
	if err != nil {
		return nil, err
	}
	o.xattrs = req.Xattrs
	if req.Owner != "" {
		as, err := fs.fileOp(req.Owner)
		if err != nil {
			return nil, err
		}
		o.owner = as.creds
	}
	return o, nil
}

func (fs *Files) fileOp(user string) (*fileOp, error) {
	fs.gate.BeginIO()
	defer fs.gate.EndIO()
	ctx := fs.k.SupervisorContext()
	mns, err := fs.k.MountNamespace()
	if err != nil {
		return nil, err
	}
	defer mns.DecRef(ctx)
	creds, err := fs.k.Credentials(ctx, mns, user)
	if err != nil {
		return nil, err
	}
	return &fileOp{fs: fs, ctx: auth.ContextWithCredentials(ctx, creds), creds: creds}, nil
}

// do runs f, a short step of the operation, and keeps the kernel from being
// saved meanwhile. Steps are not nested.
func (o *fileOp) do(f func(root vfs.VirtualDentry) error) error {
	if !o.changes {
		o.fs.gate.BeginIO()
	} else if err := o.fs.gate.BeginChange(); err != nil {
		return err
	}
	defer o.fs.gate.EndIO()
	root, err := o.fs.k.Root(o.ctx)
	if err != nil {
		return err
	}
	defer root.DecRef(o.ctx)
	return f(root)
}

// doMatching is do for a step that depends on the tags of a file: no other of these steps
// comes between the look at the tags and the change.
func (o *fileOp) doMatching(tags []string, f func(root vfs.VirtualDentry) error) error {
	if len(tags) > 0 {
		o.fs.matching.Lock()
		defer o.fs.matching.Unlock()
	}
	return o.do(f)
}

func (o *fileOp) vfs() *vfs.VirtualFilesystem { return o.fs.k.VFS() }

// unlinkIn removes a file whose name the host side chose. Errors are dropped: the file may
// be gone, and other errors have no caller to go to.
func (fs *Files) unlinkIn(ctx context.Context, dir *vfs.FileDescription, name string) {
	root, err := fs.k.Root(ctx)
	if err != nil {
		return
	}
	defer root.DecRef(ctx)
	_ = fs.k.VFS().UnlinkAt(ctx, fs.k.RootCredentials(), kern.PathIn(root, dir, name))
}

// wanted are the attributes that FileInfo has.
const wanted = linux.STATX_BASIC_STATS

// stat describes the file at name. root is that of a step.
func (o *fileOp) stat(root vfs.VirtualDentry, name string, follow bool) (linux.Statx, error) {
	pop := kern.PathAt(root, name)
	pop.FollowFinalSymlink = follow
	return o.vfs().StatAt(o.ctx, o.creds, pop, &vfs.StatOptions{Mask: wanted})
}

// info describes the file at name, with the target of a link.
func (o *fileOp) info(root vfs.VirtualDentry, name string, follow bool) (*api.FileInfo, error) {
	st, err := o.stat(root, name, follow)
	if err != nil {
		return nil, err
	}
	info := infoOf(name, &st)
	if info.Type == typeSymlink {
		info.Target, _ = o.vfs().ReadlinkAt(o.ctx, o.creds, kern.LinkAt(root, name)) // it may be gone by now
	}
	o.tellXattrs(root, info)
	return info, nil
}

// The types of files that are decided on.
const (
	typeFile    = "file"
	typeDir     = "dir"
	typeSymlink = "symlink"
)

func typeOf(mode uint16) string {
	switch mode & linux.S_IFMT {
	case linux.S_IFREG:
		return typeFile
	case linux.S_IFDIR:
		return typeDir
	case linux.S_IFLNK:
		return typeSymlink
	case linux.S_IFIFO:
		return "fifo"
	case linux.S_IFSOCK:
		return "socket"
	}
	return "device"
}

func infoOf(name string, st *linux.Statx) *api.FileInfo {
	f := &api.FileInfo{
		Path: name, Type: typeOf(st.Mode), Mode: fmt.Sprintf("%04o", st.Mode&^linux.S_IFMT), UID: st.UID, GID: st.GID,
		Size: int64(min(st.Size, math.MaxInt64)), MTime: st.Mtime.ToTime().UTC(), Links: st.Nlink,
	}
	if f.Type == typeFile || f.Type == typeSymlink {
		f.ETag = fmt.Sprintf("%x-%x-%x", st.Ino, uint64(st.Ctime.Sec)<<30|uint64(st.Ctime.Nsec), st.Size)
	}
	return f
}

// regular returns an error unless st is of a regular file: to open another kind of file may
// wait for a process of the sandbox, and reading it may never end.
func regular(name string, st *linux.Statx) error {
	if t := typeOf(st.Mode); t != typeFile {
		return api.Errorf(api.CodeUnsupported, "%q is a %s: only regular files have contents that can be read or written here", name, t)
	}
	return nil
}

// checkMatch returns an error unless the file at name has one of tags, which are of files
// that the caller has seen. st describes the file, and err is the error of stat.
func checkMatch(name string, tags []string, st *linux.Statx, err error) error {
	switch {
	case len(tags) == 0:
		return nil
	case linuxerr.Equals(linuxerr.ENOENT, err):
		return api.Errorf(api.CodeChanged, "%q does not exist, and was to have an ETag", name)
	case err != nil:
		return err
	case slices.Contains(tags, api.AnyETag):
		return nil
	}
	if tag := infoOf(name, st).ETag; tag == "" || !slices.Contains(tags, tag) {
		return api.Errorf(api.CodeChanged, "%q has changed: its ETag is another one", name)
	}
	return nil
}

// checkNoneMatch returns an error if the file at name has one of tags, which the caller does
// not want to be there.
func checkNoneMatch(name string, tags []string, st *linux.Statx, err error) error {
	if err != nil || len(tags) == 0 { // it is not there, or the operation itself returns the error
		return nil
	}
	if tag := infoOf(name, st).ETag; tag != "" && slices.Contains(tags, tag) {
		return api.Errorf(api.CodeChanged, "%q is as it was: its ETag is among those that it was not to have", name)
	}
	return nil
}

// fileCodes are the codes of errors of file systems; all other errors are defects.
var fileCodes = []struct {
	errno *gverrors.Error
	code  api.Code
}{
	{linuxerr.ENOENT, api.CodeNotFound},
	{linuxerr.EACCES, api.CodePermission},
	{linuxerr.EPERM, api.CodePermission},
	{linuxerr.EROFS, api.CodePermission},
	{linuxerr.EEXIST, api.CodeConflict},
	{linuxerr.ENOTEMPTY, api.CodeConflict},
	{linuxerr.EBUSY, api.CodeConflict},
	{linuxerr.ETXTBSY, api.CodeConflict},
	{linuxerr.ENOSPC, api.CodeNoSpace},
	{linuxerr.EDQUOT, api.CodeNoSpace},
	{linuxerr.ENOMEM, api.CodeNoMemory},
	{linuxerr.EFBIG, api.CodeLimit},
	{linuxerr.EMLINK, api.CodeLimit},
	{linuxerr.EXDEV, api.CodeUnsupported},
	{linuxerr.EOPNOTSUPP, api.CodeUnsupported},
	{linuxerr.ENXIO, api.CodeUnsupported},
	{linuxerr.ENOTDIR, api.CodeInvalid},
	{linuxerr.EISDIR, api.CodeInvalid},
	{linuxerr.ELOOP, api.CodeInvalid},
	{linuxerr.ENAMETOOLONG, api.CodeInvalid},
	{linuxerr.EINVAL, api.CodeInvalid},
}

// fileError adds name to an error, and gives it a code. Errors that have one pass.
func fileError(name string, err error) error {
	var known *api.Error
	if err == nil || errors.As(err, &known) {
		return err
	}
	for _, c := range fileCodes {
		if linuxerr.Equals(c.errno, err) {
			e := api.Errorf(c.code, "%q: %s", name, unix.Errno(c.errno.Errno()).Error())
			if c.code == api.CodeInvalid {
				e.Field = "path"
			}
			return e
		}
	}
	return fmt.Errorf("%q: %w", name, err)
}

// direntBatch is how many entries of a directory a step reads, so that a large directory
// does not keep a freeze waiting.
const direntBatch = 4096

// names returns up to most names in a directory that come after the given one,
// in order, so that directories of any size need little memory.
func (o *fileOp) names(dir, after string, inclusive bool, most int) ([]string, error) {
	var held *heldFile
	err := o.do(func(root vfs.VirtualDentry) error {
		file, err := o.vfs().OpenAt(o.ctx, o.creds, kern.LinkAt(root, dir), &vfs.OpenOptions{Flags: linux.O_RDONLY | linux.O_DIRECTORY})
		if err == nil {
			held = o.fs.hold(&heldFile{file: file})
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	defer o.release(held)
	keep := names.First(most)
	for read := direntBatch; read == direntBatch; {
		read = 0
		err := o.do(func(vfs.VirtualDentry) error {
			return held.file.IterDirents(o.ctx, vfs.IterDirentsCallbackFunc(func(d vfs.Dirent) error {
				if read == direntBatch {
					return errEnough // and this entry comes again
				}
				read++
				if d.Name != "." && d.Name != ".." && (d.Name > after || inclusive && d.Name == after) {
					keep.Add(d.Name)
				}
				return nil
			}))
		})
		if err != nil && !errors.Is(err, errEnough) {
			return nil, err
		}
	}
	return keep.Sorted(), nil
}

// below joins a directory and a name in it.
func below(dir, name string) (string, error) {
	if len(dir)+1+len(name) > maxWalkPath {
		return "", api.Errorf(api.CodeLimit, "a directory is too deep: its path has more than %d bytes", maxWalkPath)
	}
	if strings.HasSuffix(dir, "/") {
		return dir + name, nil
	}
	return dir + "/" + name, nil
}

// Stat describes a file.
func (fs *Files) Stat(req *wire.File) (*api.FileInfo, error) {
	o, err := fs.requestOp(req)
	if err != nil {
		return nil, err
	}
	var info *api.FileInfo
	name := string(req.Path)
	err = o.do(func(root vfs.VirtualDentry) error {
		if info, err = o.info(root, name, !req.NoFollow); err == nil && req.Real {
			info.Path, err = o.real(root, name, !req.NoFollow)
		}
		return err
	})
	return info, fileError(name, err)
}

// real returns the path of the file at name without symbolic links.
func (o *fileOp) real(root vfs.VirtualDentry, name string, follow bool) (string, error) {
	pop := kern.PathAt(root, name)
	pop.FollowFinalSymlink = follow
	at, err := o.vfs().GetDentryAt(o.ctx, o.creds, pop, &vfs.GetDentryOptions{})
	if err != nil {
		return "", err
	}
	defer at.DecRef(o.ctx)
	return o.vfs().PathnameWithDeleted(o.ctx, root, at)
}

// given has the attributes of a file that is given to the owner; nil if nothing is.
func (o *fileOp) given() *vfs.SetStatOptions {
	if o.owner == nil {
		return nil
	}
	return &vfs.SetStatOptions{Stat: linux.Statx{
		Mask: linux.STATX_UID | linux.STATX_GID, UID: uint32(o.owner.EffectiveKUID), GID: uint32(o.owner.EffectiveKGID),
	}}
}

// makeDir makes a directory. root is that of a step.
func (o *fileOp) makeDir(root vfs.VirtualDentry, name string, mode linux.FileMode) error {
	err := o.vfs().MkdirAt(o.ctx, o.creds, kern.LinkAt(root, name), &vfs.MkdirOptions{Mode: mode})
	if to := o.given(); err == nil && to != nil {
		err = o.vfs().SetStatAt(o.ctx, o.creds, kern.LinkAt(root, strings.TrimRight(name, "/")), to)
	}
	return err
}

// makeParents makes the missing directories above name.
func (o *fileOp) makeParents(name string) error {
	name = strings.TrimRight(name, "/")
	dir := name[:max(strings.LastIndexByte(name, '/'), 0)]
	for i := 1; i <= len(dir); i++ {
		if i < len(dir) && dir[i] != '/' || dir[i-1] == '/' {
			continue
		}
		err := o.do(func(root vfs.VirtualDentry) error {
			return o.makeDir(root, dir[:i], 0o755)
		})
		if err != nil && !linuxerr.Equals(linuxerr.EEXIST, err) {
			return fileError(dir[:i], err)
		}
	}
	return nil
}

// Executable reports whether name is an executable file. A link to nowhere may be meant to
// be executable: the error of running it is clearer.
func (fs *Files) Executable(name string) (is bool, err error) {
	o, err := fs.fileOp("")
	if err != nil {
		return false, err
	}
	err = o.do(func(root vfs.VirtualDentry) error {
		st, err := o.stat(root, name, true)
		is = typeOf(st.Mode) == typeFile && st.Mode&0o111 != 0
		return err
	})
	return is || err != nil, nil
}
