package guestfs

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/vfs"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/sentry/kern"
)

const (
	// maxEntries is how many entries an archive may have.
	maxEntries = 2 << 20
	// maxDirBytes bounds what is kept of an archive's directories until their files are in
	// them, in bytes, and dirCost is what each directory counts besides its name and
	// attributes.
	maxDirBytes = 64 << 20
	dirCost     = 96
	// extractBuffer is how much of a file is written at once, in bytes.
	extractBuffer = 128 << 10
	// minHole is how many zeros become a hole of a file, in bytes.
	minHole = 4 << 10
)

// zeros is compared with contents to find holes.
var zeros [extractBuffer]byte

// Extract makes files of a tar stream below a directory that exists. Files that were
// made stay if it fails.
//
// The archive is not trusted. Its names are looked up beneath the directory
// (openat2's RESOLVE_BENEATH), so that neither dots nor links lead out of it,
// not even links that were there before; how much it makes is bounded by the
// limit of the disk, as for everybody in the sandbox. alive is asked now and then
// whether to go on: a few bytes can stand for a large file of holes.
func (fs *Files) Extract(req *wire.File, alive func() error, from io.Reader) (*api.ExtractResult, error) {
	o, err := fs.changeOp(req)
	if err != nil {
		return nil, err
	}
	x := &extractor{op: o, alive: alive, buf: make([]byte, extractBuffer)}
	name := string(req.Path)
	if req.Parents {
		if err := o.makeParents(name + "/x"); err != nil {
			return nil, err
		}
	}
	err = o.do(func(root vfs.VirtualDentry) error {
		dir, err := o.vfs().OpenAt(o.ctx, o.creds, kern.PathAt(root, name), &vfs.OpenOptions{Flags: linux.O_PATH | linux.O_DIRECTORY})
		if err == nil {
			x.dir = o.fs.hold(&heldFile{file: dir})
		}
		return err
	})
	if err != nil {
		return nil, fileError(name, err)
	}
	defer o.release(x.dir)
	if err := x.all(tar.NewReader(from)); err != nil {
		return nil, err
	}
	return &x.result, nil
}

type extractor struct {
	op     *fileOp
	alive  func() error
	dir    *heldFile
	buf    []byte
	dirs   madeDirs
	result api.ExtractResult
}

// madeDirs are directories that get their attributes when all is in them.
type madeDirs struct {
	list []madeDir
	size int // in bytes
}

type madeDir struct {
	name     string
	mode     int64
	uid, gid int
	mtime    time.Time
	records  map[string]string // its extended attributes
}

// add keeps the fields of a header that attributes needs.
func (d *madeDirs) add(name string, h *tar.Header) error {
	dir := madeDir{name: name, mode: h.Mode, uid: h.Uid, gid: h.Gid, mtime: h.ModTime}
	d.size += dirCost + len(name)
	for record, value := range h.PAXRecords {
		if !strings.HasPrefix(record, xattrRecord) {
			continue
		}
		if dir.records == nil {
			dir.records = map[string]string{}
		}
		dir.records[record] = value
		d.size += dirCost + len(record) + len(value)
	}
	if d.size > maxDirBytes {
		return api.Errorf(api.CodeLimit, "the names and attributes of the archive's directories take more than %d MiB: unpack it in parts", maxDirBytes>>20)
	}
	d.list = append(d.list, dir)
	return nil
}

func (d *madeDir) header() *tar.Header {
	return &tar.Header{Typeflag: tar.TypeDir, Mode: d.mode, Uid: d.uid, Gid: d.gid, ModTime: d.mtime, PAXRecords: d.records}
}

func (x *extractor) all(in *tar.Reader) error {
	for {
		h, err := in.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return archiveError(err)
		}
		if x.result.Files++; x.result.Files > maxEntries {
			return api.Errorf(api.CodeHostile, "the archive has more than %d entries", maxEntries)
		}
		if h.Typeflag == tar.TypeDir {
			x.result.Directories++
		}
		name, err := entryName(h.Name)
		if err == nil {
			err = x.entry(name, h, in)
		}
		if err != nil {
			return entryError(h.Name, err)
		}
	}
	slices.Reverse(x.dirs.list)
	for _, d := range x.dirs.list {
		if err := x.attributes(d.name, d.header()); err != nil {
			return entryError(d.name, err)
		}
	}
	return nil
}

// archiveError tells a broken archive from a broken connection.
func archiveError(err error) error {
	var known *api.Error
	if errors.As(err, &known) {
		return err
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return api.Errorf(api.CodeInvalid, "read archive: it ends too early: what it had before is there")
	}
	return api.Errorf(api.CodeInvalid, "read archive: %w: it must be an uncompressed tar", err)
}

func entryError(name string, err error) error {
	if linuxerr.Equals(linuxerr.EXDEV, err) {
		return api.Errorf(api.CodeHostile, "the archive's entry %q leads out of the directory, by a symbolic link", name)
	}
	return fileError(name, err)
}

// maxEntryName is the length of the longest path in an archive, in bytes. Programs make longer
// paths than a system call takes by going into one directory after the other; so does unpacking.
const maxEntryName = 64 << 10

// entryName checks the name of an entry and returns it in its shortest form: "." is the
// directory itself.
func entryName(name string) (string, error) {
	if strings.ContainsRune(name, 0) {
		return "", api.Errorf(api.CodeHostile, "the archive has a name with a NUL byte")
	}
	if slices.Contains(strings.Split(name, "/"), "..") {
		return "", api.Errorf(api.CodeHostile, "the archive's name %q leads out of the directory", name)
	}
	if len(name) > maxEntryName {
		return "", api.Errorf(api.CodeLimit, "the archive's name %q… has %d bytes: a path in an archive has at most %d", name[:100], len(name), maxEntryName)
	}
	return path.Clean(strings.TrimLeft("./"+strings.TrimLeft(name, "/"), "/")), nil
}

// openDir opens a directory beneath the directory that is unpacked into. Of all of gVisor's
// calls only OpenAt keeps to that.
func (x *extractor) openDir(root vfs.VirtualDentry, name string) (*vfs.FileDescription, error) {
	pop := kern.PathIn(root, x.dir.file, name)
	pop.ResolveFlags = linux.RESOLVE_BENEATH
	pop.FollowFinalSymlink = true
	return x.op.vfs().OpenAt(x.op.ctx, x.op.creds, pop, &vfs.OpenOptions{Flags: linux.O_PATH | linux.O_DIRECTORY})
}

// beneath is a step that changes one name in a directory beneath.
func (x *extractor) beneath(name string, do func(*vfs.PathOperation) error) error {
	return x.op.do(func(root vfs.VirtualDentry) error {
		dir, err := x.openDir(root, path.Dir(name))
		if err != nil {
			return err
		}
		defer dir.DecRef(x.op.ctx)
		return do(kern.PathIn(root, dir, path.Base(name)))
	})
}

func (x *extractor) entry(name string, h *tar.Header, contents io.Reader) error {
	if name != "." {
		if err := x.parents(name); err != nil {
			return err
		}
	}
	switch h.Typeflag {
	case tar.TypeDir:
		return x.makeDir(name, h)
	case tar.TypeReg, tar.TypeCont, tar.TypeGNUSparse:
		return x.makeFile(name, h, contents)
	case tar.TypeSymlink:
		return x.replace(name, h, func(pop *vfs.PathOperation) error {
			return x.op.vfs().SymlinkAt(x.op.ctx, x.op.creds, pop, h.Linkname)
		})
	case tar.TypeLink:
		return x.makeLink(name, h)
	case tar.TypeFifo:
		return x.replace(name, h, func(pop *vfs.PathOperation) error {
			return x.op.vfs().MknodAt(x.op.ctx, x.op.creds, pop, &vfs.MknodOptions{Mode: linux.S_IFIFO | 0o600})
		})
	case tar.TypeXGlobalHeader:
		return nil
	}
	return api.Errorf(api.CodeUnsupported, "entries of type %q are not made: devices, and kinds that only some programs know", h.Typeflag)
}

// parents makes the missing directories above name.
func (x *extractor) parents(name string) error {
	err := x.beneath(name, func(*vfs.PathOperation) error { return nil })
	if !linuxerr.Equals(linuxerr.ENOENT, err) {
		return err
	}
	for i := range len(name) {
		if name[i] != '/' {
			continue
		}
		err := x.beneath(name[:i], func(pop *vfs.PathOperation) error {
			return x.op.vfs().MkdirAt(x.op.ctx, x.op.creds, pop, &vfs.MkdirOptions{Mode: 0o755})
		})
		if err != nil && !linuxerr.Equals(linuxerr.EEXIST, err) {
			return err
		}
	}
	return nil
}

func (x *extractor) makeDir(name string, h *tar.Header) error {
	if name == "." {
		return nil // it was there before, with the attributes it should have
	}
	own := true // and no link to another directory beneath
	err := x.beneath(name, func(pop *vfs.PathOperation) error {
		err := x.op.vfs().MkdirAt(x.op.ctx, x.op.creds, pop, &vfs.MkdirOptions{Mode: 0o700})
		if !linuxerr.Equals(linuxerr.EEXIST, err) {
			return err
		}
		st, serr := x.op.vfs().StatAt(x.op.ctx, x.op.creds, pop, &vfs.StatOptions{Mask: wanted})
		if serr != nil || typeOf(st.Mode) == typeDir {
			return serr
		}
		own = false
		dir, err := x.openDir(pop.Root, name)
		if err == nil {
			dir.DecRef(x.op.ctx)
		}
		return err
	})
	if err != nil || !own {
		return err
	}
	return x.dirs.add(name, h)
}

// replace makes a file that is not a directory, in place of a file of that name that is
// not a directory either.
func (x *extractor) replace(name string, h *tar.Header, create func(*vfs.PathOperation) error) error {
	err := x.beneath(name, func(pop *vfs.PathOperation) error {
		err := create(pop)
		if !linuxerr.Equals(linuxerr.EEXIST, err) {
			return err
		}
		if err := x.op.vfs().UnlinkAt(x.op.ctx, x.op.creds, pop); err != nil {
			return err
		}
		return create(pop)
	})
	if err != nil || h.Typeflag == tar.TypeLink {
		return err
	}
	return x.attributes(name, h)
}

func (x *extractor) makeLink(name string, h *tar.Header) error {
	target, err := entryName(h.Linkname)
	if err != nil {
		return err
	}
	return x.replace(name, h, func(pop *vfs.PathOperation) error {
		dir, err := x.openDir(pop.Root, path.Dir(target))
		if err != nil {
			return err
		}
		defer dir.DecRef(x.op.ctx)
		return x.op.vfs().LinkAt(x.op.ctx, x.op.creds, kern.PathIn(pop.Root, dir, path.Base(target)), pop)
	})
}

func (x *extractor) makeFile(name string, h *tar.Header, contents io.Reader) error {
	w := &FileWriter{op: x.op, name: name}
	defer func() { x.op.release(w.held) }()      // opened below
	plain := &tar.Header{Typeflag: tar.TypeLink} // its attributes come with its contents
	err := x.replace(name, plain, func(pop *vfs.PathOperation) error {
		file, err := x.op.vfs().OpenAt(x.op.ctx, x.op.creds, pop, &vfs.OpenOptions{
			Flags: linux.O_WRONLY | linux.O_CREAT | linux.O_EXCL | linux.O_NOFOLLOW | linux.O_LARGEFILE, Mode: 0o600,
		})
		if err == nil {
			w.held = x.op.fs.hold(&heldFile{file: file})
		}
		return err
	})
	if err != nil {
		return err
	}
	size, hole := int64(0), false // hole: the file ends with one so far
	for {
		if err := x.alive(); err != nil {
			return err
		}
		n, rerr := contents.Read(x.buf)
		var err error
		if n >= minHole && bytes.Equal(x.buf[:n], zeros[:n]) {
			hole, err = true, w.skip(int64(n))
		} else if n > 0 {
			hole = false
			_, err = w.Write(x.buf[:n])
		}
		if err != nil {
			return err
		}
		size += int64(n)
		x.result.Bytes += int64(n)
		if rerr == io.EOF {
			break
		}
		if rerr != nil {
			return archiveError(rerr)
		}
	}
	if hole {
		if err := w.setSize(size); err != nil {
			return err
		}
	}
	return x.attributes(name, h)
}

// attributes sets owner, mode, attributes and time, in this order: a new owner
// clears bits of the mode, and all of them change the time. Only root may give
// files away; for anybody else they are the user's own.
func (x *extractor) attributes(name string, h *tar.Header) error {
	return x.beneath(name, func(pop *vfs.PathOperation) error {
		o := x.op
		if o.creds.EffectiveKUID == 0 {
			err := o.vfs().SetStatAt(o.ctx, o.creds, pop, &vfs.SetStatOptions{
				Stat: linux.Statx{Mask: linux.STATX_UID | linux.STATX_GID, UID: uint32(h.Uid), GID: uint32(h.Gid)},
			})
			if err != nil {
				return err
			}
		}
		if h.Typeflag != tar.TypeSymlink {
			opts := modeStat(uint32(h.Mode) & 0o7777)
			if err := o.vfs().SetStatAt(o.ctx, o.creds, pop, &opts); err != nil {
				return err
			}
			if err := x.xattrs(pop, h); err != nil {
				return err
			}
		}
		if h.ModTime.IsZero() {
			return nil
		}
		return o.vfs().SetStatAt(o.ctx, o.creds, pop, &vfs.SetStatOptions{
			Stat: linux.Statx{Mask: linux.STATX_MTIME, Mtime: linux.StatxTimestamp{Sec: h.ModTime.Unix(), Nsec: uint32(h.ModTime.Nanosecond())}},
		})
	})
}

// xattrs sets extended attributes. Those that the file system or the user
// cannot have are left out.
func (x *extractor) xattrs(pop *vfs.PathOperation, h *tar.Header) error {
	for record, value := range h.PAXRecords {
		attr, ok := strings.CutPrefix(record, xattrRecord)
		if !ok {
			continue
		}
		err := x.op.vfs().SetXattrAt(x.op.ctx, x.op.creds, pop, &vfs.SetXattrOptions{Name: attr, Value: value})
		if err != nil && !linuxerr.Equals(linuxerr.EOPNOTSUPP, err) && !linuxerr.Equals(linuxerr.EPERM, err) {
			return err
		}
	}
	return nil
}
