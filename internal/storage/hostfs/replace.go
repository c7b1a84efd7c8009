package hostfs

import (
	"errors"
	"io"
	"io/fs"
	"path/filepath"
)

// Replace makes a file with mode 0600 appear at path that has what fill writes. When it returns
// nil, the file survives a loss of power; after an error, and after a crash, path has the old
// contents or the new ones. Meanwhile the contents are in a file of the same directory, whose name
// pattern describes as CreateTemp's does: only a crash leaves it.
func Replace(fsys FS, path, pattern string, fill func(io.Writer) error) (err error) {
	dir := filepath.Dir(path)
	f, err := fsys.CreateTemp(dir, pattern)
	if err != nil {
		return err
	}
	defer func() {
		if err == nil {
			return
		}
		if rerr := fsys.Remove(f.Name()); !errors.Is(rerr, fs.ErrNotExist) {
			err = errors.Join(err, rerr)
		}
	}()
	err = fill(f)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := fsys.Rename(f.Name(), path); err != nil {
		return err
	}
	return fsys.SyncDir(dir)
}
