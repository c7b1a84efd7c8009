package volume

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	_ "modernc.org/sqlite" // the "sqlite" driver
)

// Root is the number of a volume's root directory.
const Root = 1

const (
	// maxName and maxTarget bound names, and targets of symbolic links, in bytes, as Linux does.
	maxName   = 255
	maxTarget = 4095
	// nodeCost is what a file or directory takes of the limit besides its contents, in bytes. Each of its names and
	// each attribute takes recordCost besides its text.
	nodeCost   = 1 << 10
	recordCost = 128
)

// nameCost is what a name takes of the limit.
func nameCost(name []byte) int64 { return recordCost + int64(len(name)) }

const schema = `
CREATE TABLE IF NOT EXISTS nodes (
	ino INTEGER PRIMARY KEY AUTOINCREMENT, mode INTEGER NOT NULL, uid INTEGER NOT NULL, gid INTEGER NOT NULL,
	nlink INTEGER NOT NULL, rdev INTEGER NOT NULL, target BLOB, room INTEGER NOT NULL,
	atime INTEGER NOT NULL, mtime INTEGER NOT NULL, ctime INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS entries (
	dir INTEGER NOT NULL, name BLOB NOT NULL, ino INTEGER NOT NULL, PRIMARY KEY (dir, name)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS xattrs (
	ino INTEGER NOT NULL, name BLOB NOT NULL, value BLOB NOT NULL, PRIMARY KEY (ino, name)) WITHOUT ROWID;
`

// Volume is an open volume. It is safe for concurrent use.
type Volume struct {
	dir   string
	limit int64
	pool  *sql.DB // with one connection
	db    *statements

	// mu orders operations. used is guarded by it.
	mu   sync.Mutex
	used int64
}

// Open opens the volume in the directory dir, and makes it if there is none. limit bounds what
// it may hold, in bytes. One process at a time may have it open.
func Open(ctx context.Context, dir string, limit int64) (*Volume, error) {
	if err := os.MkdirAll(filepath.Join(dir, "data"), 0o700); err != nil {
		return nil, fmt.Errorf("open volume: %w", err)
	}
	dsn := "file:" + url.PathEscape(filepath.Join(dir, "names.db")) + "?_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)&_pragma=busy_timeout(5000)"
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		return nil, fmt.Errorf("open volume: %w", err)
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		db.Close()
		return nil, fmt.Errorf("open volume %s: %w", dir, err)
	}
	v := &Volume{dir: dir, limit: limit, pool: db, db: &statements{conn, map[string]*sql.Stmt{}}}
	if err := v.prepare(ctx); err != nil {
		v.Close()
		return nil, fmt.Errorf("open volume %s: %w", dir, err)
	}
	return v, nil
}

func (v *Volume) prepare(ctx context.Context) error {
	if _, err := v.db.conn.ExecContext(ctx, schema); err != nil {
		return err
	}
	now := time.Now().UnixNano()
	const root = `INSERT OR IGNORE INTO nodes VALUES (1, ?, 0, 0, 2, 0, NULL, 0, ?, ?, ?)`
	if _, err := v.db.ExecContext(ctx, root, unix.S_IFDIR|0o777, now, now, now); err != nil {
		return err
	}
	// Those who held files without names are gone.
	if _, err := v.db.conn.ExecContext(ctx, `DELETE FROM nodes WHERE nlink = 0; DELETE FROM xattrs WHERE ino NOT IN (SELECT ino FROM nodes)`); err != nil {
		return err
	}
	const all = `SELECT sum(? + room + ifnull(length(target), 0)) + (SELECT ifnull(sum(? + length(name)), 0) FROM entries) +
		(SELECT ifnull(sum(? + length(name) + length(value)), 0) FROM xattrs) FROM nodes`
	if err := v.db.QueryRowContext(ctx, all, nodeCost, recordCost, recordCost).Scan(&v.used); err != nil {
		return err
	}
	return v.sweep(ctx)
}

// sweep removes contents of files that are gone: the process ended before it removed them.
func (v *Volume) sweep(ctx context.Context) error {
	files, err := os.ReadDir(filepath.Join(v.dir, "data"))
	if err != nil {
		return err
	}
	for _, f := range files {
		ino, err := strconv.ParseUint(f.Name(), 16, 63)
		if err != nil {
			continue
		}
		err = v.db.QueryRowContext(ctx, `SELECT ino FROM nodes WHERE ino = ?`, int64(ino)).Scan(new(int64))
		if errors.Is(err, sql.ErrNoRows) {
			err = os.Remove(v.dataPath(ino))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Close closes the volume.
func (v *Volume) Close() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return errors.Join(v.db.close(), v.pool.Close())
}

// Usage returns what the volume holds, and its limit, in bytes, with the number of its files and
// directories.
func (v *Volume) Usage(ctx context.Context) (used, limit, nodes int64, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	err = v.db.QueryRowContext(ctx, `SELECT count(*) FROM nodes`).Scan(&nodes)
	return v.used, v.limit, nodes, err
}

func (v *Volume) dataPath(ino uint64) string {
	return filepath.Join(v.dir, "data", strconv.FormatUint(ino, 16))
}

// change runs do in a transaction, and adds what do returns to the used bytes if it is kept.
func (v *Volume) change(ctx context.Context, do func(*statements) (used int64, err error)) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.changeLocked(ctx, do)
}

func (v *Volume) changeLocked(ctx context.Context, do func(*statements) (used int64, err error)) error {
	ctx = context.WithoutCancel(ctx) // it takes less than a millisecond
	if _, err := v.db.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	used, err := do(v.db)
	if err == nil && used > 0 && used > v.limit-v.used {
		err = unix.ENOSPC
	}
	if err == nil {
		_, err = v.db.ExecContext(ctx, "COMMIT")
	}
	if err != nil {
		_, failed := v.db.ExecContext(ctx, "ROLLBACK")
		return errors.Join(err, failed)
	}
	v.used += used
	return nil
}
