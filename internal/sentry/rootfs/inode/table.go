package inode

import (
	"errors"
	"os"
	"sync"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	lerrors "gvisor.dev/gvisor/pkg/errors"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/pkg/sentry/ktime"

	"ramet.dev/ramet/internal/storage/cowfs"
	"ramet.dev/ramet/internal/storage/pages"
)

// Table has the inodes of a tree that are in memory.
type Table struct {
	clock    ktime.Clock
	devMinor uint32
	// live is empty except while a state is saved or restored.
	live liveInodes

	// Below here nothing is saved.

	tree  *cowfs.FS
	hosts hostFiles

	mu     sync.Mutex
	inodes map[cowfs.Ino]*Inode

	// dirtyMu protects dirty: inodes with attributes that the tree has not got.
	dirtyMu sync.Mutex
	dirty   map[cowfs.Ino]struct{}
}

// NewTable returns a table without a tree. devMinor is the number of the device that stat(2)
// shows.
func NewTable(clock ktime.Clock, devMinor uint32) *Table {
	return &Table{clock: clock, devMinor: devMinor}
}

// Attach gives a table that is new or restored its tree. own is the file of the tree's own
// pages, image that of the image below the tree, which bytes maps. The table takes over all
// of them.
func (t *Table) Attach(tree *cowfs.FS, own, image *os.File, bytes []byte) {
	t.tree = tree
	t.hosts.attach(tree, own, image, bytes)
	t.inodes = map[cowfs.Ino]*Inode{}
	t.dirty = map[cowfs.Ino]struct{}{}
}

// Tree returns the tree.
func (t *Table) Tree() *cowfs.FS { return t.tree }

// DevMinor returns the number of the device that stat(2) shows.
func (t *Table) DevMinor() uint32 { return t.devMinor }

// Now returns the time in nanoseconds.
func (t *Table) Now() int64 { return t.clock.Now().Nanoseconds() }

// Get returns the inode with a number, with a reference for the caller.
func (t *Table) Get(ino cowfs.Ino) (*Inode, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if i, ok := t.inodes[ino]; ok {
		i.refs++
		return i, nil
	}
	a, _, err := t.tree.Attr(ino)
	if err != nil {
		return nil, err
	}
	return t.addLocked(ino, a), nil
}

// Add adds the inode of a new file, with a reference for the caller.
func (t *Table) Add(ino cowfs.Ino, a cowfs.Attr) *Inode {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := t.addLocked(ino, a)
	i.noCaps.Store(true)
	return i
}

func (t *Table) addLocked(ino cowfs.Ino, a cowfs.Attr) *Inode {
	i := &Inode{}
	i.table, i.ino, i.attr, i.refs = t, ino, a, 1
	i.mode.Store(a.Mode)
	t.inodes[ino] = i
	return i
}

// DecRef gives up a reference. With the last one the inode goes: its attributes are written
// to the tree, or, if it has no name, all of it is removed. Where the tree has no space for
// that, the inode stays in memory until Flush.
func (i *Inode) DecRef(ctx context.Context) {
	t := i.table
	t.mu.Lock()
	i.refs--
	if i.refs > 0 {
		t.mu.Unlock()
		return
	}
	t.letGo(i)
	gone := i.Attr().Nlink == 0
	t.mu.Unlock()
	if gone {
		i.Watches.HandleDeletion(ctx)
	}
}

// letGo drops an inode without references from memory, if the tree has all of it then. t.mu
// must be locked: so no old attributes of it are read from the tree.
func (t *Table) letGo(i *Inode) {
	var err error
	if i.Attr().Nlink > 0 {
		err = t.flushInode(i)
	} else if err = t.tree.Remove(i.ino); err == nil {
		t.clean(i.ino)
	}
	if err != nil {
		_ = Errno(err) // logged
		t.markDirty(i.ino)
		return
	}
	delete(t.inodes, i.ino)
}

func (t *Table) markDirty(ino cowfs.Ino) {
	t.dirtyMu.Lock()
	defer t.dirtyMu.Unlock()
	t.dirty[ino] = struct{}{}
}

// clean makes an inode one that is not dirty, and returns whether it was.
func (t *Table) clean(ino cowfs.Ino) bool {
	t.dirtyMu.Lock()
	defer t.dirtyMu.Unlock()
	_, ok := t.dirty[ino]
	delete(t.dirty, ino)
	return ok
}

func (t *Table) flushInode(i *Inode) error {
	if !t.clean(i.ino) {
		return nil
	}
	i.attrMu.Lock()
	err := t.tree.SetAttr(i.ino, &i.attr)
	i.attrMu.Unlock()
	if err != nil {
		t.markDirty(i.ino)
	}
	return err
}

// Flush writes the attributes of all changed inodes to the tree.
func (t *Table) Flush() error {
	t.dirtyMu.Lock()
	all := make([]cowfs.Ino, 0, len(t.dirty))
	for ino := range t.dirty {
		all = append(all, ino)
	}
	t.dirtyMu.Unlock()
	for _, ino := range all {
		if err := t.flushOne(ino); err != nil {
			return err
		}
	}
	return nil
}

// flushOne is Flush for an inode, which may be gone meanwhile, or be an inode without
// references that letGo could not drop.
func (t *Table) flushOne(ino cowfs.Ino) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	i, ok := t.inodes[ino]
	switch {
	case !ok:
		return nil
	case i.refs > 0:
		return t.flushInode(i)
	}
	t.letGo(i)
	if _, stays := t.inodes[ino]; stays && i.Attr().Nlink > 0 {
		return pages.ErrNoSpace
	}
	return nil
}

// Pin makes the files as they are now immutable until Release, and takes away all mappings of
// files that are mapped writably: an address space faults them in again. Other mappings stay,
// as the pages do: who writes to the file takes them away. No name may change meanwhile.
func (t *Table) Pin(id string) (cowfs.State, []pages.Segment, error) {
	if err := t.Flush(); err != nil {
		return cowfs.State{}, nil, err
	}
	state, segments, err := t.tree.Pin(id)
	if err != nil {
		return cowfs.State{}, nil, err
	}
	t.mu.Lock()
	all := make([]*Inode, 0, len(t.inodes))
	for _, i := range t.inodes {
		all = append(all, i)
	}
	t.mu.Unlock()
	for _, i := range all {
		if i.maybeStored() {
			i.invalidateAll()
		}
	}
	return state, segments, nil
}

// Release drops a pin.
func (t *Table) Release(id string) {
	t.hosts.moveMu.Lock()
	defer t.hosts.moveMu.Unlock()
	t.tree.Release(id)
}

// Statfs answers statfs(2). Without a limit the numbers are a tebibyte's.
func (t *Table) Statfs() linux.Statfs {
	s := t.tree.Space()
	if s.Limit == 0 {
		s.Limit = 1 << 28
		s.Free = max(0, s.Limit-s.Used)
	}
	return linux.Statfs{
		Type: linux.OVERLAYFS_SUPER_MAGIC, BlockSize: pages.PageSize, FragmentSize: pages.PageSize, NameLength: linux.NAME_MAX,
		// As on other file systems, some of the free blocks are not for everybody.
		Blocks: uint64(s.Limit), BlocksFree: uint64(max(0, s.Limit-s.Used)), BlocksAvailable: uint64(s.Free),
		Files: 1 << 32, FilesFree: 1 << 31,
	}
}

// Errno makes an error of the tree one that a guest may see, and logs an error that a guest
// cannot understand.
func Errno(err error) error {
	var host unix.Errno
	switch {
	case err == nil:
		return nil
	case errors.Is(err, pages.ErrNoSpace):
		return linuxerr.ENOSPC
	case errors.As(err, new(*lerrors.Error)):
		return err
	case errors.As(err, &host):
		return linuxerr.ErrorFromUnix(host)
	}
	log.Warningf("File system: %v", err)
	return linuxerr.EIO
}
