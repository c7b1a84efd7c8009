package inode

import (
	"strings"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
)

// capsXattr is the only extended attribute of security.* that there is: file capabilities.
const capsXattr = linux.XATTR_SECURITY_PREFIX + "capability"

// checkXattr checks whether an extended attribute may be read or written, see xattr(7).
func (i *Inode) checkXattr(creds *auth.Credentials, name string, write bool) error {
	switch {
	case name == linux.XATTR_USER_PREFIX, name == linux.XATTR_TRUSTED_PREFIX:
		return linuxerr.EINVAL
	case strings.HasPrefix(name, linux.XATTR_USER_PREFIX):
		// Files of other types have no attributes of users.
		if i.Type() != linux.S_IFREG && !i.IsDir() {
			if write {
				return linuxerr.EPERM
			}
			return linuxerr.ENODATA
		}
		if a := i.Attr(); write && i.IsDir() && a.Mode&linux.S_ISVTX != 0 && !vfs.CanActAsOwner(creds, auth.KUID(a.UID)) {
			return linuxerr.EPERM
		}
		ats := vfs.MayRead
		if write {
			ats = vfs.MayWrite
		}
		return i.Check(creds, ats)
	case strings.HasPrefix(name, linux.XATTR_TRUSTED_PREFIX):
		if !creds.HasRootCapability(linux.CAP_SYS_ADMIN) {
			if write {
				return linuxerr.EPERM
			}
			return linuxerr.ENODATA
		}
		return nil
	case name == capsXattr:
		if write && !creds.HasRootCapability(linux.CAP_SETFCAP) {
			return linuxerr.EPERM
		}
		return nil
	}
	return linuxerr.EOPNOTSUPP
}

// ListXattr does the work of listxattr(2): size is that of the buffer, or 0.
func (i *Inode) ListXattr(creds *auth.Credentials, size uint64) ([]string, error) {
	all, err := i.table.tree.Xattrs(i.ino)
	if err != nil {
		return nil, Errno(err)
	}
	var names []string
	total := 0
	for _, n := range all {
		if strings.HasPrefix(n, linux.XATTR_TRUSTED_PREFIX) && !creds.HasRootCapability(linux.CAP_SYS_ADMIN) {
			continue
		}
		names = append(names, n)
		total += len(n) + 1
	}
	if size != 0 && uint64(total) > size {
		return nil, linuxerr.ERANGE
	}
	return names, nil
}

// GetXattr does the work of getxattr(2).
func (i *Inode) GetXattr(creds *auth.Credentials, opts *vfs.GetXattrOptions) (string, error) {
	if opts.Name == capsXattr && i.noCaps.Load() {
		return "", linuxerr.ENODATA
	}
	if err := i.checkXattr(creds, opts.Name, false); err != nil {
		return "", err
	}
	val, ok, err := i.table.tree.Xattr(i.ino, opts.Name)
	if err != nil {
		return "", Errno(err)
	}
	if !ok {
		if opts.Name == capsXattr {
			i.noCaps.Store(true)
		}
		return "", linuxerr.ENODATA
	}
	if opts.Size != 0 && uint64(len(val)) > opts.Size {
		return "", linuxerr.ERANGE
	}
	return string(val), nil
}

// SetXattr does the work of setxattr(2).
func (i *Inode) SetXattr(creds *auth.Credentials, opts *vfs.SetXattrOptions) error {
	if err := i.checkXattr(creds, opts.Name, true); err != nil {
		return err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	_, ok, err := i.table.tree.Xattr(i.ino, opts.Name)
	switch {
	case err != nil:
		return Errno(err)
	case ok && opts.Flags&linux.XATTR_CREATE != 0:
		return linuxerr.EEXIST
	case !ok && opts.Flags&linux.XATTR_REPLACE != 0:
		return linuxerr.ENODATA
	}
	if err := i.table.tree.Room(len(opts.Name) + len(opts.Value)); err != nil {
		return Errno(err)
	}
	if err := i.table.tree.SetXattr(i.ino, opts.Name, []byte(opts.Value)); err != nil {
		return Errno(err)
	}
	if opts.Name == capsXattr {
		i.noCaps.Store(false)
	}
	i.Touch(false)
	return nil
}

// RemoveXattr does the work of removexattr(2).
func (i *Inode) RemoveXattr(creds *auth.Credentials, name string) error {
	if err := i.checkXattr(creds, name, true); err != nil {
		return err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	ok, err := i.table.tree.RemoveXattr(i.ino, name)
	if err != nil {
		return Errno(err)
	}
	if !ok {
		return linuxerr.ENODATA
	}
	i.Touch(false)
	return nil
}
