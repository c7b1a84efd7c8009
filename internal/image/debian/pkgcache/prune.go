package pkgcache

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/api"
)

// Pruned counts the files that were removed from a cache.
type Pruned struct {
	Files int
	Bytes int64
}

// Prune removes the files of the cache in dir that no build has used for so long;
// 0 is all. While a build uses the cache the error is CodeConflict, and nothing is
// removed.
func Prune(dir string, unusedFor time.Duration) (Pruned, error) {
	return prune(dir, func(files []cachedFile) []cachedFile {
		now := time.Now()
		return slices.DeleteFunc(files, func(f cachedFile) bool { return now.Sub(f.used) < unusedFor })
	})
}

// Bound removes the files of the cache in dir that were used longest ago until no
// more than so many bytes are left. The error is as of Prune.
func Bound(dir string, most int64) (Pruned, error) {
	return prune(dir, func(files []cachedFile) []cachedFile {
		slices.SortFunc(files, func(a, b cachedFile) int {
			return cmp.Or(b.used.Compare(a.used), cmp.Compare(a.path, b.path))
		})
		for i, f := range files {
			if most -= f.size; most < 0 {
				return files[i:]
			}
		}
		return nil
	})
}

// cachedFile is a file of a cache. It was used when its time of change says.
type cachedFile struct {
	path string
	size int64
	used time.Time
}

// prune removes the files that choose returns, which may use the slice it is given.
func prune(dir string, choose func([]cachedFile) []cachedFile) (done Pruned, err error) {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return done, nil
	}
	lock, err := lockCache(dir, unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return done, api.Errorf(api.CodeConflict, "an image is being built of cached packages: try again when that has ended")
	}
	if err != nil {
		return done, err
	}
	defer lock.Close()
	var files []cachedFile
	err = filepath.WalkDir(filepath.Join(dir, "sha256"), func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || err == nil && !e.Type().IsRegular() {
			return nil
		}
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		files = append(files, cachedFile{path, info.Size(), info.ModTime()})
		return nil
	})
	if err != nil {
		return done, fmt.Errorf("look at package cache: %w", err)
	}
	for _, f := range choose(files) {
		if err := os.Remove(f.path); err != nil {
			return done, fmt.Errorf("remove cached package: %w", err)
		}
		done.Files++
		done.Bytes += f.size
	}
	return done, nil
}

// lockCache locks the cache in dir: shared for those that use it, exclusively for those
// that remove from it. Closing the file, or the end of the process, unlocks it.
func lockCache(dir string, how int) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock of package cache: %w", err)
	}
	for {
		err := unix.Flock(int(f.Fd()), how)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, unix.EINTR) {
			f.Close()
			return nil, fmt.Errorf("lock package cache: %w", err)
		}
	}
}
