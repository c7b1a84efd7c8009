package guestfs

import (
	"io"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
	"gvisor.dev/gvisor/pkg/usermem"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/sentry/kern"
)

// maxGenerated is how much is read of a file that says it is empty and is not, as the
// files in /proc.
const maxGenerated = 4 << 20

// OpenFile is a file of the sandbox that is being read.
type OpenFile struct {
	Info *api.FileInfo
	op   *fileOp
	held *heldFile
	// generated is the contents of a file that is made when it is read.
	generated []byte
}

// Open opens a regular file for reading. Close it.
func (fs *Files) Open(req *wire.File) (*OpenFile, error) {
	o, err := fs.requestOp(req)
	if err != nil {
		return nil, err
	}
	f := &OpenFile{op: o}
	name := string(req.Path)
	err = o.do(func(root vfs.VirtualDentry) error {
		var st linux.Statx
		if f.held, st, err = o.openRegular(root, name, linux.O_RDONLY|followFlag(!req.NoFollow), 0); err != nil {
			return err
		}
		f.Info = infoOf(name, &st)
		return nil
	})
	if err != nil {
		return nil, fileError(name, err)
	}
	if f.Info.Size == 0 {
		f.generated, err = io.ReadAll(io.NewSectionReader(f, 0, maxGenerated))
		f.Info.Size = int64(len(f.generated))
		if linuxerr.Equals(linuxerr.EIO, err) { // as of /proc/1/mem, in which there is nothing at 0
			err = api.Errorf(api.CodeUnsupported, "%q is made when it is read, and cannot be read from its beginning: %v", name, err)
		}
	}
	if err != nil {
		f.Close()
		return nil, fileError(name, err)
	}
	return f, nil
}

// openRegular opens name, which must be a regular file if it exists, and holds
// it. root is that of a step.
func (o *fileOp) openRegular(root vfs.VirtualDentry, name string, flags uint32, mode linux.FileMode) (*heldFile, linux.Statx, error) {
	st, err := o.stat(root, name, flags&linux.O_NOFOLLOW == 0)
	if err == nil {
		err = regular(name, &st)
	} else if flags&linux.O_CREAT != 0 {
		err = nil // opening it returns a clearer error
	}
	if err != nil {
		return nil, st, err
	}
	file, err := o.vfs().OpenAt(o.ctx, o.creds, kern.PathAt(root, name), &vfs.OpenOptions{
		Flags: flags | linux.O_NONBLOCK | linux.O_LARGEFILE, // it may have become a pipe
		Mode:  mode,
	})
	if err != nil {
		return nil, st, err
	}
	if st, err = file.Stat(o.ctx, vfs.StatOptions{Mask: wanted}); err == nil {
		err = regular(name, &st)
	}
	if err != nil {
		file.DecRef(o.ctx)
		return nil, st, err
	}
	return o.fs.hold(&heldFile{file: file}), st, nil
}

// followFlag is the flag of openRegular that says whether a symbolic link is
// followed.
func followFlag(follow bool) uint32 {
	if follow {
		return 0
	}
	return linux.O_NOFOLLOW
}

// ReadAt implements io.ReaderAt, but for short reads, which are no error.
func (f *OpenFile) ReadAt(buf []byte, off int64) (n int, err error) {
	if f.generated != nil {
		if off >= int64(len(f.generated)) {
			return 0, io.EOF
		}
		return copy(buf, f.generated[off:]), nil
	}
	err = f.op.do(func(vfs.VirtualDentry) error {
		read, err := f.held.file.PRead(f.op.ctx, usermem.BytesIOSequence(buf), off, vfs.ReadOptions{})
		n = int(read)
		return err
	})
	switch {
	case n > 0:
		return n, nil
	case err == nil && len(buf) > 0:
		err = io.EOF
	}
	return 0, err
}

// Close gives the file back.
func (f *OpenFile) Close() {
	f.op.release(f.held)
}

// release closes what was held, if it is not nil.
func (o *fileOp) release(h *heldFile) {
	if h == nil {
		return
	}
	o.fs.gate.BeginIO()
	defer o.fs.gate.EndIO()
	o.fs.letGo(h)
}
