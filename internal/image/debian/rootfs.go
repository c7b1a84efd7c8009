package debian

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"path"
	"strings"
	"time"
)

// rootWriter writes the image: first our own directories, then the packages in
// turn, then generated files and dpkg's database. Each path comes once, after
// its parent directory; only a file that a later package replaces comes twice,
// and the last one counts, as in any tar archive.
type rootWriter struct {
	ctx     context.Context
	tw      *tar.Writer
	out     *countingWriter
	size    int64
	tree    tree
	without excluder
	mtime   time.Time
	saved   map[string][]byte // content of a few files that later steps need
	status  bytes.Buffer      // of dpkg
	trig    triggers
	preinst map[*pkg]bool // packages with such a script
	buf     []byte
}

// savedFiles are the templates of /etc/passwd and /etc/group.
var savedFiles = map[string]bool{
	"usr/share/base-passwd/passwd.master": true,
	"usr/share/base-passwd/group.master":  true,
}

func newRootWriter(ctx context.Context, w io.Writer, opts *Options, mtime time.Time) *rootWriter {
	r := &rootWriter{
		ctx: ctx, tree: tree{}, without: excluder(opts.Without), mtime: mtime,
		saved: map[string][]byte{}, trig: triggers{}, preinst: map[*pkg]bool{}, buf: make([]byte, 256<<10),
	}
	r.out = &countingWriter{w: w, report: func(n int64) { r.size += n }}
	r.tw = tar.NewWriter(r.out)
	return r
}

// put writes an entry, and before it any parent directory that is missing.
func (r *rootWriter) put(n node, h *tar.Header, body io.Reader) error {
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
	if _, err := io.CopyBuffer(onlyWriter{r.tw}, body, r.buf); err != nil {
		return fmt.Errorf("write image file %s: %w", p, err)
	}
	return nil
}

func (r *rootWriter) mkdir(p string, mode int64) error {
	if _, ok := r.tree[p]; ok {
		return nil
	}
	return r.put(node{kind: kindDir}, &tar.Header{Typeflag: tar.TypeDir, Name: p, Mode: mode, ModTime: r.mtime}, nil)
}

func (r *rootWriter) symlinkTo(p, target string) error {
	if _, ok := r.tree[p]; ok {
		return nil
	}
	return r.put(node{kind: kindLink, target: target},
		&tar.Header{Typeflag: tar.TypeSymlink, Name: p, Linkname: target, Mode: 0o777, ModTime: r.mtime}, nil)
}

// write adds a generated file unless a package has it. A symbolic link in the
// way wins too: the package knows why.
func (r *rootWriter) write(p string, mode int64, data []byte) error {
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

// finish ends the archive.
func (r *rootWriter) finish() error {
	if err := r.tw.Close(); err != nil {
		return fmt.Errorf("finish image: %w", err)
	}
	return nil
}
