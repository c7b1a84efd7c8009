package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"modernc.org/sqlite" // the "sqlite" driver
	sqlite3 "modernc.org/sqlite/lib"

	"ramet.dev/ramet/api"
)

// Table names a kind of record.
type Table string

// The tables.
const (
	Sandboxes Table = "sandboxes"
	Snapshots Table = "snapshots"
	Freezes   Table = "freezes"
	Grants    Table = "grants"
	Activity  Table = "activity"  // times at which sandboxes were used last
	Timelines Table = "timelines" // steps of sandboxes with automatic checkpoints
	Gone      Table = "gone"      // names of removed sandboxes and snapshots with descendants
	Tokens    Table = "tokens"
	Tenants   Table = "tenants"
	Answers   Table = "answers"   // answers to requests that may be repeated
	Published Table = "published" // ports of the host that lead to sandboxes

	Explorations Table = "explorations"
	Volumes      Table = "volumes"
)

// formatVersion changes with every incompatible change of the documents. An
// older program refuses a newer store.
const formatVersion = 1

// Store is an open database. It is safe for concurrent use.
type Store struct {
	db   *sql.DB
	lock *os.File
	path string
}

// Open opens the database at path and makes it if there is none. One process at a time may
// have it open: each of two daemons would take the other's sandboxes for lost.
func Open(ctx context.Context, path string) (*Store, error) {
	return OpenIf(ctx, path, func() error { return nil })
}

// OpenIf is Open, but before it makes a database it calls mayMake and returns its error. It
// makes one also in place of an empty file.
func OpenIf(ctx context.Context, path string, mayMake func() error) (*Store, error) {
	return open(ctx, path, "", mayMake)
}

// open is OpenIf with the name of a VFS of SQLite, through which the database reaches the
// file system, or "" for SQLite's own. Tests name one whose operations fail.
func open(ctx context.Context, path, vfs string, mayMake func() error) (_ *Store, err error) {
	lock, err := acquire(ctx, path+".lock")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			lock.Close()
		}
	}()
	// A running sandbox does not survive the host, so most records need not survive a
	// power failure: synchronous=NORMAL is safe against crashes of the process and keeps
	// fsync out of the path of a fork. Hibernated sandboxes and snapshots on disk do
	// survive: their callers use Sync.
	dsn := "file:" + url.PathEscape(path) + "?_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)&_pragma=busy_timeout(5000)&_txlock=immediate"
	if vfs != "" {
		dsn += "&vfs=" + vfs
	}
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	db.SetMaxOpenConns(1) // one writer; the daemon reads at start only
	s := &Store{db: db, lock: lock, path: path}
	if err := s.migrate(ctx, mayMake); err != nil {
		db.Close()
		return nil, err
	}
	return s, nil
}

func (s *Store) migrate(ctx context.Context, mayMake func() error) error {
	var version int
	if err := s.db.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err != nil {
		return api.Errorf(api.CodeCorrupt, "open store: %s: %w", s.path, err)
	}
	if version != 0 && version != formatVersion {
		return api.Errorf(api.CodeUnsupported, "open store: its format is version %d, this program knows %d", version, formatVersion)
	}
	if version == 0 {
		if err := mayMake(); err != nil {
			return fmt.Errorf("make store: %w", err)
		}
	}
	for _, t := range []Table{Sandboxes, Snapshots, Freezes, Grants, Activity, Timelines, Gone, Tokens, Tenants, Answers, Published, Explorations, Volumes} {
		if _, err := s.db.ExecContext(ctx, fmt.Sprintf("CREATE TABLE IF NOT EXISTS %s (id TEXT PRIMARY KEY, doc BLOB NOT NULL) WITHOUT ROWID", t)); err != nil {
			return fmt.Errorf("make store %s: %w", s.path, err)
		}
	}
	if _, err := s.db.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d", formatVersion)); err != nil {
		return fmt.Errorf("make store %s: %w", s.path, err)
	}
	if version == 0 {
		// After a power failure a new store must not look like one that lost its records.
		return s.Sync(ctx)
	}
	return nil
}

// lockTimeout bounds the wait for the lock. A daemon that was killed while it started a process
// leaves the lock to that process, until the process runs its program.
const lockTimeout = 2 * time.Second

// acquire takes the lock that the returned file holds while it is open.
func acquire(ctx context.Context, path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			if err := f.Truncate(0); err != nil { // it names the former owner
				f.Close()
				return nil, fmt.Errorf("lock store: %w", err)
			}
			return f, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			f.Close()
			return nil, fmt.Errorf("lock store: %w", err)
		}
		select {
		case <-time.After(lockTimeout / 100):
		case <-ctx.Done():
			text, err := io.ReadAll(io.LimitReader(f, maxHolder))
			if err = errors.Join(err, f.Close()); err != nil {
				return nil, fmt.Errorf("read lock of store: %w", err)
			}
			return nil, inUse(filepath.Dir(path), strings.TrimSpace(string(text)))
		}
	}
}

// maxHolder bounds the bytes that are read of a lock.
const maxHolder = 16 << 10

// Hold writes the owner of the store, a process whose sockets are in runtimeDir, to the lock.
// The error of an Open that is refused names it.
func (s *Store) Hold(pid int, runtimeDir string) error {
	if _, err := s.lock.WriteAt(fmt.Appendf(nil, "%d %q\n", pid, runtimeDir), 0); err != nil {
		return fmt.Errorf("write lock of store: %w", err)
	}
	return nil
}

// inUse returns the error of a store in dir that another process has open. holder is the text
// that Hold wrote; earlier versions wrote none.
func inUse(dir, holder string) error {
	var pid int
	var runtimeDir string
	if _, err := fmt.Sscanf(holder, "%d %q", &pid, &runtimeDir); err != nil {
		return api.Errorf(api.CodeConflict, "another daemon uses %s: if it is yours, set XDG_RUNTIME_DIR or RAMET_RUNTIME_DIR as it was when that one started, else give this one another RAMET_DATA_DIR", dir)
	}
	return api.Errorf(api.CodeConflict, "the daemon of process %d, whose sockets are in %s, uses %s: to talk to it, set RAMET_RUNTIME_DIR=%s; for a daemon of its own, set another RAMET_DATA_DIR", pid, runtimeDir, dir, runtimeDir)
}

// Close closes the database.
func (s *Store) Close() error { return errors.Join(s.db.Close(), s.lock.Close()) }

// Change is a record to be written, or deleted if Doc is nil.
type Change struct {
	Table Table
	ID    string
	Doc   any
}

// Apply makes all changes or none. A full disk is api.CodeNoSpace.
func (s *Store) Apply(ctx context.Context, changes ...Change) error {
	if err := s.apply(ctx, changes); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx) // the database calls it an interruption
		}
		var failed *sqlite.Error
		if errors.As(err, &failed) && failed.Code() == sqlite3.SQLITE_FULL {
			return api.Errorf(api.CodeNoSpace, "write to store %s: %w", s.path, err)
		}
		return fmt.Errorf("write to store %s: %w", s.path, err)
	}
	return nil
}

func (s *Store) apply(ctx context.Context, changes []Change) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // no effect after Commit
	for _, c := range changes {
		if c.Doc == nil {
			_, err = tx.ExecContext(ctx, fmt.Sprintf("DELETE FROM %s WHERE id = ?", c.Table), c.ID)
		} else {
			var doc []byte
			if doc, err = json.Marshal(c.Doc); err != nil {
				return err
			}
			_, err = tx.ExecContext(ctx, fmt.Sprintf("INSERT INTO %s (id, doc) VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET doc = excluded.doc", c.Table), c.ID, doc)
		}
		if err != nil {
			return err
		}
	}
	return tx.Commit()
}

// Sync makes all changes so far survive a power failure.
func (s *Store) Sync(ctx context.Context) error {
	var busy, log, moved int
	if err := s.db.QueryRowContext(ctx, "PRAGMA wal_checkpoint(FULL)").Scan(&busy, &log, &moved); err != nil {
		return fmt.Errorf("sync store %s: %w", s.path, err)
	}
	if busy != 0 || moved < log {
		return fmt.Errorf("sync store %s: %d of %d pages are on disk", s.path, moved, log)
	}
	return nil
}

// Get reads a document, and returns whether there is one.
func (s *Store) Get(ctx context.Context, t Table, id string, doc any) (bool, error) {
	var text []byte
	err := s.db.QueryRowContext(ctx, fmt.Sprintf("SELECT doc FROM %s WHERE id = ?", t), id).Scan(&text)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, s.readError(err)
	}
	if err := json.Unmarshal(text, doc); err != nil {
		return false, api.Errorf(api.CodeCorrupt, "record %s in %s: %w", id, t, err)
	}
	return true, nil
}

// Each calls fn with every document of a table, ordered by id.
func (s *Store) Each(ctx context.Context, t Table, fn func(id string, doc []byte) error) error {
	rows, err := s.db.QueryContext(ctx, fmt.Sprintf("SELECT id, doc FROM %s ORDER BY id", t))
	if err != nil {
		return s.readError(err)
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		var doc []byte
		if err := rows.Scan(&id, &doc); err != nil {
			return s.readError(err)
		}
		if err := fn(id, doc); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return s.readError(err)
	}
	return nil
}

// readError names the damaged file in an error that says so.
func (s *Store) readError(err error) error {
	var failed *sqlite.Error
	if errors.As(err, &failed) && (failed.Code()&0xff == sqlite3.SQLITE_CORRUPT || failed.Code() == sqlite3.SQLITE_NOTADB) {
		return api.Errorf(api.CodeCorrupt, "read store: %s is damaged: put back a copy of it with its -wal; sandboxes that run go on, and snapshots stay: %w", s.path, err)
	}
	return fmt.Errorf("read store: %w", err)
}
