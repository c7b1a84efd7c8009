package debian

import (
	"archive/tar"
	"bufio"
	"compress/bzip2"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/therootcompany/xz"
)

// Bounds on one package. The largest Debian packages unpack to about 3 GiB;
// their control archives stay below 10 MiB.
const (
	maxControlTar  = 64 << 20
	maxControlFile = 16 << 20
	maxControlName = 64
	maxDataTar     = 8 << 30
	maxDictionary  = 128 << 20 // xz -9 uses 64 MiB
)

// unpacked is one package, verified and decompressed.
type unpacked struct {
	p       *pkg
	control []byte            // the stanza
	scripts map[string][]byte // other members of the control archive, by name
	names   []string          // keys of scripts in their order
	data    *os.File          // the plain data archive, unlinked; Close frees it
	size    int64             // of data
}

// unpackDeb opens the package file at path, which has been verified by digest.
// It does not look into the data archive.
func unpackDeb(ctx context.Context, c *cache, p *pkg, path string) (*unpacked, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open package: %w", err)
	}
	defer f.Close()
	u := &unpacked{p: p}
	if err := u.read(ctx, c, f); err != nil {
		u.close()
		return nil, err
	}
	return u, nil
}

func (u *unpacked) close() {
	if u.data != nil {
		u.data.Close()
		u.data = nil
	}
}

func (u *unpacked) read(ctx context.Context, c *cache, in io.Reader) error {
	what := u.p.name + " package file"
	ar, err := newArReader(what, bufio.NewReaderSize(in, 256<<10))
	if err != nil {
		return err
	}
	if err := checkFormat(what, ar); err != nil {
		return err
	}
	for u.data == nil {
		name, _, err := ar.next()
		if errors.Is(err, io.EOF) {
			return malformed(what, "has no data archive")
		}
		if err != nil {
			return err
		}
		switch kind, ext := splitMember(name); {
		case kind == "control.tar" && u.control == nil:
			err = u.readControl(ctx, what, ext, ar)
		case kind == "data.tar" && u.control != nil:
			err = u.spoolData(ctx, c, what, ext, ar)
		case strings.HasPrefix(name, "_"): // reserved for extensions, to be skipped
		default:
			err = malformed(what, "unexpected member %.20q", name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkFormat reads the first member, which names the version of the format.
func checkFormat(what string, ar *arReader) error {
	name, size, err := ar.next()
	if err != nil || name != "debian-binary" || size > 100 {
		return malformed(what, "is not a Debian package")
	}
	version, err := readLimited(what, ar, 100)
	if err != nil {
		return err
	}
	if !strings.HasPrefix(string(version), "2.") {
		return malformed(what, "has the unknown format %.20q", version)
	}
	return nil
}

func splitMember(name string) (kind, ext string) {
	if i := strings.Index(name, ".tar"); i >= 0 {
		return name[:i+4], name[i+4:]
	}
	return name, ""
}

// decompress returns the plain content of in. done must be called at the end.
func decompress(what, ext string, in io.Reader) (out io.Reader, done func(), err error) {
	done = func() {}
	switch ext {
	case "":
		out = in
	case ".gz":
		out, err = gzip.NewReader(in)
	case ".xz":
		out, err = xz.NewReader(in, maxDictionary)
	case ".zst":
		var z *zstd.Decoder
		// One decoder per package runs at a time in each worker already.
		z, err = zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxDictionary))
		if err == nil {
			out, done = z, z.Close
		}
	case ".bz2":
		out = bzip2.NewReader(in)
	default:
		return nil, nil, malformed(what, "unknown compression %.10q", ext)
	}
	if err != nil {
		return nil, nil, malformed(what, "cannot decompress %s: %v", ext, err)
	}
	return out, done, nil
}

func (u *unpacked) readControl(ctx context.Context, what, ext string, in io.Reader) error {
	what += ", control archive"
	plain, done, err := decompress(what, ext, in)
	if err != nil {
		return err
	}
	defer done()
	tr := tar.NewReader(&boundedReader{r: &contextReader{ctx, plain}, what: what, left: maxControlTar, limit: maxControlTar})
	u.scripts = map[string][]byte{}
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return contentError(what, err)
		}
		name := strings.TrimPrefix(path.Clean(h.Name), "/")
		if h.Typeflag == tar.TypeDir {
			continue
		}
		if h.Typeflag != tar.TypeReg || !validControlName(name) {
			return malformed(what, "unexpected entry %.80q", h.Name)
		}
		data, err := readLimited(what+", "+name, tr, maxControlFile)
		if err != nil {
			return contentError(what, err)
		}
		if name == "control" {
			u.control = data
			continue
		}
		if _, dup := u.scripts[name]; dup || len(u.scripts) == maxControlName {
			return malformed(what, "too many or repeated entries (%.80q)", name)
		}
		u.scripts[name] = data
		u.names = append(u.names, name)
	}
	return u.checkControl(what)
}

// checkControl makes sure that the package is the one the index speaks of.
func (u *unpacked) checkControl(what string) error {
	if u.control == nil {
		return malformed(what, "has no control file")
	}
	st, err := parseStanza(what, u.control)
	if err != nil {
		return err
	}
	p := u.p
	if st.get("Package") != p.name || st.get("Version") != p.version || st.get("Architecture") != p.arch {
		return malformed(what, "is of package %.80q %.80q %.20q, the index says %s %s %s",
			st.get("Package"), st.get("Version"), st.get("Architecture"), p.name, p.version, p.arch)
	}
	// dpkg goes by the package file, and names its own files by this field.
	if p.multiArch = st.get("Multi-Arch"); p.replaces == "" {
		p.replaces = st.get("Replaces")
	}
	return nil
}

// validControlName accepts what may follow "package." in dpkg's info directory.
func validControlName(s string) bool {
	for i := 0; i < len(s); i++ {
		if !isLetter(s[i]) && !isDigit(s[i]) && s[i] != '-' && s[i] != '_' {
			return false
		}
	}
	return s != "" && len(s) < 40 && s != "list"
}

func (u *unpacked) spoolData(ctx context.Context, c *cache, what, ext string, in io.Reader) error {
	what += ", data archive"
	plain, done, err := decompress(what, ext, in)
	if err != nil {
		return err
	}
	defer done()
	if u.data, err = c.spool(); err != nil {
		return err
	}
	src := &boundedReader{r: &contextReader{ctx, plain}, what: what, left: maxDataTar, limit: maxDataTar}
	if u.size, err = io.CopyBuffer(onlyWriter{u.data}, src, make([]byte, 256<<10)); err != nil {
		return contentError(what, err)
	}
	return nil
}

// contentError turns a decoder's complaint about the data into a
// MalformedError; errors of ours and of the context stay what they are.
func contentError(what string, err error) error {
	var limit *LimitError
	var bad *MalformedError
	var sys *os.PathError
	switch {
	case errors.As(err, &limit), errors.As(err, &bad), errors.As(err, &sys),
		errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	}
	return malformed(what, "cannot be read: %v", err)
}

// boundedReader fails, rather than ends, when more than limit bytes come.
type boundedReader struct {
	r           io.Reader
	what        string
	left, limit int64
}

func (b *boundedReader) Read(p []byte) (int, error) {
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.r.Read(p)
	if int64(n) > b.left {
		return int(b.left), &LimitError{What: b.what, Limit: b.limit}
	}
	b.left -= int64(n)
	return n, err
}

// onlyWriter hides ReadFrom, which would bypass the caller's large buffer.
type onlyWriter struct{ io.Writer }
