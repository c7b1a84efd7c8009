package debian

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
)

// leftoverAge is how old a temporary file must be to belong to a dead process.
const leftoverAge = 24 * time.Hour

// cache keeps files under their SHA-256. A file appears by rename only, and its
// digest is checked again at every use, so that neither a crash nor bit rot can
// give wrong content. Processes may share a directory.
//
// The time of change of a file is when it was used last. Whoever uses the cache holds
// a shared lock on it, so that nothing is removed under it.
type cache struct {
	dir  string
	lock *os.File
}

// openCache makes the directories below dir and removes what crashed runs left. Close
// lets others remove from the cache.
func openCache(dir string) (*cache, error) {
	c := &cache{dir: dir}
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

func (c *cache) close() { c.lock.Close() }

func (c *cache) tmp() string { return filepath.Join(c.dir, "tmp") }

// path is only called with digests that parseDigest accepted.
func (c *cache) path(d digest) string {
	return filepath.Join(c.dir, "sha256", d.sha256[:2], d.sha256)
}

// has reports whether the cache holds d intact; a damaged file is removed.
func (c *cache) has(ctx context.Context, d digest) (bool, error) {
	f, err := os.Open(c.path(d))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("open cached file: %w", err)
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(h, &contextReader{ctx, io.LimitReader(f, d.size+1)})
	if err != nil {
		return false, fmt.Errorf("read cached file: %w", err)
	}
	if n == d.size && hex.EncodeToString(h.Sum(nil)) == d.sha256 {
		now := time.Now()
		_ = os.Chtimes(c.path(d), now, now) // another user's cache may be used all the same
		return true, nil
	}
	if err := os.Remove(c.path(d)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, fmt.Errorf("remove damaged cached file: %w", err)
	}
	return false, nil
}

// spool returns a temporary file that has no name any more and vanishes when
// it is closed.
func (c *cache) spool() (*os.File, error) {
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

// incoming is a file on its way into the cache.
type incoming struct {
	c    *cache
	f    *os.File
	sum  hash.Hash
	size int64
}

func (c *cache) create() (*incoming, error) {
	f, err := os.CreateTemp(c.tmp(), "part-*")
	if err != nil {
		return nil, fmt.Errorf("make cache file: %w", err)
	}
	return &incoming{c: c, f: f, sum: sha256.New()}, nil
}

func (in *incoming) Write(p []byte) (int, error) {
	n, err := in.f.Write(p)
	in.sum.Write(p[:n])
	in.size += int64(n)
	return n, err
}

// commit moves the file to its place if it is what d promises.
func (in *incoming) commit(what string, d digest) error {
	if got := hex.EncodeToString(in.sum.Sum(nil)); in.size != d.size || got != d.sha256 {
		return &DigestError{
			What: what,
			Want: fmt.Sprintf("sha256 %s, %d bytes", d.sha256, d.size),
			Got:  fmt.Sprintf("sha256 %s, %d bytes", got, in.size),
		}
	}
	if err := in.f.Close(); err != nil {
		return fmt.Errorf("close cache file: %w", err)
	}
	dst := in.c.path(d)
	if err := os.MkdirAll(filepath.Dir(dst), 0o700); err != nil {
		return fmt.Errorf("make cache directory: %w", err)
	}
	if err := os.Rename(in.f.Name(), dst); err != nil {
		return fmt.Errorf("store cache file: %w", err)
	}
	return nil
}

// discard drops the file; after a successful commit it does nothing.
func (in *incoming) discard() {
	in.f.Close()
	_ = os.Remove(in.f.Name())
}

// contextReader makes a long copy end when its context does.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (r *contextReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}
