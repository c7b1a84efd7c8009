package debian

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/image/debian/apt"
	"ramet.dev/ramet/internal/image/debian/archive"
	"ramet.dev/ramet/internal/image/debian/dpkg"
	"ramet.dev/ramet/internal/image/debian/fault"
	"ramet.dev/ramet/internal/image/debian/pkgcache"
	"ramet.dev/ramet/internal/image/debian/solve"
)

// maxPackageFile bounds the file of a package.
const maxPackageFile = 2 << 30

// Result describes what Build made.
type Result struct {
	Suite, Arch string
	Packages    []Package // in the order they were unpacked
	Releases    []Release
	TarBytes    int64 // length of the stream
	Fetched     int64 // bytes of packages that came over the network
	Cached      int64 // bytes of packages that the cache had
}

// Package is one package of the image.
type Package struct {
	Name, Version, Arch string
	SHA256              string // of the package file, lower-case hex
	Size                int64  // of the package file, bytes
}

// Release is one signed release that packages came from.
type Release struct {
	URL    string // of the archive, without a password
	Suite  string
	Date   time.Time
	Signer string // fingerprint of the primary key; "" with AllowUnsigned
}

// Build writes a root file system to w as a tar stream. It blocks until the
// stream is complete, reading from the network and from opts.CacheDir; w is
// written by the calling goroutine only. The stream depends on the archive's
// state and opts alone.
//
// Errors are *api.Error and wrap one of the types of package fault a cause is
// worth telling apart. After an error the stream is cut short
// and must be thrown away.
func Build(ctx context.Context, opts Options, w io.Writer) (*Result, error) {
	if err := opts.complete(); err != nil {
		return nil, err
	}
	opts.Progress = serialized(opts.Progress)
	dir := opts.CacheDir
	if dir == "" {
		tmp, err := os.MkdirTemp("", "ramet-debian-*")
		if err != nil {
			return nil, userError(err)
		}
		defer os.RemoveAll(tmp)
		dir = tmp
	}
	c, err := pkgcache.Open(dir)
	if err != nil {
		return nil, userError(err)
	}
	defer c.Close()
	res, err := build(ctx, &opts, archive.NewFetcher(opts.Client, opts.conf, c, opts.retryDelay), c, w)
	return res, userError(err)
}

// serialized lets one call of f through at a time; nil stays nil.
func serialized(f func(Progress)) func(Progress) {
	if f == nil {
		return nil
	}
	var mu sync.Mutex
	return func(p Progress) {
		mu.Lock()
		defer mu.Unlock()
		f(p)
	}
}

func build(ctx context.Context, opts *Options, f *archive.Fetcher, c *pkgcache.Cache, w io.Writer) (*Result, error) {
	query := apt.Query{HostRoot: opts.HostRoot, Mirror: opts.Mirror, Suite: opts.Suite, Arch: opts.Arch, Components: opts.Components}
	srcs, suite, err := apt.Select(query)
	if err != nil {
		return nil, err
	}
	rels, err := archive.FetchReleases(ctx, f, opts.trust(), suite, srcs, func(done, total int, suite string) {
		opts.report(PhaseRelease, int64(done), int64(total), suite)
	})
	if err != nil {
		return nil, err
	}
	available, err := archive.LoadIndexes(ctx, f, rels, opts.Arch, func(done, total int) {
		opts.report(PhaseIndex, int64(done), int64(total), "")
	})
	if err != nil {
		return nil, err
	}
	u, err := solve.NewUniverse(opts.Arch, suite, available)
	if err != nil {
		return nil, err
	}
	sel, err := solve.Resolve(u, opts.Include)
	if err != nil {
		return nil, err
	}
	pkgs := sel.Order()
	res := &Result{Suite: suite, Arch: opts.Arch}
	for _, p := range pkgs {
		if p.Digest.Size > maxPackageFile {
			return nil, &fault.LimitError{What: "size of package " + p.Name, Limit: maxPackageFile}
		}
		res.Packages = append(res.Packages, Package{p.Name, p.Version, p.Arch, p.Digest.SHA256, p.Digest.Size})
	}
	for _, r := range rels {
		res.Releases = append(res.Releases, Release{r.Source.URI.Redacted(), r.Source.Suite, r.Date, r.Signer})
	}
	pctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	out := dpkg.New(pctx, w, opts.Without, archive.Newest(rels))
	if err := out.Begin(opts.Arch); err != nil {
		return nil, err
	}
	l := newPipeline(opts, f, c, pkgs)
	if err := l.run(pctx, cancel, out.Add); err != nil {
		return nil, err
	}
	sources := dpkg.File{Path: "etc/apt/sources.list", Mode: 0o644, Text: aptLines(opts, rels)}
	plan := dpkg.File{Path: planFile, Mode: 0o644, Text: sel.Plan(pkgs, out.HasPreinst)}
	if err := out.End(opts.Arch, sources, plan); err != nil {
		return nil, err
	}
	if err := out.Finish(); err != nil {
		return nil, err
	}
	res.TarBytes, res.Fetched, res.Cached = out.Size(), l.fetched, l.total-l.fetched
	return res, nil
}

// aptLines is the image's sources.list: empty unless asked for.
func aptLines(opts *Options, rels []*archive.Release) string {
	if !opts.KeepSources {
		return ""
	}
	var b strings.Builder
	for _, r := range rels {
		fmt.Fprintf(&b, "deb %s %s %s\n", r.Source.URI.Redacted(), r.Source.Suite, strings.Join(r.Source.Components, " "))
	}
	return b.String()
}

// userError wraps err with the code that tells a user's program what to do
// about it; the typed error stays reachable through errors.As.
func userError(err error) error {
	if err == nil {
		return nil
	}
	code := api.CodeOf(err)
	if code == api.CodeInternal {
		code = fault.Code(err)
	}
	return api.Errorf(code, "build Debian root file system: %w", err)
}
