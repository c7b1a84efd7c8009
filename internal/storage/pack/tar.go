package pack

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"ramet.dev/ramet/internal/storage/cowfs"
	"ramet.dev/ramet/internal/storage/pages"
)

const (
	// Marks by which a layer removes files of the layers below it, from the OCI image
	// specification.
	whiteoutPrefix = ".wh."
	whiteoutOpaque = ".wh..wh..opq"

	// xattrRecord precedes the name of an extended attribute in a tar.
	xattrRecord = "SCHILY.xattr."
)

// The types of files that package cowfs has no name for, from stat(2).
const (
	typeFifo   = 0o010000
	typeChar   = 0o020000
	typeBlock  = 0o060000
	typeSocket = 0o140000
)

// Layer writes the changes as a layer of the OCI image specification, to be put on the
// image. The layer has all directories above a change, and all names of a changed file with
// several names: it can be unpacked without the image.
func (s *Source) Layer(ctx context.Context, w io.Writer) error {
	l := layer{tarWriter: newTarWriter(ctx, w)}
	relink := map[identity]bool{} // files with several names that changed
	err := s.walk(ctx, visitor{
		file: func(f *file) error {
			if f.changed && f.several() {
				relink[f.identity()] = true
			}
			if !f.changed && !f.several() && !f.node.Attr.IsDir() {
				return nil
			}
			return fitsLayer(f)
		},
		gone: fitsName,
	})
	if err != nil {
		return fmt.Errorf("pack layer: %w", err)
	}
	err = s.walk(ctx, visitor{
		file: func(f *file) error {
			l.enter(f.path)
			if !f.changed && !(f.several() && relink[f.identity()]) {
				if f.node.Attr.IsDir() {
					l.above = append(l.above, *f)
				}
				return nil
			}
			return l.put(f)
		},
		gone: func(path string) error {
			l.enter(path)
			return l.mark(path)
		},
	})
	if err == nil {
		err = l.out.Close()
	}
	if err != nil {
		return fmt.Errorf("pack layer: %w", err)
	}
	return nil
}

// layer writes a layer.
type layer struct {
	*tarWriter
	// above are the directories above the present path that have not been written,
	// because nothing below has changed so far.
	above []file
}

// enter removes the directories of above that a path is not below.
func (l *layer) enter(path string) {
	for n := len(l.above); n > 0; n-- {
		if dir := l.above[n-1].path; dir == "" || strings.HasPrefix(path, dir+"/") {
			return
		}
		l.above = l.above[:n-1]
	}
}

// parents writes the directories above the present path.
func (l *layer) parents() error {
	for i := range l.above {
		if err := l.tarWriter.put(&l.above[i]); err != nil {
			return err
		}
	}
	l.above = l.above[:0]
	return nil
}

// put writes a file. If it is a directory that replaces another one of the image, it hides
// the entries of that.
func (l *layer) put(f *file) error {
	if err := l.parents(); err != nil {
		return err
	}
	if err := l.tarWriter.put(f); err != nil || !f.replaced {
		return err
	}
	return l.out.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: join(f.path, whiteoutOpaque)})
}

// mark writes that the image's file at a path is removed.
func (l *layer) mark(path string) error {
	if err := l.parents(); err != nil {
		return err
	}
	dir, name := split(path)
	return l.out.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: join(dir, whiteoutPrefix+name)})
}

// split splits the last name from a path.
func split(path string) (dir, name string) {
	i := strings.LastIndexByte(path, '/')
	return path[:max(i, 0)], path[i+1:]
}

// Tar writes all files.
func (s *Source) Tar(ctx context.Context, w io.Writer) error { return s.tar(ctx, w, fits) }

// bottom writes all files as a layer that has none below it.
func (s *Source) bottom(ctx context.Context, w io.Writer) error { return s.tar(ctx, w, fitsLayer) }

func (s *Source) tar(ctx context.Context, w io.Writer, fits func(*file) error) error {
	t := newTarWriter(ctx, w)
	err := s.walk(ctx, visitor{file: fits})
	if err == nil {
		err = s.walk(ctx, visitor{file: t.put})
	}
	if err == nil {
		err = t.out.Close()
	}
	if err != nil {
		return fmt.Errorf("pack files: %w", err)
	}
	return nil
}

// fits refuses a file that archives have no form for. It is called for all files before
// the first is written.
func fits(f *file) error {
	all, err := f.from.Xattrs(f.node.Ino)
	if err != nil {
		return fmt.Errorf("/%s: %w", f.path, err)
	}
	for _, name := range all {
		if strings.IndexByte(name, 0) >= 0 {
			return fmt.Errorf("%w: /%s has an extended attribute %q", pages.ErrCorrupt, f.path, name)
		}
		if strings.Contains(name, "=") {
			return fmt.Errorf("/%s: %w: its extended attribute %q has a '=' in its name, which archives have no form for", f.path, ErrUnfit, name)
		}
	}
	return nil
}

// fitsLayer refuses a file that layers have no form for.
func fitsLayer(f *file) error {
	if err := fitsName(f.path); err != nil {
		return err
	}
	return fits(f)
}

// fitsName refuses names that have a meaning in layers.
func fitsName(path string) error {
	if _, name := split(path); strings.HasPrefix(name, whiteoutPrefix) {
		return fmt.Errorf("/%s: %w in a layer: such names remove files", path, ErrUnfit)
	}
	return nil
}

// tarWriter writes files to a tar.
type tarWriter struct {
	ctx   context.Context
	out   *tar.Writer
	buf   []byte
	first map[identity]string // the first name of files that have several
}

func newTarWriter(ctx context.Context, w io.Writer) *tarWriter {
	return &tarWriter{ctx: ctx, out: tar.NewWriter(w), buf: make([]byte, pieceSize), first: map[identity]string{}}
}

// put writes a file with its contents.
func (t *tarWriter) put(f *file) error {
	a := &f.node.Attr
	h := &tar.Header{
		Name: f.path, Mode: int64(a.Mode & 0o7777), Uid: int(a.UID), Gid: int(a.GID), ModTime: time.Unix(0, a.Mtime),
		Format: tar.FormatPAX,
	}
	switch f.kind() {
	case cowfs.TypeDir:
		h.Typeflag, h.Name = tar.TypeDir, join(f.path, "")
		if f.path == "" {
			h.Name = "./"
		}
	case cowfs.TypeReg:
		h.Typeflag, h.Size = tar.TypeReg, int64(a.Size)
	case cowfs.TypeLink:
		h.Typeflag = tar.TypeSymlink
		var err error
		if h.Linkname, err = f.from.Target(f.node.Ino); err != nil {
			return fmt.Errorf("/%s: %w", f.path, err)
		}
		if strings.IndexByte(h.Linkname, 0) >= 0 {
			return fmt.Errorf("%w: link /%s leads to %q", pages.ErrCorrupt, f.path, h.Linkname)
		}
	case typeFifo:
		h.Typeflag = tar.TypeFifo
	case typeChar:
		h.Typeflag, h.Devmajor, h.Devminor = tar.TypeChar, int64(a.Major), int64(a.Minor)
	case typeBlock:
		h.Typeflag, h.Devmajor, h.Devminor = tar.TypeBlock, int64(a.Major), int64(a.Minor)
	case typeSocket:
		return nil
	default:
		return fmt.Errorf("%w: /%s has the mode %#o", pages.ErrCorrupt, f.path, a.Mode)
	}
	if f.several() {
		if first, ok := t.first[f.identity()]; ok {
			h.Typeflag, h.Linkname, h.Size = tar.TypeLink, first, 0
			return t.out.WriteHeader(h)
		}
		t.first[f.identity()] = f.path
	}
	if err := t.addXattrs(h, f); err != nil {
		return err
	}
	if err := t.out.WriteHeader(h); err != nil || h.Typeflag != tar.TypeReg {
		return err
	}
	_, err := io.CopyBuffer(struct{ io.Writer }{t.out}, &contents{ctx: t.ctx, f: f}, t.buf)
	return err
}

// addXattrs adds the extended attributes of a file to its header.
func (t *tarWriter) addXattrs(h *tar.Header, f *file) error {
	all, err := xattrs(f.from, f.node.Ino)
	if err != nil || len(all) == 0 {
		return err
	}
	h.PAXRecords = make(map[string]string, len(all))
	for _, x := range all {
		h.PAXRecords[xattrRecord+x.Name] = string(x.Value)
	}
	return nil
}
