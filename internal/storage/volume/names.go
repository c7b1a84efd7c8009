package volume

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Node is a file or directory to be made.
type Node struct {
	Mode   uint32 // with the type
	UID    uint32
	GID    uint32
	Rdev   uint64 // of a device
	Target []byte // of a symbolic link
}

func validName(name []byte) error {
	switch {
	case len(name) > maxName:
		return unix.ENAMETOOLONG
	case len(name) == 0 || string(name) == "." || string(name) == "..":
		return unix.EINVAL
	}
	for _, c := range name {
		if c == 0 || c == '/' {
			return unix.EINVAL
		}
	}
	return nil
}

// directory returns the attributes of a directory.
func directory(ctx context.Context, tx *statements, ino uint64) (*Attr, error) {
	a, err := stat(ctx, tx, ino)
	if err == nil && !a.is(unix.S_IFDIR) {
		err = unix.ENOTDIR
	}
	if err == nil && a.Nlink == 0 {
		err = unix.ENOENT // it was removed
	}
	return a, err
}

// touch notes that a directory was changed, and adds links to it.
func touch(ctx context.Context, tx *statements, ino uint64, links int, now int64) error {
	_, err := tx.ExecContext(ctx, `UPDATE nodes SET nlink = nlink + ?, mtime = ?, ctime = ? WHERE ino = ?`, links, now, now, int64(ino))
	return err
}

func link(ctx context.Context, tx *statements, dir uint64, name []byte, ino uint64) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO entries VALUES (?, ?, ?)`, int64(dir), name, int64(ino))
	return err
}

// vacant returns EEXIST if a directory has the name.
func vacant(ctx context.Context, tx *statements, dir uint64, name []byte) error {
	switch _, err := find(ctx, tx, dir, name); {
	case err == nil:
		return unix.EEXIST
	case !errors.Is(err, unix.ENOENT):
		return err
	}
	return nil
}

// Make makes a file, directory, link, device, socket or fifo under a name that is free.
func (v *Volume) Make(ctx context.Context, dir uint64, name []byte, n Node) (*Attr, error) {
	if err := validName(name); err != nil {
		return nil, err
	}
	kind := n.Mode & unix.S_IFMT
	links := uint32(1)
	switch kind {
	case unix.S_IFREG, unix.S_IFIFO, unix.S_IFSOCK, unix.S_IFCHR, unix.S_IFBLK:
	case unix.S_IFDIR:
		links = 2
	case unix.S_IFLNK:
		if len(n.Target) == 0 {
			return nil, unix.ENOENT
		}
		if len(n.Target) > maxTarget {
			return nil, unix.ENAMETOOLONG
		}
	default:
		return nil, unix.EINVAL
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	var made *Attr
	err := v.changeLocked(ctx, func(tx *statements) (int64, error) {
		if _, err := directory(ctx, tx, dir); err != nil {
			return 0, err
		}
		if err := vacant(ctx, tx, dir, name); err != nil {
			return 0, err
		}
		now := time.Now().UnixNano()
		r, err := tx.ExecContext(ctx, `INSERT INTO nodes (mode, uid, gid, nlink, rdev, target, room, atime, mtime, ctime) VALUES (?, ?, ?, ?, ?, ?, 0, ?, ?, ?)`,
			n.Mode, n.UID, n.GID, links, int64(n.Rdev), n.Target, now, now, now)
		if err != nil {
			return 0, err
		}
		ino, err := r.LastInsertId()
		if err != nil {
			return 0, err
		}
		made = &Attr{Ino: uint64(ino), Mode: n.Mode, UID: n.UID, GID: n.GID, Nlink: links, Rdev: n.Rdev, Size: int64(len(n.Target)), Atime: now, Mtime: now, Ctime: now}
		if err := errors.Join(link(ctx, tx, dir, name, uint64(ino)), touch(ctx, tx, dir, int(links)-1, now)); err != nil {
			return 0, err
		}
		cost := nodeCost + nameCost(name) + int64(len(n.Target))
		if kind != unix.S_IFREG {
			return cost, nil
		}
		// What an earlier process left under a number that was not recorded is cut.
		f, err := os.OpenFile(v.dataPath(uint64(ino)), os.O_CREATE|os.O_TRUNC|os.O_WRONLY|unix.O_CLOEXEC, 0o600)
		if err != nil {
			return 0, err
		}
		return cost, f.Close()
	})
	if err != nil {
		return nil, err
	}
	return made, nil
}

// Link gives a file another name.
func (v *Volume) Link(ctx context.Context, ino, dir uint64, name []byte) (*Attr, error) {
	if err := validName(name); err != nil {
		return nil, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	var a *Attr
	err := v.changeLocked(ctx, func(tx *statements) (_ int64, err error) {
		if _, err := directory(ctx, tx, dir); err != nil {
			return 0, err
		}
		if a, err = stat(ctx, tx, ino); err != nil {
			return 0, err
		}
		switch {
		case a.is(unix.S_IFDIR):
			return 0, unix.EPERM
		case a.Nlink == 0: // it is only held
			return 0, unix.ENOENT
		}
		if err := vacant(ctx, tx, dir, name); err != nil {
			return 0, err
		}
		now := time.Now().UnixNano()
		a.Nlink++
		a.Ctime = now
		_, err = tx.ExecContext(ctx, `UPDATE nodes SET nlink = ?, ctime = ? WHERE ino = ?`, a.Nlink, now, int64(ino))
		return nameCost(name), errors.Join(err, link(ctx, tx, dir, name, ino), touch(ctx, tx, dir, 0, now))
	})
	if err != nil {
		return nil, err
	}
	return a, v.complete(a)
}

// Removal says what a Remove or a Rename removes.
type Removal struct {
	Dir  bool // the name is that of an empty directory; else it must not be one
	Hold bool // a file without a name left stays until Forget
}

// Remove removes a name. A file without a name left is gone, but for those who have its contents
// open, unless it is held: then its number is returned.
func (v *Volume) Remove(ctx context.Context, dir uint64, name []byte, r Removal) (held uint64, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	var gone *Attr
	err = v.changeLocked(ctx, func(tx *statements) (used int64, err error) {
		ino, err := find(ctx, tx, dir, name)
		if err != nil {
			return 0, err
		}
		a, err := stat(ctx, tx, ino)
		if err != nil {
			return 0, err
		}
		switch {
		case r.Dir && !a.is(unix.S_IFDIR):
			return 0, unix.ENOTDIR
		case !r.Dir && a.is(unix.S_IFDIR):
			return 0, unix.EISDIR
		}
		gone, used, err = v.drop(ctx, tx, dir, name, a, r.Hold)
		return used, err
	})
	return v.removeData(gone, err), err
}

// Forget removes a file that was held and has no name. It does nothing to others.
func (v *Volume) Forget(ctx context.Context, ino uint64) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	var gone *Attr
	err := v.changeLocked(ctx, func(tx *statements) (used int64, err error) {
		a, err := stat(ctx, tx, ino)
		if err != nil || a.Nlink > 0 {
			return 0, err
		}
		gone = a
		return v.erase(ctx, tx, ino)
	})
	switch {
	case errors.Is(err, unix.ESTALE):
		return nil
	case err == nil && gone != nil:
		os.Remove(v.dataPath(ino)) // else when the volume is opened again
	}
	return err
}

// drop removes a name with the number in a. It returns what has no name any more, or nil: if that
// is held, with 0 links.
func (v *Volume) drop(ctx context.Context, tx *statements, dir uint64, name []byte, a *Attr, hold bool) (gone *Attr, used int64, err error) {
	links, left := 0, int64(a.Nlink)-1
	if a.is(unix.S_IFDIR) {
		var children int
		if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM (SELECT 1 FROM entries WHERE dir = ? LIMIT 1)`, int64(a.Ino)).Scan(&children); err != nil {
			return nil, 0, err
		}
		if children > 0 {
			return nil, 0, unix.ENOTEMPTY
		}
		links, left = -1, 0
	}
	now := time.Now().UnixNano()
	_, err = tx.ExecContext(ctx, `DELETE FROM entries WHERE dir = ? AND name = ?`, int64(dir), name)
	if err := errors.Join(err, touch(ctx, tx, dir, links, now)); err != nil {
		return nil, 0, err
	}
	if hold = hold && a.is(unix.S_IFREG); left > 0 || hold {
		_, err = tx.ExecContext(ctx, `UPDATE nodes SET nlink = ?, ctime = ? WHERE ino = ?`, left, now, int64(a.Ino))
		if left > 0 {
			return nil, -nameCost(name), err
		}
		a.Nlink = 0
		return a, -nameCost(name), err
	}
	used, err = v.erase(ctx, tx, a.Ino)
	return a, used - nameCost(name), err
}

// erase removes what is recorded of a file without a name.
func (v *Volume) erase(ctx context.Context, tx *statements, ino uint64) (used int64, err error) {
	var contents, xattrs int64
	if err := tx.QueryRowContext(ctx, `DELETE FROM nodes WHERE ino = ? RETURNING room + ifnull(length(target), 0)`, int64(ino)).Scan(&contents); err != nil {
		return 0, err
	}
	if err := tx.QueryRowContext(ctx, `SELECT ifnull(sum(? + length(name) + length(value)), 0) FROM xattrs WHERE ino = ?`, recordCost, int64(ino)).Scan(&xattrs); err != nil {
		return 0, err
	}
	_, err = tx.ExecContext(ctx, `DELETE FROM xattrs WHERE ino = ?`, int64(ino))
	return -contents - xattrs - nodeCost, err
}

// removeData removes the contents of what is gone, if the change that removed it was kept. What
// cannot be removed is when the volume is opened again. It returns the number of what is held.
func (v *Volume) removeData(gone *Attr, err error) (held uint64) {
	if err != nil || gone == nil || !gone.is(unix.S_IFREG) {
		return 0
	}
	if gone.Nlink == 0 { // see drop
		return gone.Ino
	}
	os.Remove(v.dataPath(gone.Ino))
	return 0
}

// Rename moves a name, in place of another one unless keep is set. What it replaces is held if
// hold says so: then its number is returned, as of Remove.
func (v *Volume) Rename(ctx context.Context, from uint64, name []byte, to uint64, newName []byte, keep, hold bool) (held uint64, err error) {
	if err := validName(newName); err != nil {
		return 0, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	var gone *Attr
	err = v.changeLocked(ctx, func(tx *statements) (used int64, err error) {
		ino, err := find(ctx, tx, from, name)
		if err != nil {
			return 0, err
		}
		a, err := stat(ctx, tx, ino)
		if err != nil {
			return 0, err
		}
		if _, err := directory(ctx, tx, to); err != nil {
			return 0, err
		}
		if a.is(unix.S_IFDIR) {
			if err := notBelow(ctx, tx, to, ino); err != nil {
				return 0, err
			}
		}
		gone, used, err = v.makeWay(ctx, tx, a, to, newName, keep, hold)
		if errors.Is(err, errSame) {
			return 0, nil
		}
		if err != nil {
			return 0, err
		}
		now := time.Now().UnixNano()
		links := 0
		if a.is(unix.S_IFDIR) && from != to {
			links = 1
		}
		_, err = tx.ExecContext(ctx, `DELETE FROM entries WHERE dir = ? AND name = ?`, int64(from), name)
		if err == nil {
			_, err = tx.ExecContext(ctx, `UPDATE nodes SET ctime = ? WHERE ino = ?`, now, int64(ino))
		}
		used += nameCost(newName) - nameCost(name)
		return used, errors.Join(err, link(ctx, tx, to, newName, ino), touch(ctx, tx, from, -links, now), touch(ctx, tx, to, links, now))
	})
	return v.removeData(gone, err), err
}

// errSame says that both names are of one file: then nothing is to be done.
var errSame = errors.New("both names are of the same file")

// makeWay removes what a rename of a replaces.
func (v *Volume) makeWay(ctx context.Context, tx *statements, a *Attr, dir uint64, name []byte, keep, hold bool) (gone *Attr, used int64, err error) {
	ino, err := find(ctx, tx, dir, name)
	if errors.Is(err, unix.ENOENT) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	old, err := stat(ctx, tx, ino)
	switch {
	case err != nil:
		return nil, 0, err
	case keep:
		return nil, 0, unix.EEXIST
	case ino == a.Ino:
		return nil, 0, errSame
	case old.is(unix.S_IFDIR) && !a.is(unix.S_IFDIR):
		return nil, 0, unix.EISDIR
	case !old.is(unix.S_IFDIR) && a.is(unix.S_IFDIR):
		return nil, 0, unix.ENOTDIR
	}
	return v.drop(ctx, tx, dir, name, old, hold)
}

// notBelow returns EINVAL if a directory is top or below it.
func notBelow(ctx context.Context, tx *statements, dir, top uint64) error {
	for dir != Root {
		if dir == top {
			return unix.EINVAL
		}
		var up int64
		// Only directories are asked for, which have one name.
		err := tx.QueryRowContext(ctx, `SELECT dir FROM entries WHERE ino = ? LIMIT 1`, int64(dir)).Scan(&up)
		if errors.Is(err, sql.ErrNoRows) {
			return unix.ENOENT
		}
		if err != nil {
			return err
		}
		dir = uint64(up)
	}
	return nil
}

// Entry is a name in a directory.
type Entry struct {
	Name []byte
	Ino  uint64
	Mode uint32
}

// List returns at most max entries of a directory, in the order of their names, from behind a
// name on.
func (v *Volume) List(ctx context.Context, dir uint64, after []byte, max int) ([]Entry, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if a, err := stat(ctx, v.db, dir); err != nil || !a.is(unix.S_IFDIR) {
		return nil, errors.Join(err, unix.ENOTDIR)
	}
	if after == nil {
		after = []byte{}
	}
	rows, err := v.db.QueryContext(ctx, `SELECT e.name, e.ino, n.mode FROM entries e JOIN nodes n ON n.ino = e.ino WHERE e.dir = ? AND e.name > ? ORDER BY e.name LIMIT ?`, int64(dir), after, max)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []Entry
	for rows.Next() {
		var e Entry
		var ino int64
		if err := rows.Scan(&e.Name, &ino, &e.Mode); err != nil {
			return nil, err
		}
		e.Ino = uint64(ino)
		list = append(list, e)
	}
	return list, rows.Err()
}
