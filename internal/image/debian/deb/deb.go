package deb

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"regexp"
	"strings"

	"ramet.dev/ramet/internal/image/debian/archive"
	"ramet.dev/ramet/internal/image/debian/bounded"
	"ramet.dev/ramet/internal/image/debian/control"
	"ramet.dev/ramet/internal/image/debian/fault"
	"ramet.dev/ramet/internal/image/debian/pkgcache"
)

// Bounds on one package. The largest Debian packages unpack to about 3 GiB;
// their control archives stay below 10 MiB.
const (
	maxControlTar  = 64 << 20
	maxControlFile = 16 << 20
	maxControlName = 64
	maxDataTar     = 8 << 30
)

// Package is one package, verified and decompressed.
type Package struct {
	Info    *archive.Package
	Control []byte            // the stanza
	Scripts map[string][]byte // other members of the control archive, by name
	Names   []string          // keys of Scripts in their order
	Data    *os.File          // the plain data archive, unlinked; Close frees it
	Size    int64             // of Data
}

// Open opens the package file of p in the cache, which has verified it. The data archive
// goes to a spool file of the cache, and is not looked into.
func Open(ctx context.Context, c *pkgcache.Cache, p *archive.Package) (*Package, error) {
	f, err := os.Open(c.Path(p.Digest))
	if err != nil {
		return nil, fmt.Errorf("open package: %w", err)
	}
	defer f.Close()
	u := &Package{Info: p}
	if err := u.read(ctx, c, f); err != nil {
		u.Close()
		return nil, err
	}
	return u, nil
}

// Close frees the data archive. It may be called twice.
func (u *Package) Close() {
	if u.Data != nil {
		u.Data.Close()
		u.Data = nil
	}
}

func (u *Package) read(ctx context.Context, c *pkgcache.Cache, in io.Reader) error {
	what := u.Info.Name + " package file"
	ar, err := newArReader(what, bufio.NewReaderSize(in, 256<<10))
	if err != nil {
		return err
	}
	if err := checkFormat(what, ar); err != nil {
		return err
	}
	for u.Data == nil {
		name, _, err := ar.next()
		if errors.Is(err, io.EOF) {
			return fault.Malformed(what, "has no data archive")
		}
		if err != nil {
			return err
		}
		switch kind, ext := splitMember(name); {
		case kind == "control.tar" && u.Control == nil:
			err = u.readControl(ctx, what, ext, ar)
		case kind == "data.tar" && u.Control != nil:
			err = u.spoolData(ctx, c, what, ext, ar)
		case strings.HasPrefix(name, "_"): // reserved for extensions, to be skipped
		default:
			err = fault.Malformed(what, "unexpected member %.20q", name)
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
		return fault.Malformed(what, "is not a Debian package")
	}
	version, err := bounded.ReadAll(what, ar, 100)
	if err != nil {
		return err
	}
	if !strings.HasPrefix(string(version), "2.") {
		return fault.Malformed(what, "has the unknown format %.20q", version)
	}
	return nil
}

func splitMember(name string) (kind, ext string) {
	if i := strings.Index(name, ".tar"); i >= 0 {
		return name[:i+4], name[i+4:]
	}
	return name, ""
}

func (u *Package) readControl(ctx context.Context, what, ext string, in io.Reader) error {
	what += ", control archive"
	plain, done, err := bounded.Decompress(what, ext, in)
	if err != nil {
		return err
	}
	defer done()
	tr := tar.NewReader(bounded.NewReader(ctx, what, plain, maxControlTar))
	u.Scripts = map[string][]byte{}
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return bounded.ContentError(what, err)
		}
		name := strings.TrimPrefix(path.Clean(h.Name), "/")
		if h.Typeflag == tar.TypeDir {
			continue
		}
		if h.Typeflag != tar.TypeReg || !validControlName(name) {
			return fault.Malformed(what, "unexpected entry %.80q", h.Name)
		}
		data, err := bounded.ReadAll(what+", "+name, tr, maxControlFile)
		if err != nil {
			return bounded.ContentError(what, err)
		}
		if name == "control" {
			u.Control = data
			continue
		}
		if _, dup := u.Scripts[name]; dup || len(u.Scripts) == maxControlName {
			return fault.Malformed(what, "too many or repeated entries (%.80q)", name)
		}
		u.Scripts[name] = data
		u.Names = append(u.Names, name)
	}
	return u.checkControl(what)
}

// checkControl makes sure that the package is the one the index speaks of.
func (u *Package) checkControl(what string) error {
	if u.Control == nil {
		return fault.Malformed(what, "has no control file")
	}
	st, err := control.Parse(what, u.Control)
	if err != nil {
		return err
	}
	p := u.Info
	if st.Get("Package") != p.Name || st.Get("Version") != p.Version || st.Get("Architecture") != p.Arch {
		return fault.Malformed(what, "is of package %.80q %.80q %.20q, the index says %s %s %s",
			st.Get("Package"), st.Get("Version"), st.Get("Architecture"), p.Name, p.Version, p.Arch)
	}
	// dpkg goes by the package file, and names its own files by this field.
	if p.MultiArch = st.Get("Multi-Arch"); p.Replaces == "" {
		p.Replaces = st.Get("Replaces")
	}
	return nil
}

var controlNames = regexp.MustCompile(`^[A-Za-z0-9_-]{1,39}$`)

// validControlName accepts what may follow "package." in dpkg's info directory.
func validControlName(s string) bool { return controlNames.MatchString(s) && s != "list" }

func (u *Package) spoolData(ctx context.Context, c *pkgcache.Cache, what, ext string, in io.Reader) error {
	what += ", data archive"
	plain, done, err := bounded.Decompress(what, ext, in)
	if err != nil {
		return err
	}
	defer done()
	if u.Data, err = c.Spool(); err != nil {
		return err
	}
	src := bounded.NewReader(ctx, what, plain, maxDataTar)
	// The anonymous type hides ReadFrom, which would bypass the large buffer.
	if u.Size, err = io.CopyBuffer(struct{ io.Writer }{u.Data}, src, make([]byte, 256<<10)); err != nil {
		return bounded.ContentError(what, err)
	}
	return nil
}
