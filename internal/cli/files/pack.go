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

	"ramet.dev/ramet/api"
)

// packer is a directory, or a link, of this machine as a tar stream. What is in
// it will be root's in the sandbox.
type packer struct {
	*io.PipeReader
	done    chan struct{}
	skipped []string // valid when done is closed
	buf     []byte
}

// newPacker packs what is at name; its name in the archive is prefix.
func newPacker(name, prefix string, follow bool) *packer {
	r, w := io.Pipe()
	p := &packer{PipeReader: r, done: make(chan struct{}), buf: make([]byte, copyBuffer)}
	go func() {
		defer close(p.done)
		w.CloseWithError(p.pack(w, name, prefix, follow))
	}()
	return p
}

// close ends the stream and returns what was left out.
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

// packOne packs what is no directory.
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

// packDir packs what is in the directory at rel, which the user knows as name.
func (p *packer) packDir(w *tar.Writer, d *dirs, rel, name, prefix string) error {
	dir, err := d.at(rel)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it went meanwhile
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
		if dir, err = d.at(filepath.Dir(rel)); err != nil { // one below was open since
			return packError(name, err)
		}
		info, err := dir.Lstat(e.Name())
		if errors.Is(err, fs.ErrNotExist) {
			continue // it went meanwhile
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

// packError says of an error of one file or directory which it is.
func packError(name string, err error) error {
	var of *fs.PathError
	if errors.As(err, &of) {
		return &fs.PathError{Op: of.Op, Path: name, Err: of.Err}
	}
	return fmt.Errorf("pack %q: %w", name, err)
}

// add adds base in dir, which the user knows as name.
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
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	if f == nil {
		return nil
	}
	if _, err := io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{io.LimitReader(f, h.Size)}, p.buf); err != nil {
		return err
	}
	return w.Flush() // an error says that the file has become shorter
}

// unpacker makes files of an archive that a sandbox made. The sandbox is not to
// be trusted: nothing is made but the top of the archive and what is beneath it,
// whatever names and links say, set-id bits are dropped, and so are devices.
//
// An os.Root follows links that stay in it, and these may be of this archive or
// of an earlier one. So root becomes the top as soon as that is a directory, and
// no name may lead through a link.
type unpacker struct {
	root    *os.Root
	name    string   // what the first element of each name becomes
	below   *dirs    // directories below root
	in      *os.Root // the one that the entry is in
	made    []*tar.Header
	files   int64
	bytes   int64
	skipped []string
	buf     []byte

	directories int64 // besides files
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

// path returns what a name in root is to the user.
func (u *unpacker) path(name string) string { return filepath.Join(u.root.Name(), name) }

// rename gives the top of the archive its name here. It refuses names that lead
// elsewhere.
func (u *unpacker) rename(name string) (string, error) {
	parts := strings.Split(strings.TrimRight(name, "/"), "/")
	if path.IsAbs(name) || slices.Contains(parts, "..") || strings.ContainsRune(name, 0) {
		return "", api.Errorf(api.CodeHostile, "the sandbox's archive has the name %q", name)
	}
	parts[0] = u.name
	renamed := filepath.Join(parts...)
	return renamed, u.enter(filepath.Dir(renamed))
}

// enter makes the directory the one that entries are made in. It refuses a path that leads
// through a link. The archive of an honest sandbox has none: it has each directory before what
// is in it. What was found good stays so: unpacking replaces no directory.
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

// dir makes a directory. One that exists keeps the attributes that it has, and a
// link gives way, but for one at the top: that may be the user's own.
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

// replace makes what is no directory, in place of what is none.
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

// attributes gives what is in the directory in use its own.
func (u *unpacker) attributes(h *tar.Header) error {
	base := filepath.Base(h.Name)
	if err := u.in.Chmod(base, h.FileInfo().Mode().Perm()); err != nil {
		return err
	}
	return u.in.Chtimes(base, h.ModTime, h.ModTime)
}

// zeros are what holes of files have.
var zeros [copyBuffer]byte

// copySparse copies to an empty file and leaves holes where there are zeros: in
// a sandbox it costs nothing to make a file of any size of them.
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
