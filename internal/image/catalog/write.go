package catalog

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/storage/hostfs"
)

// NewTemp returns an empty file among the blobs that Open in other processes leaves alone
// while it is open. The caller ends it with Discard, also after Add.
func (c *Catalog) NewTemp() (hostfs.File, error) {
	var f hostfs.File
	// Within Locked no collector can come between making and locking.
	err := c.Locked(func() error {
		var err error
		if f, err = c.fs.CreateTemp(c.path(blobsDir), tempPrefix); err != nil {
			return fmt.Errorf("make temporary image: %w", err)
		}
		if _, err = lockFile(f, false); err != nil {
			c.Discard(f)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return f, nil
}

// Discard closes a file of NewTemp and removes it, unless Add has given it its place. A file
// that cannot be removed is collected by the next Open.
func (c *Catalog) Discard(f hostfs.File) {
	c.fs.Remove(f.Name())
	f.Close()
}

// NewSpool returns an empty file without a name: nothing is left of it when it is closed.
func (c *Catalog) NewSpool() (hostfs.File, error) {
	f, err := c.NewTemp()
	if err != nil {
		return nil, err
	}
	if err := c.fs.Remove(f.Name()); err != nil {
		f.Close()
		return nil, fmt.Errorf("make temporary file: %w", err)
	}
	return f, nil
}

// Add makes f, a synced file of NewTemp, the image of r. Of an image that the catalog has only
// r.Containers are added. It fills in r's version. It runs within Locked.
func (c *Catalog) Add(id string, f hostfs.File, r Record) error {
	r.Version = formatVersion
	known, err := c.Record(id)
	switch {
	case err == nil && known.Digest != r.Digest:
		return api.Errorf(api.CodeConflict, "images sha256:%s and sha256:%s have the same id %s", known.Digest, r.Digest, id)
	case err != nil && api.CodeOf(err) != api.CodeNotFound:
		return err
	}
	// A good file stays, for the page cache that it shares with running sandboxes.
	if !c.HasBlob(r) {
		if err := c.publish(f, c.BlobPath(r.Digest)); err != nil {
			return err
		}
	}
	if err == nil {
		more, changed := known.with(r.Containers)
		if !changed {
			return nil
		}
		r = more
	}
	return c.writeDocument(c.recordPath(id), r)
}

// HasBlob reports whether the file of an image is there in its full size.
func (c *Catalog) HasBlob(r Record) bool {
	st, err := os.Lstat(c.BlobPath(r.Digest))
	return err == nil && st.Size() == r.Size
}

// SetNames replaces all names. It runs within Locked.
func (c *Catalog) SetNames(n Names) error { return c.writeDocument(c.path(namesFile), n) }

// writeDocument replaces the file at path by v's JSON, so that after a crash it is the old or
// the new one.
func (c *Catalog) writeDocument(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", filepath.Base(path), err)
	}
	err = hostfs.Replace(c.fs, path, tempPrefix, func(w io.Writer) error {
		_, err := w.Write(append(b, '\n'))
		return err
	})
	if err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(path), err)
	}
	return nil
}

// publish gives the complete blob f its final name. When it returns nil, the blob survives a
// loss of power.
func (c *Catalog) publish(f hostfs.File, path string) error {
	if err := f.Chmod(0o444); err != nil {
		return fmt.Errorf("publish %s: %w", filepath.Base(path), err)
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("publish %s: %w", filepath.Base(path), err)
	}
	if err := c.fs.Rename(f.Name(), path); err != nil {
		return fmt.Errorf("publish %s: %w", filepath.Base(path), err)
	}
	return c.fs.SyncDir(filepath.Dir(path))
}

// lockFile takes an exclusive flock on f, waiting for other holders if wait is set. Closing f
// releases it, so does the end of the process. It reports whether it got the lock.
func lockFile(f hostfs.File, wait bool) (bool, error) {
	how := unix.LOCK_EX
	if !wait {
		how |= unix.LOCK_NB
	}
	for {
		switch err := unix.Flock(int(f.Fd()), how); {
		case err == nil:
			return true, nil
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EWOULDBLOCK) && !wait:
			return false, nil
		default:
			return false, fmt.Errorf("lock %s: %w", f.Name(), err)
		}
	}
}

// Locked runs change while no other process and no other goroutine changes the catalog.
// Changes are renames and small writes, so waiting is short.
func (c *Catalog) Locked(change func() error) error {
	// The file is opened each time: flock belongs to the open file, so a shared one would
	// not keep goroutines apart.
	f, err := c.fs.OpenFile(c.path("lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("open lock of the image store: %w", err)
	}
	defer f.Close()
	if _, err := lockFile(f, true); err != nil {
		return err
	}
	return change()
}
