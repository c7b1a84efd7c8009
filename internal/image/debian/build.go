package debian

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

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
// Errors are *sandbox.Error and wrap one of the error types of this package
// where a cause is worth telling apart. After an error the stream is cut short
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
	c, err := openCache(dir)
	if err != nil {
		return nil, userError(err)
	}
	defer c.close()
	res, err := build(ctx, &opts, newFetcher(&opts, c), w)
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

func build(ctx context.Context, opts *Options, f *fetcher, w io.Writer) (*Result, error) {
	srcs, err := selectSources(opts)
	if err != nil {
		return nil, err
	}
	rels, err := fetchReleases(ctx, f, opts, srcs)
	if err != nil {
		return nil, err
	}
	u, err := loadUniverse(ctx, f, opts, rels)
	if err != nil {
		return nil, err
	}
	sel, err := resolve(u, opts.Include)
	if err != nil {
		return nil, err
	}
	pkgs := sel.order()
	res := &Result{Suite: opts.Suite, Arch: opts.Arch}
	for _, p := range pkgs {
		if p.digest.size > maxPackageFile {
			return nil, &LimitError{What: "size of package " + p.name, Limit: maxPackageFile}
		}
		res.Packages = append(res.Packages, Package{p.name, p.version, p.arch, p.digest.sha256, p.digest.size})
	}
	for _, r := range rels {
		res.Releases = append(res.Releases, Release{r.src.uri.Redacted(), r.src.suite, r.date, r.signer})
	}
	pctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	out := newRootWriter(pctx, w, opts, newest(rels))
	if err := out.begin(opts.Arch); err != nil {
		return nil, err
	}
	l := newLine(opts, f, pkgs)
	if err := l.run(pctx, cancel, out.addPackage); err != nil {
		return nil, err
	}
	plan := sel.plan(pkgs, func(p *pkg) bool { return out.preinst[p] })
	if err := out.end(opts.Arch, aptLines(opts, rels), plan); err != nil {
		return nil, err
	}
	if err := out.finish(); err != nil {
		return nil, err
	}
	res.TarBytes, res.Fetched, res.Cached = out.size, l.fetched, l.total-l.fetched
	return res, nil
}

// aptLines is the image's sources.list: empty unless asked for.
func aptLines(opts *Options, rels []*release) string {
	if !opts.KeepSources {
		return ""
	}
	var b strings.Builder
	for _, r := range rels {
		fmt.Fprintf(&b, "deb %s %s %s\n", r.src.uri.Redacted(), r.src.suite, strings.Join(r.src.components, " "))
	}
	return b.String()
}
