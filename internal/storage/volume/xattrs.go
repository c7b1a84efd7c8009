package volume

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// Bounds of extended attributes, as those of Linux: bytes of a value, and of all names.
const (
	maxXattr      = 64 << 10
	maxXattrNames = 64 << 10
)

// Xattr returns the value of an extended attribute.
func (v *Volume) Xattr(ctx context.Context, ino uint64, name []byte) (value []byte, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	err = v.db.QueryRowContext(ctx, `SELECT value FROM xattrs WHERE ino = ? AND name = ?`, int64(ino), name).Scan(&value)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, unix.ENODATA
	}
	return value, err
}

// SetXattr sets an extended attribute. flags are those of setxattr(2).
func (v *Volume) SetXattr(ctx context.Context, ino uint64, name, value []byte, flags uint32) error {
	if len(name) == 0 || len(name) > maxName {
		return unix.ERANGE
	}
	if len(value) > maxXattr {
		return unix.E2BIG
	}
	if value == nil {
		value = []byte{}
	}
	return v.change(ctx, func(tx *statements) (int64, error) {
		if _, err := stat(ctx, tx, ino); err != nil {
			return 0, err
		}
		var had int64
		err := tx.QueryRowContext(ctx, `SELECT ? + length(name) + length(value) FROM xattrs WHERE ino = ? AND name = ?`, recordCost, int64(ino), name).Scan(&had)
		is := err == nil
		switch {
		case err != nil && !errors.Is(err, sql.ErrNoRows):
			return 0, err
		case flags&unix.XATTR_CREATE != 0 && is:
			return 0, unix.EEXIST
		case flags&unix.XATTR_REPLACE != 0 && !is:
			return 0, unix.ENODATA
		}
		var names int64
		if err := tx.QueryRowContext(ctx, `SELECT ifnull(sum(length(name) + 1), 0) FROM xattrs WHERE ino = ?`, int64(ino)).Scan(&names); err != nil {
			return 0, err
		}
		if !is && names+int64(len(name))+1 > maxXattrNames {
			return 0, unix.ENOSPC
		}
		_, err = tx.ExecContext(ctx, `INSERT OR REPLACE INTO xattrs VALUES (?, ?, ?)`, int64(ino), name, value)
		if err == nil {
			err = changed(ctx, tx, ino)
		}
		return nameCost(name) + int64(len(value)) - had, err
	})
}

// changed notes that something of a file was changed.
func changed(ctx context.Context, tx *statements, ino uint64) error {
	_, err := tx.ExecContext(ctx, `UPDATE nodes SET ctime = ? WHERE ino = ?`, time.Now().UnixNano(), int64(ino))
	return err
}

// Xattrs returns the names of the extended attributes.
func (v *Volume) Xattrs(ctx context.Context, ino uint64) (names [][]byte, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	rows, err := v.db.QueryContext(ctx, `SELECT name FROM xattrs WHERE ino = ? ORDER BY name`, int64(ino))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var name []byte
		if err := rows.Scan(&name); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, rows.Err()
}

// RemoveXattr removes an extended attribute.
func (v *Volume) RemoveXattr(ctx context.Context, ino uint64, name []byte) error {
	return v.change(ctx, func(tx *statements) (int64, error) {
		var had int64
		err := tx.QueryRowContext(ctx, `DELETE FROM xattrs WHERE ino = ? AND name = ? RETURNING ? + length(name) + length(value)`, int64(ino), name, recordCost).Scan(&had)
		if errors.Is(err, sql.ErrNoRows) {
			return 0, unix.ENODATA
		}
		if err == nil {
			err = changed(ctx, tx, ino)
		}
		return -had, err
	})
}
