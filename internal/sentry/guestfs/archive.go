package guestfs

import (
	"archive/tar"
	"io"
	"path"
	"strings"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/sentry/vfs"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/sentry/kern"
)

const (
	// xattrRecord begins the names of PAX records that carry extended
	// attributes, as GNU tar and others write them.
	xattrRecord = "SCHILY.xattr."
	// maxLinkedBytes bounds the names that are kept of files that have several, in
	// bytes, and linkedCost is what each of them counts besides its length.
	maxLinkedBytes = 64 << 20
	linkedCost     = 64
	// maxXattr is Linux's bound of the size of an attribute and of the list.
	maxXattr = 64 << 10
	// archiveBuffer is how much of a file is read at once, in bytes.
	archiveBuffer = 64 << 10
)

// Archive writes a file or a tree as a tar stream. Names begin with the last
// element of the path.
func (fs *Files) Archive(req *wire.File, alive func() error, to io.Writer) error {
	o, err := fs.fileOp(req.User)
	if err != nil {
		return err
	}
	a := &archiver{op: o, tar: tar.NewWriter(to), links: linkedFiles{names: map[fileID]linkedFile{}}, buf: make([]byte, archiveBuffer)}
	name := string(req.Path)
	top := &walked{follow: !req.NoFollow}
	err = o.do(func(root vfs.VirtualDentry) error {
		if top.info, err = o.info(root, name, !req.NoFollow); err != nil {
			return err
		}
		top.st, err = o.stat(root, name, !req.NoFollow)
		return err
	})
	if err != nil {
		return fileError(name, err)
	}
	base := path.Base(path.Clean(name))
	if base == "/" {
		base = "."
	}
	top.rel = base
	if err := a.add(top); err != nil {
		return err
	}
	if top.info.Type == typeDir {
		w := &walk{op: o, alive: alive, visit: func(e *walked) error {
			named := *e
			named.rel = base + "/" + e.rel
			return a.add(&named)
		}}
		if err := w.run(name, ""); err != nil {
			return err
		}
	}
	return a.tar.Close()
}

type fileID struct {
	major, minor uint32
	ino          uint64
}

// linkedFiles are the files of an archive that have several names.
type linkedFiles struct {
	names map[fileID]linkedFile
	size  int // in bytes
}

type linkedFile struct {
	first string
	left  uint32 // how many more names it has
}

// find returns the first name of a file, if it has come before.
func (l *linkedFiles) find(id fileID) (string, bool) {
	f, ok := l.names[id]
	if !ok {
		return "", false
	}
	if f.left--; f.left == 0 {
		delete(l.names, id)
		l.size -= linkedCost + len(f.first)
	} else {
		l.names[id] = f
	}
	return f.first, true
}

// add remembers the first name of a file.
func (l *linkedFiles) add(id fileID, name string, links uint32) error {
	if links < 2 {
		return nil
	}
	if l.size += linkedCost + len(name); l.size > maxLinkedBytes {
		return api.Errorf(api.CodeLimit, "there are so many files with several names that these take more than %d MiB: pack them in parts", maxLinkedBytes>>20)
	}
	l.names[id] = linkedFile{name, links - 1}
	return nil
}

type archiver struct {
	op    *fileOp
	tar   *tar.Writer
	links linkedFiles
	buf   []byte
}

func (a *archiver) add(e *walked) error {
	h := &tar.Header{
		Name: e.rel, Mode: int64(e.st.Mode &^ linux.S_IFMT), Uid: int(e.st.UID), Gid: int(e.st.GID),
		ModTime: e.info.MTime, Format: tar.FormatPAX,
	}
	switch e.st.Mode & linux.S_IFMT {
	case linux.S_IFREG:
		return a.addFile(e, h)
	case linux.S_IFDIR:
		h.Typeflag = tar.TypeDir
		h.Name += "/"
	case linux.S_IFLNK:
		h.Typeflag, h.Linkname = tar.TypeSymlink, e.info.Target
	case linux.S_IFIFO:
		h.Typeflag = tar.TypeFifo
	case linux.S_IFCHR, linux.S_IFBLK:
		h.Typeflag = tar.TypeChar
		if e.st.Mode&linux.S_IFMT == linux.S_IFBLK {
			h.Typeflag = tar.TypeBlock
		}
		h.Devmajor, h.Devminor = int64(e.st.RdevMajor), int64(e.st.RdevMinor)
	default:
		return nil // a socket means nothing in an archive
	}
	a.addXattrs(e, h)
	return a.header(e, h)
}

func (a *archiver) header(e *walked, h *tar.Header) error {
	if err := a.tar.WriteHeader(h); err != nil {
		return api.Errorf(api.CodeUnsupported, "%q cannot be put into an archive: %w", e.info.Path, err)
	}
	return nil
}

func (a *archiver) addFile(e *walked, h *tar.Header) error {
	h.Typeflag = tar.TypeReg
	id := fileID{e.st.DevMajor, e.st.DevMinor, e.st.Ino}
	if first, ok := a.links.find(id); ok {
		h.Typeflag, h.Linkname = tar.TypeLink, first
		return a.header(e, h)
	}
	f := &OpenFile{op: a.op}
	err := a.op.do(func(root vfs.VirtualDentry) error {
		held, st, err := a.op.openRegular(root, e.info.Path, linux.O_RDONLY|followFlag(e.follow), 0)
		if err == nil {
			f.held, f.Info = held, infoOf(e.info.Path, &st)
		}
		return err
	})
	if err = fileError(e.info.Path, err); err != nil {
		if api.CodeOf(err) == api.CodeNotFound {
			return nil
		}
		return err
	}
	defer f.Close()
	h.Size = f.Info.Size
	a.addXattrs(e, h)
	if err := a.header(e, h); err != nil {
		return err
	}
	if err := a.links.add(id, h.Name, e.st.Nlink); err != nil {
		return err
	}
	return a.contents(f)
}

// contents writes as many bytes as the header says. Bytes by which the file has grown
// meanwhile are left out, and bytes that it has lost are zero.
func (a *archiver) contents(f *OpenFile) error {
	for off := int64(0); off < f.Info.Size; {
		buf := a.buf[:min(int64(len(a.buf)), f.Info.Size-off)]
		n, err := f.ReadAt(buf, off)
		if err == io.EOF {
			n, err = len(buf), nil
			clear(buf)
		}
		if err != nil {
			return fileError(f.Info.Path, err)
		}
		if _, err := a.tar.Write(buf[:n]); err != nil {
			return err
		}
		off += int64(n)
	}
	return nil
}

// addXattrs adds the attributes that the user may read. Attributes that cannot be read are
// left out.
func (a *archiver) addXattrs(e *walked, h *tar.Header) {
	_ = a.op.do(func(root vfs.VirtualDentry) error {
		pop := kern.LinkAt(root, e.info.Path)
		pop.FollowFinalSymlink = e.follow
		names, err := a.op.vfs().ListXattrAt(a.op.ctx, a.op.creds, pop, maxXattr)
		if err != nil {
			return err
		}
		for _, name := range names {
			value, err := a.op.vfs().GetXattrAt(a.op.ctx, a.op.creds, pop, &vfs.GetXattrOptions{Name: name, Size: maxXattr})
			if err != nil || strings.ContainsAny(name, "=\x00") {
				continue
			}
			if h.PAXRecords == nil {
				h.PAXRecords = map[string]string{}
			}
			h.PAXRecords[xattrRecord+name] = value
		}
		return nil
	})
}
