package dpkg

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"ramet.dev/ramet/internal/image/debian/archive"
)

// Writer writes the image: first the base layout, then the packages in turn, then
// generated files and dpkg's database. Each path comes once, after
// its parent directory; only a file that a later package replaces comes twice,
// and the last one counts, as in any tar archive.
type Writer struct {
	ctx     context.Context
	tw      *tar.Writer
	out     counter
	tree    tree
	without excluder
	mtime   time.Time
	saved   map[string][]byte // content of a few files that later steps need
	status  bytes.Buffer      // of dpkg
	trig    triggers
	preinst map[*archive.Package]bool // packages with such a script
	buf     []byte
}

// maxSaved bounds a file whose content is kept.
const maxSaved = 1 << 20

// savedFiles are the templates of /etc/passwd and /etc/group.
var savedFiles = map[string]bool{
	"usr/share/base-passwd/passwd.master": true,
	"usr/share/base-passwd/group.master":  true,
}

// New returns a writer to w, which only the goroutine that calls its methods writes to.
// Files below the absolute paths of without are left out. Generated files have the time
// mtime.
func New(ctx context.Context, w io.Writer, without []string, mtime time.Time) *Writer {
	r := &Writer{
		ctx: ctx, tree: tree{}, without: excluder(without), mtime: mtime, out: counter{w: w},
		saved: map[string][]byte{}, trig: triggers{}, preinst: map[*archive.Package]bool{}, buf: make([]byte, 256<<10),
	}
	r.tw = tar.NewWriter(&r.out)
	return r
}

// Size returns the length of the stream so far.
func (r *Writer) Size() int64 { return r.out.size }

// HasPreinst reports whether p, which was added, has a preinst script.
func (r *Writer) HasPreinst(p *archive.Package) bool { return r.preinst[p] }

// counter counts the bytes that pass to w.
type counter struct {
	w    io.Writer
	size int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.size += int64(n)
	return n, err
}

// put writes an entry, and before it any parent directory that is missing.
func (r *Writer) put(n node, h *tar.Header, body io.Reader) error {
	p := h.Name
	if dir := path.Dir(p); dir != "." {
		if _, ok := r.tree[dir]; !ok {
			if err := r.mkdir(dir, 0o755); err != nil {
				return err
			}
		}
	}
	if n.kind == kindDir {
		h.Name += "/"
	}
	r.tree[p] = n
	if err := r.tw.WriteHeader(h); err != nil {
		return fmt.Errorf("write image entry %s: %w", p, err)
	}
	if body == nil {
		return nil
	}
	// The anonymous type hides ReadFrom, which would bypass the large buffer.
	if _, err := io.CopyBuffer(struct{ io.Writer }{r.tw}, body, r.buf); err != nil {
		return fmt.Errorf("write image file %s: %w", p, err)
	}
	return nil
}

func (r *Writer) mkdir(p string, mode int64) error {
	if _, ok := r.tree[p]; ok {
		return nil
	}
	return r.put(node{kind: kindDir}, &tar.Header{Typeflag: tar.TypeDir, Name: p, Mode: mode, ModTime: r.mtime}, nil)
}

func (r *Writer) symlinkTo(p, target string) error {
	if _, ok := r.tree[p]; ok {
		return nil
	}
	return r.put(node{kind: kindLink, target: target},
		&tar.Header{Typeflag: tar.TypeSymlink, Name: p, Linkname: target, Mode: 0o777, ModTime: r.mtime}, nil)
}

// write adds a generated file unless a package has it. A symbolic link in the
// way wins too: the package knows why.
func (r *Writer) write(p string, mode int64, data []byte) error {
	q, err := r.tree.resolve("base layout", p)
	if err != nil {
		return err
	}
	if _, ok := r.tree[q]; ok {
		return nil
	}
	return r.put(node{kind: kindFile},
		&tar.Header{Typeflag: tar.TypeReg, Name: q, Mode: mode, Size: int64(len(data)), ModTime: r.mtime},
		strings.NewReader(string(data)))
}

// Finish ends the archive.
func (r *Writer) Finish() error {
	if err := r.tw.Close(); err != nil {
		return fmt.Errorf("finish image: %w", err)
	}
	return nil
}
