package guestfs

import (
	"cmp"
	"crypto/rand"
	"path"
	"slices"
	"strings"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
	"gvisor.dev/gvisor/pkg/usermem"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/sentry/kern"
)

// newFileMode is the mode of new files whose request has none.
const newFileMode = 0o644

// FileWriter writes one file: Write until all is there, then Commit. Abort in
// any case.
type FileWriter struct {
	op   *fileOp
	req  *wire.File
	name string // links followed, if atomic
	held *heldFile
	made bool // there was none before
}

// Create begins to write to a regular file.
func (fs *Files) Create(req *wire.File) (*FileWriter, error) {
	o, err := fs.changeOp(req)
	if err != nil {
		return nil, err
	}
	w := &FileWriter{op: o, req: req, name: string(req.Path)}
	if strings.HasSuffix(w.name, "/") {
		return nil, api.Invalid("path", "%q names a directory", w.name)
	}
	if req.Parents {
		if err := o.makeParents(w.name); err != nil {
			return nil, err
		}
	}
	if err := o.doMatching(w.tags(), w.open); err != nil {
		return nil, w.refused(err)
	}
	return w, nil
}

// refused says why the file is not written.
func (w *FileWriter) refused(err error) error {
	if w.req.New && linuxerr.Equals(linuxerr.EEXIST, err) {
		return api.Errorf(api.CodeChanged, "%q exists, and was to be a new file", w.name)
	}
	return fileError(w.name, err)
}

func (w *FileWriter) open(root vfs.VirtualDentry) error {
	if err := w.checkMatch(root); err != nil {
		return err
	}
	if w.req.Atomic {
		return w.openBeside(root)
	}
	flags := linux.O_WRONLY | linux.O_CREAT | followFlag(!w.req.NoFollow)
	if w.req.Append {
		flags |= linux.O_APPEND
	}
	if w.req.New {
		flags |= linux.O_EXCL
	}
	held, st, err := w.op.openRegular(root, w.name, flags, w.mode(newFileMode))
	if err != nil {
		return err
	}
	w.held = held
	if !w.req.Append && st.Size > 0 { // watchers are told of a change of the size, even to the same one
		err = held.file.SetStat(w.op.ctx, vfs.SetStatOptions{Stat: linux.Statx{Mask: linux.STATX_SIZE}})
	}
	if err == nil && w.req.Mode != nil {
		err = held.file.SetStat(w.op.ctx, modeStat(*w.req.Mode))
	}
	if err != nil {
		w.held = nil
		w.op.fs.letGo(held)
	}
	return err
}

func (w *FileWriter) mode(or uint16) linux.FileMode {
	if w.req.Mode != nil {
		return linux.FileMode(*w.req.Mode)
	}
	return linux.FileMode(or)
}

func modeStat(mode uint32) vfs.SetStatOptions {
	return vfs.SetStatOptions{Stat: linux.Statx{Mask: linux.STATX_MODE, Mode: uint16(mode)}}
}

func (w *FileWriter) checkMatch(root vfs.VirtualDentry) error {
	st, err := w.op.stat(root, w.name, true)
	w.made = linuxerr.Equals(linuxerr.ENOENT, err)
	return cmp.Or(checkMatch(w.name, w.req.IfMatch, &st, err), checkNoneMatch(w.name, w.req.NoneMatch, &st, err))
}

// tags are the tags that decide whether the file is written.
func (w *FileWriter) tags() []string { return slices.Concat(w.req.IfMatch, w.req.NoneMatch) }

// openBeside opens a temporary file in the directory of the file, which it will
// replace.
func (w *FileWriter) openBeside(root vfs.VirtualDentry) error {
	o := w.op
	if err := w.followLinks(root); err != nil {
		return err
	}
	if st, err := o.stat(root, w.name, false); err == nil {
		if err := regular(w.name, &st); err != nil {
			return err
		}
		if w.req.New {
			return linuxerr.EEXIST
		}
		ats := vfs.MayWrite // as if it were written to
		if err := o.vfs().AccessAt(o.ctx, o.creds, ats, kern.PathAt(root, w.name)); err != nil {
			return err
		}
	}
	dir, err := o.vfs().OpenAt(o.ctx, o.creds, kern.PathAt(root, path.Dir(w.name)), &vfs.OpenOptions{Flags: linux.O_PATH | linux.O_DIRECTORY})
	if err != nil {
		return err
	}
	h := &heldFile{dir: dir, temp: ".ramet-" + strings.ToLower(rand.Text())}
	h.file, err = o.vfs().OpenAt(o.ctx, o.creds, kern.PathIn(root, dir, h.temp), &vfs.OpenOptions{
		Flags: linux.O_WRONLY | linux.O_CREAT | linux.O_EXCL | linux.O_NOFOLLOW | linux.O_LARGEFILE, Mode: 0o600,
	})
	if err != nil {
		dir.DecRef(o.ctx)
		return err
	}
	w.held = o.fs.hold(h)
	return nil
}

// followLinks makes name that of the file itself, where it is a symbolic link: a
// rename would replace the link.
func (w *FileWriter) followLinks(root vfs.VirtualDentry) error {
	if w.req.NoFollow {
		return nil // a link is found to be no regular file
	}
	for range linux.MaxSymlinkTraversals {
		target, err := w.op.vfs().ReadlinkAt(w.op.ctx, w.op.creds, kern.LinkAt(root, w.name))
		if err != nil {
			return nil // it is no link, or opening it returns a clearer error
		}
		if !path.IsAbs(target) {
			target = w.name[:strings.LastIndexByte(w.name, '/')+1] + target
		}
		w.name = target
	}
	return linuxerr.ELOOP
}

// Write implements io.Writer.
func (w *FileWriter) Write(data []byte) (int, error) {
	written := 0
	for written < len(data) {
		err := w.op.do(func(vfs.VirtualDentry) error {
			n, err := w.held.file.Write(w.op.ctx, usermem.BytesIOSequence(data[written:]), vfs.WriteOptions{})
			written += int(n)
			if n > 0 {
				return nil // an error comes again, and is then the first thing to happen
			}
			if err == nil {
				err = linuxerr.EIO
			}
			return err
		})
		if err != nil {
			return written, fileError(w.name, err)
		}
	}
	return written, nil
}

// skip leaves a hole of n bytes in a new file.
func (w *FileWriter) skip(n int64) error {
	err := w.op.do(func(vfs.VirtualDentry) error {
		_, err := w.held.file.Seek(w.op.ctx, n, linux.SEEK_CUR)
		return err
	})
	return fileError(w.name, err)
}

// setSize sets the size of a file that ends with a hole.
func (w *FileWriter) setSize(size int64) error {
	err := w.op.do(func(vfs.VirtualDentry) error {
		return w.held.file.SetStat(w.op.ctx, vfs.SetStatOptions{Stat: linux.Statx{Mask: linux.STATX_SIZE, Size: uint64(size)}})
	})
	return fileError(w.name, err)
}

// Commit ends the file and describes it.
func (w *FileWriter) Commit() (*api.FileInfo, error) {
	var info *api.FileInfo
	err := w.op.doMatching(w.tags(), func(root vfs.VirtualDentry) error {
		if err := w.finish(root); err != nil {
			return err
		}
		var err error
		if info, err = w.op.info(root, w.name, true); err == nil {
			info.Created = w.made
		}
		return err
	})
	return info, w.refused(err)
}

func (w *FileWriter) finish(root vfs.VirtualDentry) error {
	o := w.op
	if w.held.dir == nil {
		return cmp.Or(w.give(), w.setXattrs())
	}
	if err := w.checkMatch(root); err != nil {
		return err
	}
	mode := uint16(newFileMode)
	pop := kern.PathIn(root, w.held.dir, path.Base(w.name))
	if st, err := o.vfs().StatAt(o.ctx, o.creds, pop, &vfs.StatOptions{Mask: wanted}); err == nil {
		mode = st.Mode &^ linux.S_IFMT
		// A user that may not give files away becomes the owner, as with any editor.
		_ = w.held.file.SetStat(o.ctx, vfs.SetStatOptions{Stat: linux.Statx{Mask: linux.STATX_UID | linux.STATX_GID, UID: st.UID, GID: st.GID}})
	}
	if err := cmp.Or(w.give(), w.held.file.SetStat(o.ctx, modeStat(uint32(w.mode(mode)))), w.setXattrs()); err != nil {
		return err
	}
	var flags uint32
	if w.req.New {
		flags = linux.RENAME_NOREPLACE
	}
	if err := o.vfs().RenameAt(o.ctx, o.creds, kern.PathIn(root, w.held.dir, w.held.temp), pop, &vfs.RenameOptions{Flags: flags}); err != nil {
		return err
	}
	w.held.temp = "" // it is the file now
	return nil
}

// give gives the file to the owner of the request. A file of the kernel, which was there before, may refuse.
func (w *FileWriter) give() error {
	to := w.op.given()
	if to == nil {
		return nil
	}
	if err := w.held.file.SetStat(w.op.ctx, *to); err != nil && w.made {
		return err
	}
	return nil
}

// Abort closes the file. An atomic write that was not committed leaves nothing.
func (w *FileWriter) Abort() { w.op.release(w.held) }
