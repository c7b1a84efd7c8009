package rootfs

import (
	"sync"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/vfs"

	"ramet.dev/ramet/internal/sentry/rootfs/inode"
	"ramet.dev/ramet/internal/storage/cowfs"
)

// directoryFD is an open directory.
type directoryFD struct {
	fileFD
	vfs.DirectoryFileDescriptionDefaultImpl

	mu sync.Mutex
	// off counts entries, with "." and "..". last is the name of the last entry that
	// was returned. Reading goes on behind last, so that no entry is left out or comes
	// twice because of entries that come and go meanwhile.
	off  int64
	last string
	// ended says that the end was reached: later entries are seen after a seek.
	ended bool
}

// Release implements vfs.FileDescriptionImpl.Release.
func (fd *directoryFD) Release(context.Context) {}

// manyEntries is the number of entries that are read with the tree locked.
const manyEntries = 512

// IterDirents implements vfs.FileDescriptionImpl.IterDirents.
func (fd *directoryFD) IterDirents(_ context.Context, cb vfs.IterDirentsCallback) error {
	d := fd.dentry()
	fd.mu.Lock()
	defer fd.mu.Unlock()
	d.inode.Accessed(fd.vfsfd.Mount())
	emit := func(e cowfs.Entry) error {
		err := cb.Handle(vfs.Dirent{Name: e.Name, Type: e.Type, Ino: uint64(e.Ino), NextOff: fd.off + 1})
		if err == nil {
			fd.off++
			if fd.off > 2 {
				fd.last = e.Name
			}
		}
		return err
	}
	for fd.off < 2 {
		e := cowfs.Entry{Name: ".", Ino: d.inode.Ino(), Type: linux.DT_DIR}
		if fd.off == 1 {
			e.Name = ".."
			d.names.ancestryMu.RLock()
			if parent := d.parent.Load(); parent != nil {
				e.Ino = parent.inode.Ino()
			}
			d.names.ancestryMu.RUnlock()
		}
		if err := emit(e); err != nil {
			return err
		}
	}
	for !fd.ended {
		entries, err := fd.next()
		if err != nil {
			return inode.Errno(err)
		}
		for _, e := range entries {
			if err := emit(e); err != nil {
				return err
			}
		}
		fd.ended = len(entries) < manyEntries
	}
	return nil
}

// next returns some entries behind fd.last.
func (fd *directoryFD) next() ([]cowfs.Entry, error) {
	entries := make([]cowfs.Entry, 0, 32)
	from := fd.last
	if from != "" {
		from += "\x00" // the next name that there could be
	}
	d := fd.dentry()
	err := d.names.table.Tree().Entries(d.inode.Ino(), from, func(e cowfs.Entry) bool {
		entries = append(entries, e)
		return len(entries) < manyEntries
	})
	return entries, err
}

// Seek implements vfs.FileDescriptionImpl.Seek.
func (fd *directoryFD) Seek(_ context.Context, offset int64, whence int32) (int64, error) {
	fd.mu.Lock()
	defer fd.mu.Unlock()
	switch whence {
	case linux.SEEK_SET:
	case linux.SEEK_CUR:
		offset += fd.off
	default:
		return 0, linuxerr.EINVAL
	}
	if offset < 0 {
		return 0, linuxerr.EINVAL
	}
	if offset == fd.off {
		return offset, nil
	}
	fd.off, fd.last, fd.ended = min(offset, 2), "", false
	d := fd.dentry()
	if offset <= 2 {
		return offset, nil
	}
	err := d.names.table.Tree().Entries(d.inode.Ino(), "", func(e cowfs.Entry) bool {
		fd.last = e.Name
		fd.off++
		return fd.off < offset
	})
	fd.off = offset
	return offset, inode.Errno(err)
}
