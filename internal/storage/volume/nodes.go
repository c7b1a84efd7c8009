package volume

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Attr has the attributes of a file or directory.
type Attr struct {
	Ino    uint64
	Mode   uint32 // with the type, as of stat(2)
	UID    uint32
	GID    uint32
	Nlink  uint32
	Rdev   uint64
	Size   int64
	Blocks int64 // of 512 bytes
	Atime  int64 // nanoseconds since 1970
	Mtime  int64
	Ctime  int64
}

func (a *Attr) is(kind uint32) bool { return a.Mode&unix.S_IFMT == kind }

// stat reads the attributes in the database: those of contents are not there.
func stat(ctx context.Context, q *statements, ino uint64) (*Attr, error) {
	a := &Attr{Ino: ino}
	row := q.QueryRowContext(ctx, `SELECT mode, uid, gid, nlink, rdev, ifnull(length(target), 0), atime, mtime, ctime FROM nodes WHERE ino = ?`, int64(ino))
	err := row.Scan(&a.Mode, &a.UID, &a.GID, &a.Nlink, &a.Rdev, &a.Size, &a.Atime, &a.Mtime, &a.Ctime)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, unix.ESTALE
	}
	return a, err
}

// complete adds what the host knows of a regular file.
func (v *Volume) complete(a *Attr) error {
	if !a.is(unix.S_IFREG) {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Stat(v.dataPath(a.Ino), &st); err != nil {
		return err
	}
	a.Size, a.Blocks, a.Atime, a.Mtime = st.Size, st.Blocks, st.Atim.Nano(), st.Mtim.Nano()
	a.Ctime = max(a.Ctime, st.Ctim.Nano())
	return nil
}

// Stat returns the attributes of a file or directory: ESTALE if it is gone.
func (v *Volume) Stat(ctx context.Context, ino uint64) (*Attr, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	a, err := stat(ctx, v.db, ino)
	if err != nil {
		return nil, err
	}
	return a, v.complete(a)
}

// find returns the number behind a name in a directory.
func find(ctx context.Context, q *statements, dir uint64, name []byte) (uint64, error) {
	var ino int64
	err := q.QueryRowContext(ctx, `SELECT ino FROM entries WHERE dir = ? AND name = ?`, int64(dir), name).Scan(&ino)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, unix.ENOENT
	}
	return uint64(ino), err
}

// Lookup returns what a directory has under a name.
func (v *Volume) Lookup(ctx context.Context, dir uint64, name []byte) (*Attr, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	ino, err := find(ctx, v.db, dir, name)
	if err != nil {
		return nil, err
	}
	a, err := stat(ctx, v.db, ino)
	if err != nil {
		return nil, err
	}
	return a, v.complete(a)
}

// Changes are attributes to change; nil leaves one as it is.
type Changes struct {
	Mode  *uint32 // permission bits
	UID   *uint32
	GID   *uint32
	Size  *int64
	Atime *int64 // nanoseconds since 1970
	Mtime *int64
}

// SetAttr changes attributes, and returns all.
func (v *Volume) SetAttr(ctx context.Context, ino uint64, c Changes) (*Attr, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	var out *Attr
	err := v.changeLocked(ctx, func(tx *statements) (used int64, err error) {
		a, err := stat(ctx, tx, ino)
		if err != nil {
			return 0, err
		}
		if c.Size != nil {
			if used, err = v.resize(ctx, tx, a, *c.Size); err != nil {
				return 0, err
			}
		}
		if c.Mode != nil {
			a.Mode = a.Mode&unix.S_IFMT | *c.Mode&^unix.S_IFMT
		}
		if c.UID != nil {
			a.UID = *c.UID
		}
		if c.GID != nil {
			a.GID = *c.GID
		}
		a.Ctime = time.Now().UnixNano()
		if c.Atime != nil {
			a.Atime = *c.Atime
		}
		if c.Mtime != nil {
			a.Mtime = *c.Mtime
		}
		out = a
		_, err = tx.ExecContext(ctx, `UPDATE nodes SET mode = ?, uid = ?, gid = ?, atime = ?, mtime = ?, ctime = ? WHERE ino = ?`,
			a.Mode, a.UID, a.GID, a.Atime, a.Mtime, a.Ctime, int64(ino))
		return used, err
	})
	if err != nil {
		return nil, err
	}
	if out.is(unix.S_IFREG) && (c.Atime != nil || c.Mtime != nil) {
		times := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, {Nsec: unix.UTIME_OMIT}}
		for i, t := range []*int64{c.Atime, c.Mtime} {
			if t != nil {
				times[i] = unix.NsecToTimespec(*t)
			}
		}
		if err := unix.UtimesNanoAt(unix.AT_FDCWD, v.dataPath(ino), times, 0); err != nil {
			return nil, err
		}
	}
	return out, v.complete(out)
}

// resize cuts or extends the contents of a regular file, and returns what that takes.
func (v *Volume) resize(ctx context.Context, tx *statements, a *Attr, size int64) (used int64, err error) {
	switch {
	case a.is(unix.S_IFDIR):
		return 0, unix.EISDIR
	case !a.is(unix.S_IFREG) || size < 0:
		return 0, unix.EINVAL
	}
	used, err = v.setRoom(ctx, tx, a.Ino, size)
	if err != nil {
		return 0, err
	}
	return used, unix.Truncate(v.dataPath(a.Ino), size)
}

// setRoom records how far contents may reach, and returns the difference.
func (v *Volume) setRoom(ctx context.Context, tx *statements, ino uint64, room int64) (more int64, err error) {
	var had int64
	if err := tx.QueryRowContext(ctx, `SELECT room FROM nodes WHERE ino = ?`, int64(ino)).Scan(&had); err != nil {
		if errors.Is(err, sql.ErrNoRows) {
			return 0, unix.ESTALE
		}
		return 0, err
	}
	more = room - had
	if more > 0 && more > v.limit-v.used { // the sum may overflow
		return 0, unix.ENOSPC // before anything is done
	}
	_, err = tx.ExecContext(ctx, `UPDATE nodes SET room = ? WHERE ino = ?`, room, int64(ino))
	return more, err
}

// Grow lets the contents of a regular file reach up to an end. ENOSPC says that the limit of the
// volume does not allow it.
func (v *Volume) Grow(ctx context.Context, ino uint64, end int64) error {
	if end < 0 {
		return unix.EFBIG
	}
	return v.change(ctx, func(tx *statements) (int64, error) {
		var room int64
		err := tx.QueryRowContext(ctx, `SELECT room FROM nodes WHERE ino = ?`, int64(ino)).Scan(&room)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return 0, unix.ESTALE
		case err != nil || end <= room:
			return 0, err
		}
		return v.setRoom(ctx, tx, ino, end)
	})
}

// Data opens the contents of a regular file with flags of open(2): O_RDONLY, or O_RDWR with or
// without O_APPEND.
func (v *Volume) Data(ctx context.Context, ino uint64, flags int) (*os.File, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	a, err := stat(ctx, v.db, ino)
	if err != nil {
		return nil, err
	}
	if !a.is(unix.S_IFREG) {
		return nil, unix.EINVAL
	}
	return os.OpenFile(v.dataPath(ino), flags&(unix.O_ACCMODE|unix.O_APPEND)|unix.O_CLOEXEC, 0)
}

// Readlink returns the target of a symbolic link.
func (v *Volume) Readlink(ctx context.Context, ino uint64) (target []byte, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	var mode uint32
	err = v.db.QueryRowContext(ctx, `SELECT mode, target FROM nodes WHERE ino = ?`, int64(ino)).Scan(&mode, &target)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil, unix.ESTALE
	case err == nil && mode&unix.S_IFMT != unix.S_IFLNK:
		return nil, unix.EINVAL
	}
	return target, err
}

// Errno returns the system error that a guest gets for an error of an operation.
func Errno(err error) unix.Errno {
	var e unix.Errno
	switch {
	case err == nil:
		return 0
	case errors.As(err, &e):
		return e
	case errors.Is(err, fs.ErrNotExist):
		return unix.ESTALE
	}
	return unix.EIO
}
