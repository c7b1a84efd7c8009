package files

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"ramet.dev/ramet/api"
)

// packer is a local directory or symbolic link as a tar stream. The user root owns all entries.
type packer struct {
	*io.PipeReader
	done    chan struct{}
	skipped []string          // valid when done is closed
	linked  map[fileID]string // the name in the archive of each file that has several
	buf     []byte
}

// fileID identifies a file that has several names.
type fileID struct{ dev, ino uint64 }

// newPacker packs the file at name, under the name prefix in the archive.
func newPacker(name, prefix string, follow bool) *packer {
	r, w := io.Pipe()
	p := &packer{PipeReader: r, done: make(chan struct{}), linked: map[fileID]string{}, buf: make([]byte, copyBuffer)}
	go func() {
		defer close(p.done)
		w.CloseWithError(p.pack(w, name, prefix, follow))
	}()
	return p
}

// close ends the stream and returns the names of skipped files.
func (p *packer) close() []string {
	p.wait()
	return p.skipped
}

func (p *packer) wait() {
	p.PipeReader.Close()
	<-p.done
}

func (p *packer) pack(to io.Writer, name, prefix string, follow bool) error {
	if follow || strings.HasSuffix(name, "/.") || strings.HasSuffix(name, "/") || name == "." {
		resolved, err := filepath.EvalSymlinks(name)
		if err != nil {
			return err
		}
		name = resolved
	}
	info, err := os.Lstat(name)
	if err != nil {
		return err
	}
	w := tar.NewWriter(to)
	if info.IsDir() {
		err = p.packTree(w, name, prefix, info)
	} else {
		err = p.packOne(w, name, prefix, info)
	}
	if err != nil {
		return err
	}
	return w.Close()
}

// packOne packs a file that is not a directory.
func (p *packer) packOne(w *tar.Writer, name, prefix string, info fs.FileInfo) error {
	dir, err := os.OpenRoot(filepath.Dir(name))
	if err != nil {
		return err
	}
	defer dir.Close()
	return p.add(w, dir, filepath.Base(name), name, prefix, info)
}

func (p *packer) packTree(w *tar.Writer, name, prefix string, info fs.FileInfo) error {
	root, err := os.OpenRoot(name)
	if err != nil {
		return err
	}
	d := &dirs{root: root}
	defer d.close()
	if err := p.add(w, root, ".", name, prefix, info); err != nil {
		return err
	}
	return p.packDir(w, d, ".", name, prefix)
}

// packDir packs the contents of the directory at rel, which the user knows as name.
func (p *packer) packDir(w *tar.Writer, d *dirs, rel, name, prefix string) error {
	dir, err := d.at(rel)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it was removed meanwhile
	}
	var entries []fs.DirEntry
	if err == nil {
		entries, err = fs.ReadDir(dir.FS(), ".")
	}
	if err != nil {
		return packError(name, err)
	}
	for _, e := range entries {
		name, as, rel := filepath.Join(name, e.Name()), path.Join(prefix, e.Name()), filepath.Join(rel, e.Name())
		if dir, err = d.at(filepath.Dir(rel)); err != nil { // reopened, because a subdirectory was opened since
			return packError(name, err)
		}
		info, err := dir.Lstat(e.Name())
		if errors.Is(err, fs.ErrNotExist) {
			continue // it was removed meanwhile
		}
		if err == nil {
			err = p.add(w, dir, e.Name(), name, as, info)
		}
		if err != nil {
			return packError(name, err)
		}
		if info.IsDir() {
			if err := p.packDir(w, d, rel, name, as); err != nil {
				return err
			}
		}
	}
	return nil
}

// packError adds the name of the file to an error.
func packError(name string, err error) error {
	var of *fs.PathError
	if errors.As(err, &of) {
		return &fs.PathError{Op: of.Op, Path: name, Err: of.Err}
	}
	return fmt.Errorf("pack %q: %w", name, err)
}

// add packs the file base in dir, which the user knows as name.
func (p *packer) add(w *tar.Writer, dir *os.Root, base, name, as string, info fs.FileInfo) error {
	if info.Mode()&(fs.ModeSocket|fs.ModeDevice) != 0 {
		p.skipped = append(p.skipped, name)
		return nil
	}
	var link string
	var f *os.File
	var err error
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		if link, err = dir.Readlink(base); err != nil {
			return err
		}
	case info.Mode().IsRegular():
		if f, err = dir.Open(base); err != nil {
			return err
		}
		defer f.Close()
		if info, err = f.Stat(); err != nil {
			return err
		}
	}
	h, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return err
	}
	h.Name, h.Format = as, tar.FormatPAX
	if info.IsDir() {
		h.Name += "/"
	}
	h.Uid, h.Gid, h.Uname, h.Gname = 0, 0, "", ""
	h.AccessTime, h.ChangeTime = h.ModTime, h.ModTime
	if st, ok := info.Sys().(*syscall.Stat_t); ok && f != nil && st.Nlink > 1 {
		id := fileID{uint64(st.Dev), st.Ino}
		if first, packed := p.linked[id]; packed {
			h.Typeflag, h.Linkname, h.Size = tar.TypeLink, first, 0
			return w.WriteHeader(h)
		}
		p.linked[id] = as
	}
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	if f == nil {
		return nil
	}
	if _, err := io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{io.LimitReader(f, h.Size)}, p.buf); err != nil {
		return err
	}
	return w.Flush() // reports an error if the file became shorter
}

// unpacker makes the files of an archive from a sandbox. The sandbox is not trusted: unpacker
// writes nothing but the top entry of the archive and the entries below it, whatever names and
// links the archive has. It drops set-id bits and devices.
//
// An os.Root follows links that stay within it, and links may come from this archive or an earlier
// one. So root becomes the top entry as soon as that is a directory, and names must not lead
// through links.
type unpacker struct {
	root    *os.Root
	name    string   // replaces the first element of each name
	below   *dirs    // directories below root
	in      *os.Root // the directory of the current entry
	made    []*tar.Header
	files   int64
	bytes   int64
	skipped []string
	buf     []byte

	directories int64 // not counted in files
}

func newUnpacker(dir, name string) (*unpacker, error) {
	root, err := os.OpenRoot(dir)
	return &unpacker{root: root, name: name, below: &dirs{root: root}, buf: make([]byte, copyBuffer)}, err
}

func (u *unpacker) close() { u.below.close() }

func (u *unpacker) all(from io.Reader) error {
	in := tar.NewReader(from)
	for {
		h, err := in.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return fmt.Errorf("read archive: %w", err)
		}
		if h.Name, err = u.rename(h.Name); err == nil {
			err = u.entry(h, in)
		}
		if err != nil {
			return u.failed(h.Name, err)
		}
		if h.Typeflag == tar.TypeDir {
			u.directories++
		} else {
			u.files++
		}
	}
	slices.Reverse(u.made)
	for _, h := range u.made {
		err := u.enter(filepath.Dir(h.Name))
		if err == nil {
			err = u.attributes(h)
		}
		if err != nil {
			return u.failed(h.Name, err)
		}
	}
	return nil
}

func (u *unpacker) failed(name string, err error) error {
	return localError(fmt.Errorf("unpack %q: %w", u.path(name), err))
}

// path returns the path of a name in root, as the user knows it.
func (u *unpacker) path(name string) string { return filepath.Join(u.root.Name(), name) }

// rename replaces the first element of a name. It refuses names that lead elsewhere.
func (u *unpacker) rename(name string) (string, error) {
	parts := strings.Split(strings.TrimRight(name, "/"), "/")
	if path.IsAbs(name) || slices.Contains(parts, "..") || strings.ContainsRune(name, 0) {
		return "", api.Errorf(api.CodeHostile, "the sandbox's archive has the name %q", name)
	}
	parts[0] = u.name
	renamed := filepath.Join(parts...)
	return renamed, u.enter(filepath.Dir(renamed))
}

// enter opens a directory for the entries in it. It refuses a path that leads through a link. The
// archive of an honest sandbox has no such path: each directory comes before its entries. A
// directory that was opened once stays valid, because unpacking replaces no directory.
func (u *unpacker) enter(dir string) (err error) {
	u.in, err = u.below.at(dir)
	var no *errNotDir
	if errors.As(err, &no) {
		return api.Errorf(api.CodeHostile, "the sandbox's archive leads through %q, which is no directory", u.path(no.path))
	}
	return err
}

func (u *unpacker) entry(h *tar.Header, in io.Reader) error {
	switch h.Typeflag {
	case tar.TypeDir:
		return u.dir(h)
	case tar.TypeReg:
		return u.file(h, in)
	case tar.TypeSymlink:
		return u.replace(h.Name, func(base string) error { return u.in.Symlink(h.Linkname, base) })
	case tar.TypeLink:
		to, err := u.rename(h.Linkname)
		if err != nil {
			return err
		}
		if err := u.enter(filepath.Dir(h.Name)); err != nil {
			return err
		}
		return u.replace(h.Name, func(string) error { return u.root.Link(to, h.Name) })
	}
	u.files--
	u.skipped = append(u.skipped, u.path(h.Name))
	return nil
}

// dir makes a directory. An existing directory keeps its attributes. A link is replaced, except at
// the top, where it may be the user's own.
func (u *unpacker) dir(h *tar.Header) error {
	top, base := h.Name == u.name, filepath.Base(h.Name)
	err := u.in.Mkdir(base, 0o700)
	made := !errors.Is(err, fs.ErrExist)
	if !made {
		st, statErr := u.in.Lstat(base)
		switch {
		case statErr != nil:
			return statErr
		case st.IsDir():
			err = nil
		case st.Mode()&fs.ModeSymlink == 0:
		case top:
			return api.Errorf(api.CodeConflict, "a directory cannot be copied over a symbolic link")
		default:
			err = u.in.Remove(base)
			if err == nil {
				err = u.in.Mkdir(base, 0o700)
			}
			made = true
		}
	}
	if err != nil {
		return err
	}
	if top && u.name != "." {
		root, err := u.in.OpenRoot(base)
		if err != nil {
			return err
		}
		u.below.close()
		u.root, u.name, u.below, h.Name = root, ".", &dirs{root: root}, "."
	}
	if made {
		u.made = append(u.made, h)
	}
	return nil
}

// replace makes a file that is not a directory, and replaces one that is not a directory.
func (u *unpacker) replace(name string, create func(base string) error) error {
	base := filepath.Base(name)
	err := create(base)
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	st, err := u.in.Lstat(base)
	if err != nil || st.IsDir() {
		return errors.Join(fs.ErrExist, err)
	}
	if err := replaceable(u.path(name), st); err != nil {
		return err
	}
	if err := u.in.Remove(base); err != nil {
		return err
	}
	return create(base)
}

func (u *unpacker) file(h *tar.Header, in io.Reader) error {
	var f *os.File
	err := u.replace(h.Name, func(base string) (err error) {
		f, err = u.in.OpenFile(base, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		return err
	})
	if err != nil {
		return err
	}
	n, err := copySparse(f, in, u.buf)
	u.bytes += n
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return u.attributes(h)
}

// attributes sets the attributes of a file in the current directory.
func (u *unpacker) attributes(h *tar.Header) error {
	base := filepath.Base(h.Name)
	if err := u.in.Chmod(base, h.FileInfo().Mode().Perm()); err != nil {
		return err
	}
	return u.in.Chtimes(base, h.ModTime, h.ModTime)
}

// zeros is compared with the data of a file to find holes.
var zeros [copyBuffer]byte

// copySparse copies to an empty file and leaves holes for zeros, because a sandbox can make a file
// with holes of any size at no cost.
func copySparse(f *os.File, from io.Reader, buf []byte) (int64, error) {
	size, written := int64(0), int64(0)
	for {
		n, err := from.Read(buf)
		if n > 0 && !bytes.Equal(buf[:n], zeros[:n]) {
			if _, err := f.WriteAt(buf[:n], size); err != nil {
				return size, err
			}
			written = size + int64(n)
		}
		size += int64(n)
		if err == io.EOF {
			break
		}
		if err != nil {
			return size, err
		}
	}
	if written < size {
		return size, f.Truncate(size)
	}
	return size, nil
}
