package debian

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"strings"

	"golang.org/x/sync/errgroup"
)

// Bounds on indexes: Debian's largest is 12 MB compressed and 50 MB plain.
const (
	maxIndexFile   = 256 << 20
	maxIndexText   = 1 << 30
	maxIndexNames  = 2_000_000
	maxPackageFile = 2 << 30
)

// pkg is one binary package of an index.
type pkg struct {
	name, version, arch, multiArch string
	essential                      bool
	priority                       int

	preDepends, depends, conflicts, breaks, provides, replaces string

	src      *source
	filename string
	digest   digest
}

// dpkgName is the name dpkg uses for its files about p: packages that can be
// installed for several architectures at once carry theirs.
func (p *pkg) dpkgName() string {
	if p.multiArch == "same" {
		return p.name + ":" + p.arch
	}
	return p.name
}

// universe is everything that could be installed: for each name the newest
// version, and for each provided name its providers.
type universe struct {
	arch      string
	suite     string
	byName    map[string]*pkg
	providers map[string][]*pkg
}

// priorityRank orders the values of Priority; unknown ones come last.
var priorityRank = map[string]int{"required": 0, "important": 1, "standard": 2, "optional": 3, "extra": 4}

// loadUniverse fetches the indexes of all releases and merges them.
func loadUniverse(ctx context.Context, f *fetcher, opts *Options, rels []*release) (*universe, error) {
	type job struct {
		rel  *release
		path string
	}
	var jobs []job
	for _, r := range rels {
		for _, comp := range r.src.components {
			jobs = append(jobs, job{r, comp + "/binary-" + opts.Arch + "/Packages"})
			if r.allInAll {
				jobs = append(jobs, job{r, comp + "/binary-all/Packages"})
			}
		}
	}
	parts := make([][]*pkg, len(jobs))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(downloads)
	for i, j := range jobs {
		g.Go(func() (err error) {
			parts[i], err = loadIndex(gctx, f, j.rel, j.path, opts.Arch)
			return err
		})
	}
	opts.report(PhaseIndex, 0, int64(len(jobs)), "")
	if err := g.Wait(); err != nil {
		return nil, err
	}
	u := &universe{arch: opts.Arch, suite: opts.Suite, byName: map[string]*pkg{}, providers: map[string][]*pkg{}}
	for _, part := range parts {
		for _, p := range part {
			if have := u.byName[p.name]; have == nil || CompareVersions(p.version, have.version) > 0 {
				u.byName[p.name] = p
			}
		}
	}
	if len(u.byName) == 0 {
		return nil, malformed("package index", "suite %q has no packages for architecture %s", opts.Suite, opts.Arch)
	}
	opts.report(PhaseIndex, int64(len(jobs)), int64(len(jobs)), "")
	return u, u.indexProviders()
}

// loadIndex fetches and parses one index, in the form that costs least: gzip
// unpacks ten times as fast as xz and is a third larger.
func loadIndex(ctx context.Context, f *fetcher, r *release, name, arch string) ([]*pkg, error) {
	for _, ext := range []string{".gz", ".xz", ""} {
		d, ok := r.files[name+ext]
		if !ok {
			continue
		}
		if d.size > maxIndexFile {
			return nil, &LimitError{What: name + ext, Limit: maxIndexFile}
		}
		addrs := []string{r.src.url("dists/" + r.src.suite + "/" + name + ext)}
		if r.byHash { // stays right while the mirror is being updated
			byHash := path.Dir(name) + "/by-hash/SHA256/" + d.sha256
			addrs = append([]string{r.src.url("dists/" + r.src.suite + "/" + byHash)}, addrs...)
		}
		_, err := f.store(ctx, name+ext, addrs, d, func(int64) {})
		var fe *FetchError
		if errors.As(err, &fe) && fe.Status == http.StatusNotFound {
			continue // listed, but not kept on the server in this form
		}
		if err != nil {
			return nil, err
		}
		limit := int64(maxIndexText)
		if plain, ok := r.files[name]; ok {
			limit = min(limit, plain.size)
		}
		return readIndexFile(ctx, f.cache.path(d), redact(addrs[len(addrs)-1]), ext, limit, r.src, arch)
	}
	// A component without packages for this architecture may have no index.
	return nil, nil
}

func readIndexFile(ctx context.Context, file, what, ext string, limit int64, src *source, arch string) ([]*pkg, error) {
	in, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("open package index: %w", err)
	}
	defer in.Close()
	plain, done, err := decompress(what, ext, in)
	if err != nil {
		return nil, err
	}
	defer done()
	bounded := &boundedReader{r: &contextReader{ctx, plain}, what: what, left: limit, limit: limit}
	return parseIndex(what, bounded, src, arch)
}

// parseIndex reads the stanzas of a Packages file.
func parseIndex(what string, in io.Reader, src *source, arch string) ([]*pkg, error) {
	var out []*pkg
	r := newStanzaReader(what, in)
	for {
		st, err := r.next()
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
		if p.arch != arch && p.arch != "all" {
			continue
		}
		if len(out) == maxIndexNames {
			return nil, &LimitError{What: "number of packages in " + what, Limit: maxIndexNames}
		}
		p.src = src
		out = append(out, p)
	}
}

func newPkg(what string, st *stanza) (*pkg, error) {
	p := &pkg{priority: len(priorityRank)}
	var sum, size string
	for _, f := range st.fields {
		// Only what is needed is copied: an index has many megabytes of the rest.
		var dst *string
		switch strings.ToLower(string(f.name)) {
		case "package":
			dst = &p.name
		case "version":
			dst = &p.version
		case "architecture":
			dst = &p.arch
		case "multi-arch":
			dst = &p.multiArch
		case "pre-depends":
			dst = &p.preDepends
		case "depends":
			dst = &p.depends
		case "conflicts":
			dst = &p.conflicts
		case "breaks":
			dst = &p.breaks
		case "provides":
			dst = &p.provides
		case "replaces":
			dst = &p.replaces
		case "filename":
			dst = &p.filename
		case "size":
			dst = &size
		case "sha256":
			dst = &sum
		case "essential":
			p.essential = strings.TrimSpace(string(f.value)) == "yes"
			continue
		case "priority":
			if rank, ok := priorityRank[strings.TrimSpace(string(f.value))]; ok {
				p.priority = rank
			}
			continue
		default:
			continue
		}
		*dst = strings.TrimSpace(string(f.value))
	}
	if !validPackageName(p.name) || !validVersion(p.version) || !validPackageName(p.arch) {
		return nil, malformed(what, "bad name, version or architecture: %.80q %.80q %.80q", p.name, p.version, p.arch)
	}
	if p.filename == "" || path.IsAbs(p.filename) || path.Clean(p.filename) != strings.TrimPrefix(p.filename, "./") || strings.HasPrefix(path.Clean(p.filename), "..") {
		return nil, malformed(what, "bad file name of package %s: %.200q", p.name, p.filename)
	}
	d, err := parseDigest(sum, size)
	if err != nil {
		return nil, malformed(what, "bad SHA256 or size of package %s: %.80q %.30q", p.name, sum, size)
	}
	p.digest = d
	return p, nil
}

// indexProviders fills in u.providers, best first.
func (u *universe) indexProviders() error {
	for _, p := range u.byName {
		names, err := parseRelations(p.provides)
		if err != nil {
			return fmt.Errorf("read Provides of %s: %w", p.name, err)
		}
		for _, n := range names {
			u.providers[n[0].name] = append(u.providers[n[0].name], p)
		}
	}
	for _, list := range u.providers {
		sortByPriority(list)
	}
	return nil
}
