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
	// nodeCost is what a file or directory takes of the limit besides its contents, in bytes.
	nodeCost = 1 << 10
)

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
	db    *sql.DB

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
	dsn := "file:" + url.PathEscape(filepath.Join(dir, "names.db")) + "?_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)&_pragma=busy_timeout(5000)&_txlock=immediate"
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		return nil, fmt.Errorf("open volume: %w", err)
	}
	db.SetMaxOpenConns(1) // Volume.mu orders what is done with it
	v := &Volume{dir: dir, limit: limit, db: db}
	if err := v.prepare(ctx); err != nil {
		db.Close()
		return nil, fmt.Errorf("open volume %s: %w", dir, err)
	}
	return v, nil
}

func (v *Volume) prepare(ctx context.Context) error {
	if _, err := v.db.ExecContext(ctx, schema); err != nil {
		return err
	}
	now := time.Now().UnixNano()
	const root = `INSERT OR IGNORE INTO nodes VALUES (1, ?, 0, 0, 2, 0, NULL, 0, ?, ?, ?)`
	if _, err := v.db.ExecContext(ctx, root, unix.S_IFDIR|0o777, now, now, now); err != nil {
		return err
	}
	var nodes, room, xattrs int64
	const all = `SELECT count(*), sum(room), (SELECT ifnull(sum(length(name) + length(value)), 0) FROM xattrs) FROM nodes`
	if err := v.db.QueryRowContext(ctx, all).Scan(&nodes, &room, &xattrs); err != nil {
		return err
	}
	v.used = nodes*nodeCost + room + xattrs
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
	return v.db.Close()
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
func (v *Volume) change(ctx context.Context, do func(*sql.Tx) (used int64, err error)) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.changeLocked(ctx, do)
}

func (v *Volume) changeLocked(ctx context.Context, do func(*sql.Tx) (used int64, err error)) error {
	tx, err := v.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	used, err := do(tx)
	if err == nil && used > 0 && v.used+used > v.limit {
		err = unix.ENOSPC
	}
	if err != nil {
		return errors.Join(err, tx.Rollback())
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	v.used += used
	return nil
}
