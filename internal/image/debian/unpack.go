package debian

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
)

// maxID keeps owners where every file system can store them; -1 means "keep".
const maxID = 1<<32 - 2

// addPackage writes the files of u. After it u.data is no longer needed.
func (r *rootWriter) addPackage(u *unpacked) error {
	e := &packageWriter{r: r, u: u, what: u.p.name + " package file, data archive", md5: map[string]string{}}
	e.listConffiles()
	if _, err := u.data.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("rewind spool file: %w", err)
	}
	tr := tar.NewReader(bufio.NewReaderSize(u.data, 256<<10))
	for {
		if err := r.ctx.Err(); err != nil {
			return context.Cause(r.ctx)
		}
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return contentError(e.what, err)
		}
		if err := e.entry(h, tr); err != nil {
			return err
		}
	}
	return r.addToDatabase(u, e.list, e.md5)
}

// packageWriter is the state of addPackage.
type packageWriter struct {
	r    *rootWriter
	u    *unpacked
	what string
	list []string          // paths as shipped, for dpkg's list file
	md5  map[string]string // of conffiles, by path as shipped; "" until seen
}

func (e *packageWriter) listConffiles() {
	for _, line := range strings.Split(string(e.u.scripts["conffiles"]), "\n") {
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
		return &LimitError{What: "number of files in the image", Limit: maxEntries}
	}
	p, err := t.resolve(e.what, shipped)
	if err != nil {
		return err
	}
	if p == "" {
		return malformed(e.what, "path %.200q is the root", h.Name)
	}
	if h.Uid < 0 || h.Gid < 0 || h.Uid > maxID || h.Gid > maxID {
		return malformed(e.what, "entry %.200q has the owner %d:%d", h.Name, h.Uid, h.Gid)
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
	return malformed(e.what, "entry %.200q has the type %q, which no package may contain", h.Name, h.Typeflag)
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
	return e.r.put(node{kind: kindDir, owner: e.u.p}, header(h, tar.TypeDir, p), nil)
}

func (e *packageWriter) symlink(p string, h *tar.Header) error {
	if h.Linkname == "" || len(h.Linkname) > maxPathLen || strings.IndexByte(h.Linkname, 0) >= 0 {
		return malformed(e.what, "bad target of symbolic link %.200q", h.Name)
	}
	if n, ok := e.r.tree[p]; ok && (n.kind == kindDir || n.kind == kindLink && n.target == h.Linkname) {
		return nil // dpkg keeps the directory; an equal link is the merged /usr again
	}
	if write, err := e.claim(p); !write {
		return err
	}
	out := header(h, tar.TypeSymlink, p)
	out.Linkname, out.Mode = h.Linkname, 0o777
	return e.r.put(node{kind: kindLink, owner: e.u.p, target: h.Linkname}, out, nil)
}

func (e *packageWriter) file(p, shipped string, h *tar.Header, body io.Reader) error {
	body = e.checked(body)
	var sum hash.Hash
	if _, conf := e.md5["/"+shipped]; conf {
		sum = md5.New() //nolint:gosec // see the import
		body = io.TeeReader(body, sum)
	}
	if savedFiles[p] && h.Size <= maxConfigFile {
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
	if err := e.r.put(node{kind: kindFile, owner: e.u.p}, out, body); err != nil {
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
	return readerFunc(func(p []byte) (int, error) {
		n, err := body.Read(p)
		if err != nil && err != io.EOF {
			err = contentError(e.what, err)
		}
		return n, err
	})
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
	if n, ok := e.r.tree[q]; !ok || n.kind != kindFile || n.owner != e.u.p {
		return e.linkTargetGone(p, shipped, target)
	}
	if write, err := e.claim(p); !write {
		return err
	}
	out := header(h, tar.TypeLink, p)
	out.Linkname = q
	return e.r.put(node{kind: kindFile, owner: e.u.p}, out, nil)
}

// linkTargetGone writes a hard link whose target is not in the image, because
// it was left out or replaced, as a file of its own.
func (e *packageWriter) linkTargetGone(p, shipped, target string) error {
	tr := tar.NewReader(io.NewSectionReader(e.u.data, 0, e.u.size))
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return malformed(e.what, "hard link %.200q to %.200q, which is not in the package", shipped, target)
		}
		if err != nil {
			return contentError(e.what, err)
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
	case n.kind == kindDir, n.owner == e.u.p:
		return false, e.conflict(p, n)
	case n.owner == nil, replaces(e.u.p, n.owner):
		return true, nil
	case replaces(n.owner, e.u.p):
		return false, nil
	}
	return false, e.conflict(p, n)
}

func (e *packageWriter) conflict(p string, n node) error {
	if n.owner == e.u.p {
		return malformed(e.what, "contains %.200q twice", p)
	}
	first := "the base layout"
	if n.owner != nil {
		first = n.owner.name
	}
	return &FileConflictError{Path: "/" + p, First: first, Second: e.u.p.name}
}

// replaces reports whether a declares that it may overwrite files of b.
func replaces(a, b *pkg) bool {
	rels, err := parseRelations(a.replaces)
	if err != nil {
		return false
	}
	for _, alts := range rels {
		if alts[0].name == b.name && alts[0].versionOK(b.version) {
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
