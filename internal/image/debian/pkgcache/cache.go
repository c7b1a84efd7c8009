package pkgcache

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/image/debian/bounded"
	"ramet.dev/ramet/internal/image/debian/fault"
)

// leftoverAge is how old a temporary file must be to belong to a dead process.
const leftoverAge = 24 * time.Hour

// Cache keeps files under their SHA-256. A file appears by rename only, and its
// digest is checked again at every use, so that neither a crash nor bit rot can
// give wrong content. Processes may share a directory.
//
// The time of change of a file is when it was used last. Whoever uses the cache holds
// a shared lock on it, so that nothing is removed under it.
type Cache struct {
	dir  string
	lock *os.File
}

// Open makes the directories below dir and removes temporary files of crashed processes.
// Close lets others remove from the cache.
func Open(dir string) (*Cache, error) {
	c := &Cache{dir: dir}
	if err := os.MkdirAll(c.tmp(), 0o700); err != nil {
		return nil, fmt.Errorf("make package cache: %w", err)
	}
	var err error
	if c.lock, err = lockCache(dir, unix.LOCK_SH); err != nil {
		return nil, err
	}
	old, _ := os.ReadDir(c.tmp())
	for _, e := range old {
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > leftoverAge {
			_ = os.Remove(filepath.Join(c.tmp(), e.Name()))
		}
	}
	return c, nil
}

// Close gives up the lock on the cache.
func (c *Cache) Close() { c.lock.Close() }

func (c *Cache) tmp() string { return filepath.Join(c.dir, "tmp") }

// Path returns the place of the file with digest d, which must be of ParseDigest.
func (c *Cache) Path(d Digest) string {
	return filepath.Join(c.dir, "sha256", d.SHA256[:2], d.SHA256)
}

// Has reports whether the cache holds d intact; a damaged file is removed.
func (c *Cache) Has(ctx context.Context, d Digest) (bool, error) {
	f, err := os.Open(c.Path(d))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("open cached file: %w", err)
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(h, bounded.WithContext(ctx, io.LimitReader(f, d.Size+1)))
	if err != nil {
		return false, fmt.Errorf("read cached file: %w", err)
	}
	if n == d.Size && hex.EncodeToString(h.Sum(nil)) == d.SHA256 {
		now := time.Now()
		_ = os.Chtimes(c.Path(d), now, now) // another user's cache may be used all the same
		return true, nil
	}
	if err := os.Remove(c.Path(d)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, fmt.Errorf("remove damaged cached file: %w", err)
	}
	return false, nil
}

// Spool returns a temporary file that has no name any more and vanishes when
// it is closed.
func (c *Cache) Spool() (*os.File, error) {
	f, err := os.CreateTemp(c.tmp(), "spool-*")
	if err != nil {
		return nil, fmt.Errorf("make spool file: %w", err)
	}
	if err := os.Remove(f.Name()); err != nil {
		f.Close()
		return nil, fmt.Errorf("unlink spool file: %w", err)
	}
	return f, nil
}

// Incoming is a file on its way into the cache.
type Incoming struct {
	c    *Cache
	f    *os.File
	sum  hash.Hash
	size int64 // bytes written
}

// Create begins a file, which Commit or Discard ends.
func (c *Cache) Create() (*Incoming, error) {
	f, err := os.CreateTemp(c.tmp(), "part-*")
	if err != nil {
		return nil, fmt.Errorf("make cache file: %w", err)
	}
	return &Incoming{c: c, f: f, sum: sha256.New()}, nil
}

// Size returns how many bytes were written.
func (in *Incoming) Size() int64 { return in.size }

func (in *Incoming) Write(p []byte) (int, error) {
	n, err := in.f.Write(p)
	in.sum.Write(p[:n])
	in.size += int64(n)
	return n, err
}

// Commit moves the file to its place if its contents have the digest d.
func (in *Incoming) Commit(what string, d Digest) error {
	if got := hex.EncodeToString(in.sum.Sum(nil)); in.size != d.Size || got != d.SHA256 {
		return &fault.DigestError{
			What: what,
			Want: fmt.Sprintf("sha256 %s, %d bytes", d.SHA256, d.Size),
			Got:  fmt.Sprintf("sha256 %s, %d bytes", got, in.size),
		}
	}
	if err := in.f.Close(); err != nil {
		return fmt.Errorf("close cache file: %w", err)
	}
	dst := in.c.Path(d)
	if err := os.MkdirAll(filepath.Dir(dst), 0o700); err != nil {
		return fmt.Errorf("make cache directory: %w", err)
	}
	if err := os.Rename(in.f.Name(), dst); err != nil {
		return fmt.Errorf("store cache file: %w", err)
	}
	return nil
}

// Discard drops the file; after a successful Commit it does nothing.
func (in *Incoming) Discard() {
	in.f.Close()
	_ = os.Remove(in.f.Name())
}
