package build

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"time"

	"ramet.dev/ramet/api"
)

// Bounds of uploads.
const (
	maxFile   = 2 << 30 // bytes of one
	maxFiles  = 8 << 30 // bytes of a tenant, those that arrive included
	keepFiles = time.Hour
)

// uploads are archives of files for builds, in a directory that was empty. They are safe for concurrent use.
type uploads struct {
	dir           string
	maxFile, most int64
	now           func() time.Time

	mu   sync.Mutex
	kept map[string]upload // by path
	used map[string]int64  // bytes of each tenant
}

type upload struct {
	tenant string
	size   int64
	at     time.Time
}

func newUploads(dir string) *uploads {
	return &uploads{dir: dir, maxFile: maxFile, most: maxFiles, now: time.Now, kept: map[string]upload{}, used: map[string]int64{}}
}

var hashPattern = regexp.MustCompile(`^[0-9a-f]{64}$`)

// file returns where an upload of a tenant is.
func (u *uploads) file(tenant, hash string) (string, error) {
	if !hashPattern.MatchString(hash) {
		return "", api.Invalid("hash", "%.80q is not 64 hexadecimal digits", hash)
	}
	return filepath.Join(u.dir, tenant+"-"+hash), nil
}

func (u *uploads) has(tenant, hash string) (bool, error) {
	file, err := u.file(tenant, hash)
	if err != nil {
		return false, err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	up, ok := u.kept[file]
	return ok && u.now().Sub(up.at) < keepFiles, nil
}

// keep writes an archive to its file. The bytes count for the tenant as they arrive.
func (u *uploads) keep(tenant, hash string, from io.Reader) (err error) {
	file, err := u.file(tenant, hash)
	if err != nil {
		return err
	}
	if err := u.tidy(); err != nil {
		return err
	}
	f, err := os.CreateTemp(u.dir, "upload-")
	if err != nil {
		return fmt.Errorf("keep an upload: %w", err)
	}
	to := &counted{uploads: u, tenant: tenant, file: f}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			u.add(tenant, -to.size)
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	if _, err := io.Copy(to, from); err != nil {
		if to.failed != nil {
			return to.failed
		}
		return api.Invalid("body", "it broke off: %v", err)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if err := os.Rename(f.Name(), file); err != nil {
		return fmt.Errorf("keep an upload: %w", err)
	}
	u.used[tenant] -= u.kept[file].size
	u.kept[file] = upload{tenant, to.size, u.now()}
	return nil
}

func (u *uploads) add(tenant string, n int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.used[tenant] += n
}

// take counts bytes of a tenant that are about to be written.
func (u *uploads) take(tenant string, n int64) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.used[tenant]+n > u.most {
		return api.Errorf(api.CodeLimit, "uploads for builds exceed the %d bytes of a tenant: each is removed after %v", u.most, keepFiles)
	}
	u.used[tenant] += n
	return nil
}

// counted is an upload that is being written.
type counted struct {
	*uploads
	tenant string
	file   io.Writer
	size   int64
	failed error // other than that the body broke off
}

// Write implements io.Writer.
func (c *counted) Write(b []byte) (n int, err error) {
	if c.size+int64(len(b)) > c.maxFile {
		c.failed = api.Errorf(api.CodeLimit, "files of one COPY have at most %d bytes", c.maxFile)
	} else {
		c.failed = c.take(c.tenant, int64(len(b)))
	}
	if c.failed != nil {
		return 0, c.failed
	}
	c.size += int64(len(b))
	if n, err = c.file.Write(b); err != nil {
		c.failed = fmt.Errorf("keep an upload: %w", err)
	}
	return n, c.failed
}

// tidy removes uploads that are old.
func (u *uploads) tidy() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	for file, up := range u.kept {
		if u.now().Sub(up.at) <= keepFiles {
			continue
		}
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove an old upload: %w", err)
		}
		delete(u.kept, file)
		u.used[up.tenant] -= up.size
	}
	return nil
}
