package catalog

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/storage/hostfs"
)

const (
	blobsDir   = "blobs"
	recordsDir = "records"
	namesFile  = "names.json"
	blobSuffix = ".erofs"
	tempPrefix = ".tmp-"
)

// Catalog is a directory of images. All methods are safe for concurrent use.
type Catalog struct {
	dir string
	fs  hostfs.FS
}

// Open returns the catalog in dir, which it makes if needed, and removes the files that
// crashed imports left there. It waits while another process changes the catalog.
func Open(dir string, fsys hostfs.FS) (*Catalog, error) {
	c := &Catalog{dir: dir, fs: fsys}
	for _, d := range []string{dir, c.path(blobsDir), c.path(recordsDir)} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, fmt.Errorf("make image store: %w", err)
		}
	}
	if err := c.Locked(c.collect); err != nil {
		return nil, fmt.Errorf("open image store: %w", err)
	}
	return c, nil
}

// Dir returns the directory.
func (c *Catalog) Dir() string { return c.dir }

// collect removes temporary files that no process holds, and blobs without a
// record: a removal or an import was cut short. It runs within Locked.
func (c *Catalog) collect() error {
	for _, dir := range []string{c.dir, c.path(recordsDir)} { // documents are written within Locked
		if err := c.removeTemps(dir); err != nil {
			return err
		}
	}
	entries, err := os.ReadDir(c.path(blobsDir))
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := c.path(blobsDir, e.Name())
		digest, isBlob := strings.CutSuffix(e.Name(), blobSuffix)
		switch {
		case strings.HasPrefix(e.Name(), tempPrefix):
			if err := c.removeUnlocked(path); err != nil {
				return err
			}
		case isBlob:
			sum, err := hex.DecodeString(digest)
			if err != nil || len(sum) != sha256.Size {
				continue // not a file of a catalog
			}
			if _, err := os.Lstat(c.recordPath(ID([sha256.Size]byte(sum)))); errors.Is(err, fs.ErrNotExist) {
				if err := c.fs.Remove(path); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (c *Catalog) removeTemps(dir string) error {
	left, err := filepath.Glob(filepath.Join(dir, tempPrefix+"*"))
	if err != nil {
		return err
	}
	for _, path := range left {
		if err := c.fs.Remove(path); err != nil {
			return err
		}
	}
	return nil
}

func (c *Catalog) removeUnlocked(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // its import has just ended
	}
	if err != nil {
		return err
	}
	defer f.Close()
	free, err := lockFile(f, false)
	if err != nil || !free {
		return err
	}
	if err := c.fs.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// IDs returns the ids of images that begin with prefix.
func (c *Catalog) IDs(prefix string) ([]string, error) {
	entries, err := os.ReadDir(c.path(recordsDir))
	if err != nil {
		return nil, fmt.Errorf("list images: %w", err)
	}
	var out []string
	for _, e := range entries {
		id, ok := strings.CutSuffix(e.Name(), ".json")
		if ok && api.IsID(api.KindImage, id) && strings.HasPrefix(id, prefix) {
			out = append(out, id)
		}
	}
	return out, nil
}

// Remove removes an image's record and then its file: Open collects a file without a record.
// It runs within Locked.
func (c *Catalog) Remove(id string) error {
	r, err := c.Record(id)
	if err != nil {
		return err
	}
	if err := c.fs.Remove(c.recordPath(id)); err != nil {
		return fmt.Errorf("remove image %s: %w", id, err)
	}
	if err := c.fs.SyncDir(c.path(recordsDir)); err != nil {
		return err
	}
	if err := c.fs.Remove(c.BlobPath(r.Digest)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove image %s: %w", id, err)
	}
	return nil
}

func (c *Catalog) path(elem ...string) string {
	return filepath.Join(append([]string{c.dir}, elem...)...)
}

func (c *Catalog) recordPath(id string) string { return c.path(recordsDir, id+".json") }

// BlobPath returns the path of the image file of a digest in hexadecimal.
func (c *Catalog) BlobPath(digest string) string { return c.path(blobsDir, digest+blobSuffix) }
