package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"ramet.dev/ramet/internal/image/debian/apt"
	"ramet.dev/ramet/internal/image/debian/bounded"
	"ramet.dev/ramet/internal/image/debian/control"
	"ramet.dev/ramet/internal/image/debian/fault"
	"ramet.dev/ramet/internal/image/debian/pkgcache"
)

// Bounds on indexes: Debian's largest is 12 MB compressed and 50 MB plain.
const (
	maxIndexFile  = 256 << 20
	maxIndexText  = 1 << 30
	maxIndexNames = 2_000_000
)

// Package is one binary package of an index.
type Package struct {
	Name, Version, Arch, MultiArch string
	Essential                      bool
	Priority                       int // by its rank; the lowest is the most important

	PreDepends, Depends, Conflicts, Breaks, Provides, Replaces string

	Digest pkgcache.Digest // of the package file

	src      *apt.Source
	filename string
}

// URL returns the address of the package file.
func (p *Package) URL() string { return p.src.URL(p.filename) }

// DpkgName is the name dpkg uses for its files about p: packages that can be
// installed for several architectures at once carry theirs.
func (p *Package) DpkgName() string {
	if p.MultiArch == "same" {
		return p.Name + ":" + p.Arch
	}
	return p.Name
}

// priorityRank orders the values of Priority; unknown ones come last.
var priorityRank = map[string]int{"required": 0, "important": 1, "standard": 2, "optional": 3, "extra": 4}

// LoadIndexes fetches the indexes of all releases and returns their packages, in the
// order of the releases. Progress counts indexes.
func LoadIndexes(ctx context.Context, f *Fetcher, rels []*Release, arch string, progress func(done, total int)) ([]*Package, error) {
	type job struct {
		rel  *Release
		path string
	}
	var jobs []job
	for _, r := range rels {
		for _, comp := range r.Source.Components {
			jobs = append(jobs, job{r, comp + "/binary-" + arch + "/Packages"})
			if r.allInAll {
				jobs = append(jobs, job{r, comp + "/binary-all/Packages"})
			}
		}
	}
	parts := make([][]*Package, len(jobs))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(Downloads)
	for i, j := range jobs {
		g.Go(func() (err error) {
			parts[i], err = loadIndex(gctx, f, j.rel, j.path, arch)
			return err
		})
	}
	progress(0, len(jobs))
	if err := g.Wait(); err != nil {
		return nil, err
	}
	progress(len(jobs), len(jobs))
	return slices.Concat(parts...), nil
}

// loadIndex fetches and parses one index, in the form that costs least: gzip
// unpacks ten times as fast as xz and is a third larger.
func loadIndex(ctx context.Context, f *Fetcher, r *Release, name, arch string) ([]*Package, error) {
	for _, ext := range []string{".gz", ".xz", ""} {
		d, ok := r.files[name+ext]
		if !ok {
			continue
		}
		if d.Size > maxIndexFile {
			return nil, &fault.LimitError{What: name + ext, Limit: maxIndexFile}
		}
		addrs := []string{r.Source.URL("dists/" + r.Source.Suite + "/" + name + ext)}
		if r.byHash { // stays right while the mirror is being updated
			byHash := path.Dir(name) + "/by-hash/SHA256/" + d.SHA256
			addrs = append([]string{r.Source.URL("dists/" + r.Source.Suite + "/" + byHash)}, addrs...)
		}
		_, err := f.Store(ctx, name+ext, addrs, d, func(int64) {})
		var fe *fault.FetchError
		if errors.As(err, &fe) && fe.Status == http.StatusNotFound {
			continue // listed, but not kept on the server in this form
		}
		if err != nil {
			return nil, err
		}
		limit := int64(maxIndexText)
		if plain, ok := r.files[name]; ok {
			limit = min(limit, plain.Size)
		}
		return readIndexFile(ctx, f.cache.Path(d), apt.Redact(addrs[len(addrs)-1]), ext, limit, r.Source, arch)
	}
	// A component without packages for this architecture may have no index.
	return nil, nil
}

func readIndexFile(ctx context.Context, file, what, ext string, limit int64, src *apt.Source, arch string) ([]*Package, error) {
	in, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("open package index: %w", err)
	}
	defer in.Close()
	plain, done, err := bounded.Decompress(what, ext, in)
	if err != nil {
		return nil, err
	}
	defer done()
	return ParseIndex(what, bounded.NewReader(ctx, what, plain, limit), src, arch)
}

// ParseIndex reads the stanzas of a Packages file, and keeps those for arch.
func ParseIndex(what string, in io.Reader, src *apt.Source, arch string) ([]*Package, error) {
	var out []*Package
	r := control.NewReader(what, in)
	for {
		st, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		p, err := newPkg(what, st)
		if err != nil {
			return nil, err
		}
		if p.Arch != arch && p.Arch != "all" {
			continue
		}
		if len(out) == maxIndexNames {
			return nil, &fault.LimitError{What: "number of packages in " + what, Limit: maxIndexNames}
		}
		p.src = src
		out = append(out, p)
	}
}

func newPkg(what string, st *control.Stanza) (*Package, error) {
	p := &Package{Priority: len(priorityRank)}
	var sum, size string
	for _, f := range st.Fields {
		// Only what is needed is copied: an index has many megabytes of the rest.
		var dst *string
		switch strings.ToLower(string(f.Name)) {
		case "package":
			dst = &p.Name
		case "version":
			dst = &p.Version
		case "architecture":
			dst = &p.Arch
		case "multi-arch":
			dst = &p.MultiArch
		case "pre-depends":
			dst = &p.PreDepends
		case "depends":
			dst = &p.Depends
		case "conflicts":
			dst = &p.Conflicts
		case "breaks":
			dst = &p.Breaks
		case "provides":
			dst = &p.Provides
		case "replaces":
			dst = &p.Replaces
		case "filename":
			dst = &p.filename
		case "size":
			dst = &size
		case "sha256":
			dst = &sum
		case "essential":
			p.Essential = strings.TrimSpace(string(f.Value)) == "yes"
			continue
		case "priority":
			if rank, ok := priorityRank[strings.TrimSpace(string(f.Value))]; ok {
				p.Priority = rank
			}
			continue
		default:
			continue
		}
		*dst = strings.TrimSpace(string(f.Value))
	}
	if !control.ValidName(p.Name) || !control.ValidVersion(p.Version) || !control.ValidName(p.Arch) {
		return nil, fault.Malformed(what, "bad name, version or architecture: %.80q %.80q %.80q", p.Name, p.Version, p.Arch)
	}
	if p.filename == "" || path.IsAbs(p.filename) || path.Clean(p.filename) != strings.TrimPrefix(p.filename, "./") || strings.HasPrefix(path.Clean(p.filename), "..") {
		return nil, fault.Malformed(what, "bad file name of package %s: %.200q", p.Name, p.filename)
	}
	d, err := pkgcache.ParseDigest(sum, size)
	if err != nil {
		return nil, fault.Malformed(what, "bad SHA256 or size of package %s: %.80q %.30q", p.Name, sum, size)
	}
	p.Digest = d
	return p, nil
}
