package image

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path"
	"strings"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/storage/erofs"
)

const (
	tarBlock = 512

	whiteoutPrefix = ".wh."
	whiteoutOpaque = ".wh..wh..opq"
	whiteoutMeta   = ".wh..wh."
)

// ImportTar makes an image of a tar of a root file system: plain, gzip, zstd or
// xz. The entries may come in any order, and later ones replace earlier ones.
// It keeps the extended attributes that a sandbox can have: user.*, trusted.* and file
// capabilities. Cancelling takes effect at the next read.
func (s *Store) ImportTar(ctx context.Context, r io.Reader, opt Options) (api.Image, error) {
	return s.build(ctx, opt, func(b *builder) error {
		b.progress.begin(PhaseUnpack, fileSize(r))
		in, err := decompress(b.input(r), b.limits)
		if err != nil {
			return err
		}
		defer in.close()
		return b.rootfs(in)
	})
}

// fileSize returns the size of r if it is a regular file, else 0.
func fileSize(r io.Reader) int64 {
	if f, ok := r.(*os.File); ok {
		if st, err := f.Stat(); err == nil && st.Mode().IsRegular() {
			return st.Size()
		}
	}
	return 0
}

// input counts and reports the bytes that are read from r.
func (b *builder) input(r io.Reader) *countReader {
	return &countReader{ctx: b.ctx, r: r, report: b.progress.add}
}

// rootfs applies a tar that must be complete, end mark included: only the mark is missing in a
// tar that was cut off between two entries.
func (b *builder) rootfs(in *stream) error {
	if err := b.opt.unselected(); err != nil {
		return err
	}
	complete, err := b.applyTar(in, false)
	if err != nil {
		return err
	}
	if !complete {
		return readError(io.ErrUnexpectedEOF)
	}
	if err := in.drain(); err != nil {
		return err
	}
	b.progress.end()
	return nil
}

// applyTar puts the entries of a tar in the tree. In a layer, whiteouts hide
// files of lower layers. It reports whether the tar has an end mark.
func (b *builder) applyTar(r io.Reader, layer bool) (complete bool, err error) {
	counted := &countReader{ctx: b.ctx, r: r}
	archive := tar.NewReader(counted)
	for {
		before := counted.n
		h, err := archive.Next()
		if err == io.EOF {
			// All contents have been read, so at most the padding of the last file
			// came before the mark.
			return counted.n-before >= tarBlock, nil
		}
		if err != nil && !errors.Is(err, tar.ErrInsecurePath) { // the tree judges paths
			return false, readError(err)
		}
		b.progress.detail(h.Name)
		if layer {
			if done, err := b.whiteout(h); err != nil {
				return false, err
			} else if done {
				continue
			}
		}
		if err := b.applyEntry(h, archive); err != nil {
			return false, err
		}
		if _, err := io.Copy(io.Discard, archive); err != nil {
			return false, readError(err)
		}
	}
}

// whiteout handles h if it is one of the marks with which a layer removes files
// of lower layers (OCI image specification, layer.md).
func (b *builder) whiteout(h *tar.Header) (bool, error) {
	dir, name := path.Split(strings.TrimRight(h.Name, "/"))
	hidden, ok := strings.CutPrefix(name, whiteoutPrefix)
	switch {
	case !ok:
		return false, nil
	case name == whiteoutOpaque:
		return true, b.tree.HideChildren(dir)
	case strings.HasPrefix(name, whiteoutMeta): // bookkeeping of AUFS
		return true, nil
	case hidden == "" || hidden == "." || hidden == "..":
		return true, refused("%q removes nothing", h.Name)
	}
	return true, b.tree.Hide(dir + hidden)
}

func (b *builder) applyEntry(h *tar.Header, content io.Reader) error {
	n := &erofs.Node{Mode: uint16(h.Mode & 0o7777)}
	if h.Uid < 0 || h.Gid < 0 || int64(h.Uid) > math.MaxUint32 || int64(h.Gid) > math.MaxUint32 {
		return refused("%q has owner %d:%d, which is out of range", h.Name, h.Uid, h.Gid)
	}
	n.UID, n.GID = uint32(h.Uid), uint32(h.Gid)
	setTime(n, h.ModTime)
	n.Xattrs = xattrsOf(h)
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeGNUSparse, tar.TypeCont:
		n.Kind = erofs.Regular
		return b.putFile(h.Name, n, content, h.Size)
	case tar.TypeLink:
		return b.link(h.Name, h.Linkname)
	case tar.TypeDir:
		n.Kind = erofs.Directory
	case tar.TypeSymlink:
		n.Kind, n.Target = erofs.Symlink, h.Linkname
	case tar.TypeFifo:
		n.Kind = erofs.Fifo
	case tar.TypeChar:
		n.Kind = erofs.CharDevice
	case tar.TypeBlock:
		n.Kind = erofs.BlockDevice
	case tar.TypeXGlobalHeader: // comments such as git's commit id
		return nil
	default:
		return api.Errorf(api.CodeUnsupported, "%q has the unknown tar type %q", h.Name, fmt.Sprintf("%c", h.Typeflag))
	}
	return b.put(h.Name, n)
}

// xattrsOf returns the extended attributes of an entry that a sandbox can have.
func xattrsOf(h *tar.Header) []erofs.Xattr {
	var all []erofs.Xattr
	for key, value := range h.PAXRecords {
		name, ok := strings.CutPrefix(key, "SCHILY.xattr.")
		if ok && hasXattr(name) {
			all = append(all, erofs.Xattr{Name: name, Value: []byte(value)})
		}
	}
	return all
}

// hasXattr says whether a sandbox can have an extended attribute.
func hasXattr(name string) bool {
	return strings.HasPrefix(name, "user.") || strings.HasPrefix(name, "trusted.") || name == "security.capability"
}
