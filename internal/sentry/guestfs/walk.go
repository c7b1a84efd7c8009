package guestfs

import (
	"errors"
	"path"
	"strings"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/vfs"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/sentry/kern"
)

// walkBatch is how many names of a directory are kept at a time.
const walkBatch = 32 << 10

// errEnough ends a walk early.
var errEnough = errors.New("enough")

// walk visits the files below a directory, in the order of names, a directory
// before its files. It follows no symbolic links below, and does not leave
// the file system that it began on. Files that vanish meanwhile and directories
// that may not be read are passed over.
type walk struct {
	op    *fileOp
	alive func() error
	visit func(*walked) error
	depth int       // 0 is no limit
	dev   [2]uint32 // the file system
}

// walked is a file that a walk has come to.
type walked struct {
	rel  string // below the directory where the walk began
	info *api.FileInfo
	st   linux.Statx
	// follow says that info is of the target of a symbolic link.
	follow bool
}

// run walks below dir. after, if not empty, is the relative path of a file
// where an earlier walk ended; this walk begins behind it.
func (w *walk) run(dir, after string) error {
	err := w.op.do(func(root vfs.VirtualDentry) error {
		st, err := w.op.stat(root, dir, true)
		if err != nil {
			return err
		}
		if typeOf(st.Mode) != typeDir {
			return linuxerr.ENOTDIR
		}
		w.dev = [2]uint32{st.DevMajor, st.DevMinor}
		return nil
	})
	if err != nil {
		return fileError(dir, err)
	}
	// The directory may be a link, the files below it are not followed.
	if !strings.HasSuffix(dir, "/") {
		dir += "/"
	}
	return fileError(dir, w.dir(dir, "", 1, after))
}

func (w *walk) dir(dir, rel string, level int, after string) error {
	from, rest, _ := strings.Cut(after, "/")
	inclusive := from != ""
	for {
		if err := w.alive(); err != nil {
			return err
		}
		names, err := w.op.names(dir, from, inclusive, walkBatch)
		if err != nil {
			return err
		}
		for _, name := range names {
			var resume string
			again := after != "" && name == from && inclusive
			if again {
				resume = rest
			}
			if err := w.entry(dir, rel, name, level, again, resume); err != nil {
				return err
			}
		}
		if len(names) < walkBatch {
			return nil
		}
		from, inclusive = names[len(names)-1], false
	}
}

// entry visits a name, and the files below it. again says that an earlier walk
// has visited it, and resume where in it that ended.
func (w *walk) entry(dir, rel, name string, level int, again bool, resume string) error {
	full, err := below(dir, name)
	if err != nil {
		return err
	}
	rel = path.Join(rel, name)
	e := &walked{rel: rel}
	err = w.op.do(func(root vfs.VirtualDentry) error {
		var err error
		if e.st, err = w.op.stat(root, full, false); err != nil {
			return err
		}
		e.info = infoOf(full, &e.st)
		if e.info.Type == typeSymlink {
			e.info.Target, err = w.op.vfs().ReadlinkAt(w.op.ctx, w.op.creds, kern.LinkAt(root, full))
		}
		return err
	})
	if passable(err) {
		return nil
	}
	if err != nil {
		return fileError(full, err)
	}
	if !again {
		if err := w.visit(e); err != nil {
			return err
		}
	}
	if e.info.Type != typeDir || level == w.depth || [2]uint32{e.st.DevMajor, e.st.DevMinor} != w.dev {
		return nil
	}
	if err := w.dir(full, rel, level+1, resume); !passable(err) {
		return err
	}
	return nil
}

// passable reports whether a walk goes on after err.
func passable(err error) bool {
	return linuxerr.Equals(linuxerr.ENOENT, err) || linuxerr.Equals(linuxerr.EACCES, err) || linuxerr.Equals(linuxerr.ENOTDIR, err)
}
