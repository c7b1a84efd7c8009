package inode

import (
	"sync"
	"sync/atomic"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
	"gvisor.dev/gvisor/pkg/sentry/vfs"

	"ramet.dev/ramet/internal/storage/cowfs"
)

// attributes are those of an inode, with the lock that orders changes of it.
type attributes struct {
	table *Table
	ino   cowfs.Ino
	// refs counts dentries. Protected by Table.mu.
	refs int

	// mu orders writes, truncations and changes of attributes.
	mu sync.Mutex

	// attrMu protects attr and stored. attr.Mode is also in mode, which is read without a
	// lock.
	attrMu sync.Mutex
	attr   cowfs.Attr
	mode   atomic.Uint32
	// stored says that pages may be mapped for stores, see Translate.
	stored bool

	// Noted says that the tree knows a path of the file, see cowfs.FS.NoteParent.
	Noted atomic.Bool
	// Nameless says that the file may never get a name, see O_TMPFILE in open(2).
	Nameless atomic.Bool
	// noCaps says that there is no security.capability.
	noCaps atomic.Bool
}

// Ino returns the number of the inode.
func (x *attributes) Ino() cowfs.Ino { return x.ino }

// Type returns the type of the file, as in the mode.
func (x *attributes) Type() uint32 { return x.mode.Load() & linux.S_IFMT }

// IsDir returns whether the file is a directory.
func (x *attributes) IsDir() bool { return x.Type() == linux.S_IFDIR }

// IsLink returns whether the file is a symbolic link.
func (x *attributes) IsLink() bool { return x.Type() == linux.S_IFLNK }

// Attr returns the attributes.
func (x *attributes) Attr() cowfs.Attr {
	x.attrMu.Lock()
	defer x.attrMu.Unlock()
	return x.attr
}

// Set changes attributes in memory.
func (x *attributes) Set(change func(a *cowfs.Attr)) {
	x.attrMu.Lock()
	change(&x.attr)
	x.mode.Store(x.attr.Mode)
	x.attrMu.Unlock()
	x.table.markDirty(x.ino)
}

// Touch sets the time of change to now, and that of modification if data changed.
func (x *attributes) Touch(data bool) {
	now := x.table.Now()
	x.Set(func(a *cowfs.Attr) {
		a.Ctime = now
		if data {
			a.Mtime = now
		}
	})
}

// staleAtime is the age at which a read renews the time of access even if nothing was written
// since: as with Linux's relatime.
const staleAtime = 24 * 3600 * 1e9

// Accessed renews the time of access where relatime would. An unchanged file of the image
// keeps its time: else reading would be a change.
func (x *attributes) Accessed(mnt *vfs.Mount) {
	if x.ino.OfImage() && !x.Noted.Load() {
		return
	}
	a := x.Attr()
	now := x.table.Now()
	if a.Atime > a.Mtime && a.Atime > a.Ctime && now-a.Atime < staleAtime {
		return
	}
	if mnt.Options().Flags.NoATime || mnt.CheckBeginWrite() != nil {
		return
	}
	defer mnt.EndWrite()
	x.Set(func(a *cowfs.Attr) { a.Atime = now })
}

// Check checks permissions.
func (x *attributes) Check(creds *auth.Credentials, ats vfs.AccessTypes) error {
	a := x.Attr()
	return vfs.GenericCheckPermissions(creds, ats, linux.FileMode(a.Mode), nil, auth.KUID(a.UID), auth.KGID(a.GID))
}

// dropPrivs removes what makes a file run with privileges, as a write does: set-id bits,
// unless the writer may keep them, and capabilities. x.mu must be locked.
func (x *attributes) dropPrivs(creds *auth.Credentials) {
	x.dropCaps()
	if x.mode.Load()&(linux.S_ISUID|linux.S_ISGID) != 0 && !creds.HasRootCapability(linux.CAP_FSETID) {
		x.Set(func(a *cowfs.Attr) { clearIDs(a, creds) })
	}
}

// clearIDs removes set-id bits. A set-group-id bit without permission to execute
// for the group, once a mark for mandatory locks, stays for members of the group and for
// callers that may set it.
func clearIDs(a *cowfs.Attr, creds *auth.Credentials) {
	a.Mode &^= linux.S_ISUID
	if a.Mode&0o010 != 0 || !creds.InGroup(auth.KGID(a.GID)) && !creds.HasRootCapability(linux.CAP_FSETID) {
		a.Mode &^= linux.S_ISGID
	}
}

// dropCaps removes file capabilities, as a write does.
func (x *attributes) dropCaps() {
	if x.noCaps.Load() {
		return
	}
	if _, err := x.table.tree.RemoveXattr(x.ino, capsXattr); err == nil {
		x.noCaps.Store(true)
	}
}

// noteStores returns the attributes with the times of all stores so far, and whether there
// were stores through mappings. The next store is to be noted again, so the caller takes the
// mappings for stores away before it unlocks mapsMu.
func (x *attributes) noteStores() (a cowfs.Attr, stored bool) {
	x.attrMu.Lock()
	defer x.attrMu.Unlock()
	a, stored = x.attr, x.stored
	x.stored = false
	return a, stored
}
