package dpkg

import (
	"archive/tar"
	"bufio"
	"context"
	"crypto/md5" //nolint:gosec // dpkg's format, not a security measure
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"strings"
	"time"

	"ramet.dev/ramet/internal/image/debian/archive"
	"ramet.dev/ramet/internal/image/debian/bounded"
	"ramet.dev/ramet/internal/image/debian/control"
	"ramet.dev/ramet/internal/image/debian/deb"
	"ramet.dev/ramet/internal/image/debian/fault"
)

// maxID keeps owners where every file system can store them; -1 means "keep".
const maxID = 1<<32 - 2

// addPackage writes the files of u. After it u.Data is no longer needed.
func (r *Writer) Add(u *deb.Package) error {
	e := &packageWriter{r: r, u: u, what: u.Info.Name + " package file, data archive", md5: map[string]string{}}
	e.listConffiles()
	if _, err := u.Data.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("rewind spool file: %w", err)
	}
	tr := tar.NewReader(bufio.NewReaderSize(u.Data, 256<<10))
	for {
		if err := r.ctx.Err(); err != nil {
			return context.Cause(r.ctx)
		}
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return bounded.ContentError(e.what, err)
		}
		if err := e.entry(h, tr); err != nil {
			return err
		}
	}
	return r.addToDatabase(u, e.list, e.md5)
}

// packageWriter is the state of Add.
type packageWriter struct {
	r    *Writer
	u    *deb.Package
	what string
	list []string          // paths as shipped, for dpkg's list file
	md5  map[string]string // of conffiles, by path as shipped; "" until seen
}

func (e *packageWriter) listConffiles() {
	for _, line := range strings.Split(string(e.u.Scripts["conffiles"]), "\n") {
		// Flags precede the path; the only one known is for files that are gone.
		if f := strings.Fields(line); len(f) == 1 && strings.HasPrefix(f[0], "/") {
			e.md5[f[0]] = ""
		}
	}
}

// entry writes one member of the data archive.
func (e *packageWriter) entry(h *tar.Header, body io.Reader) error {
	shipped, err := cleanPath(e.what, h.Name)
	if err != nil {
		return err
	}
	if shipped == "" {
		e.list = append(e.list, "/.")
		return nil
	}
	e.list = append(e.list, "/"+shipped)
	t := e.r.tree
	if len(t) >= maxEntries {
		return &fault.LimitError{What: "number of files in the image", Limit: maxEntries}
	}
	p, err := t.resolve(e.what, shipped)
	if err != nil {
		return err
	}
	if p == "" {
		return fault.Malformed(e.what, "path %.200q is the root", h.Name)
	}
	if h.Uid < 0 || h.Gid < 0 || h.Uid > maxID || h.Gid > maxID {
		return fault.Malformed(e.what, "entry %.200q has the owner %d:%d", h.Name, h.Uid, h.Gid)
	}
	switch h.Typeflag {
	case tar.TypeDir:
		return e.dir(p, h)
	case tar.TypeSymlink:
		return e.symlink(p, h)
	case tar.TypeLink:
		return e.hardlink(p, shipped, h)
	case tar.TypeReg:
		return e.file(p, shipped, h, body)
	}
	return fault.Malformed(e.what, "entry %.200q has the type %q, which no package may contain", h.Name, h.Typeflag)
}

func (e *packageWriter) dir(p string, h *tar.Header) error {
	if n, ok := e.r.tree[p]; ok {
		if n.kind == kindLink { // such as /lib of a package on merged /usr
			q, err := e.r.tree.resolveDir(e.what, p)
			if err != nil || q == "" {
				return err
			}
			return e.dir(q, h)
		}
		if n.kind == kindFile {
			return e.conflict(p, n)
		}
		return nil
	}
	if e.r.without.drops(p, true) {
		return nil
	}
	return e.r.put(node{kind: kindDir, owner: e.u.Info}, header(h, tar.TypeDir, p), nil)
}

func (e *packageWriter) symlink(p string, h *tar.Header) error {
	if h.Linkname == "" || len(h.Linkname) > maxPathLen || strings.IndexByte(h.Linkname, 0) >= 0 {
		return fault.Malformed(e.what, "bad target of symbolic link %.200q", h.Name)
	}
	if n, ok := e.r.tree[p]; ok && (n.kind == kindDir || n.kind == kindLink && n.target == h.Linkname) {
		return nil // dpkg keeps the directory; an equal link is the merged /usr again
	}
	if write, err := e.claim(p); !write {
		return err
	}
	out := header(h, tar.TypeSymlink, p)
	out.Linkname, out.Mode = h.Linkname, 0o777
	return e.r.put(node{kind: kindLink, owner: e.u.Info, target: h.Linkname}, out, nil)
}

func (e *packageWriter) file(p, shipped string, h *tar.Header, body io.Reader) error {
	body = e.checked(body)
	var sum hash.Hash
	if _, conf := e.md5["/"+shipped]; conf {
		sum = md5.New() //nolint:gosec // see the import
		body = io.TeeReader(body, sum)
	}
	if savedFiles[p] && h.Size <= maxSaved {
		data, err := io.ReadAll(body)
		if err != nil {
			return err
		}
		e.r.saved[p] = data
		body = strings.NewReader(string(data))
	}
	if write, err := e.claim(p); !write {
		return err
	}
	out := header(h, tar.TypeReg, p)
	out.Size = h.Size
	if err := e.r.put(node{kind: kindFile, owner: e.u.Info}, out, body); err != nil {
		return err
	}
	if sum != nil {
		e.md5["/"+shipped] = hex.EncodeToString(sum.Sum(nil))
	}
	return nil
}

// checked makes errors about the archive's content distinct from those of the
// image's destination.
func (e *packageWriter) checked(body io.Reader) io.Reader {
	return &checkedReader{what: e.what, body: body}
}

type checkedReader struct {
	what string
	body io.Reader
}

func (r *checkedReader) Read(p []byte) (int, error) {
	n, err := r.body.Read(p)
	if err != nil && err != io.EOF {
		err = bounded.ContentError(r.what, err)
	}
	return n, err
}

func (e *packageWriter) hardlink(p, shipped string, h *tar.Header) error {
	target, err := cleanPath(e.what, h.Linkname)
	if err != nil {
		return err
	}
	q, err := e.r.tree.resolve(e.what, target)
	if err != nil {
		return err
	}
	if n, ok := e.r.tree[q]; !ok || n.kind != kindFile || n.owner != e.u.Info {
		return e.linkTargetGone(p, shipped, target)
	}
	if write, err := e.claim(p); !write {
		return err
	}
	out := header(h, tar.TypeLink, p)
	out.Linkname = q
	return e.r.put(node{kind: kindFile, owner: e.u.Info}, out, nil)
}

// linkTargetGone writes a hard link whose target is not in the image, because
// it was left out or replaced, as a file of its own.
func (e *packageWriter) linkTargetGone(p, shipped, target string) error {
	tr := tar.NewReader(io.NewSectionReader(e.u.Data, 0, e.u.Size))
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return fault.Malformed(e.what, "hard link %.200q to %.200q, which is not in the package", shipped, target)
		}
		if err != nil {
			return bounded.ContentError(e.what, err)
		}
		if name, err := cleanPath(e.what, h.Name); err == nil && name == target && h.Typeflag == tar.TypeReg {
			return e.file(p, shipped, h, tr)
		}
	}
}

// claim decides whether the package's file at p is to be written. It is not if
// it is left out, or if the package that has it already replaces this one.
func (e *packageWriter) claim(p string) (write bool, err error) {
	if e.r.without.drops(p, false) {
		return false, nil
	}
	n, ok := e.r.tree[p]
	switch {
	case !ok:
		return true, nil
	case n.kind == kindDir, n.owner == e.u.Info:
		return false, e.conflict(p, n)
	case n.owner == nil, replaces(e.u.Info, n.owner):
		return true, nil
	case replaces(n.owner, e.u.Info):
		return false, nil
	}
	return false, e.conflict(p, n)
}

func (e *packageWriter) conflict(p string, n node) error {
	if n.owner == e.u.Info {
		return fault.Malformed(e.what, "contains %.200q twice", p)
	}
	first := "the base layout"
	if n.owner != nil {
		first = n.owner.Name
	}
	return &fault.FileConflictError{Path: "/" + p, First: first, Second: e.u.Info.Name}
}

// replaces reports whether a declares that it may overwrite files of b.
func replaces(a, b *archive.Package) bool {
	rels, err := control.ParseRelations(a.Replaces)
	if err != nil {
		return false
	}
	for _, alts := range rels {
		if alts[0].Name == b.Name && alts[0].VersionOK(b.Version) {
			return true
		}
	}
	return false
}

// header copies what an image keeps of h: numeric owner, mode, time. Names of
// users would be looked up on a machine where they mean somebody else.
func header(h *tar.Header, kind byte, p string) *tar.Header {
	return &tar.Header{
		Typeflag: kind, Name: p, Mode: h.Mode & 0o7777, Uid: h.Uid, Gid: h.Gid,
		ModTime: h.ModTime.Truncate(time.Second),
	}
}
