package image

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/storage/erofs"
)

// Options are the parameters of an import. The zero value is usable.
type Options struct {
	// Name is the name of the image. If it is empty, Pull derives a name from the
	// reference, and the other importers give the image no name.
	Name string
	// KeepName refuses, with CodeNameTaken, a name that another image has.
	KeepName bool
	// Source is shown to people; the importers know a default, except for those
	// that read a stream.
	Source string
	// Config replaces the configuration that the input has.
	Config *Config
	Limits Limits
	// SquashOwners gives all files to root.
	SquashOwners bool
	// Select names an image of an archive with several images, as "name:tag".
	Select string
	// Progress is called from the importing goroutine, at most about ten times a
	// second.
	Progress func(api.Progress)
}

// unselected returns an error if an image is to be selected of an input that is one file system.
func (o *Options) unselected() error {
	if o.Select == "" {
		return nil
	}
	return api.Invalid("select", "%q is to be chosen among several images, and the input is one file system", o.Select)
}

// builder makes an image.
type builder struct {
	ctx      context.Context
	store    *Store
	opt      Options
	limits   Limits
	progress progress
	tree     *erofs.Tree
	writer   *erofs.Writer
	config   Config
	source   string
	pulled   string // digest of the configuration of a container image; "" if it is not kept
	total    int64  // bytes of contents so far
	xattrs   int64  // bytes of extended attributes so far
	devices  bool   // device nodes are stored
}

// build runs fill and makes an image of the tree that fill has built. After an error, nothing is
// left behind.
func (s *Store) build(ctx context.Context, opt Options, fill func(b *builder) error) (api.Image, error) {
	if opt.Name != "" {
		var err error
		if opt.Name, err = ParseName("name", opt.Name); err != nil {
			return api.Image{}, err
		}
	}
	f, err := s.files.NewTemp()
	if err != nil {
		return api.Image{}, importError(err)
	}
	defer s.files.Discard(f)
	b := newBuilder(ctx, s, opt, f)
	if err := fill(b); err != nil {
		return api.Image{}, fmt.Errorf("make image: %w", importError(err))
	}
	sum, err := b.finish()
	if err != nil {
		return api.Image{}, fmt.Errorf("make image: %w", importError(err))
	}
	b.progress.begin(PhaseSeal, sum.Size)
	digest, err := hashFile(ctx, f, sum.Size, b.progress.add)
	if err != nil {
		return api.Image{}, err
	}
	img, err := s.commit(f, digest, sum.Size, Meta{Name: b.opt.Name, KeepName: b.opt.KeepName, Source: b.source, Config: b.config, Container: b.pulled})
	if err != nil {
		return api.Image{}, err
	}
	b.progress.end()
	return img, nil
}

func newBuilder(ctx context.Context, s *Store, opt Options, f erofs.File) *builder {
	return &builder{
		ctx: ctx, store: s, opt: opt, limits: opt.Limits.withDefaults(), source: opt.Source,
		progress: progress{call: opt.Progress}, tree: erofs.NewTree(), writer: erofs.NewWriter(f),
	}
}

// finish completes the image.
func (b *builder) finish() (erofs.Summary, error) {
	if b.opt.Config != nil {
		b.config = *b.opt.Config
	}
	if b.tree.Empty() {
		return erofs.Summary{}, api.Errorf(api.CodeInvalid, "there are no files to make an image of")
	}
	if dir := b.config.WorkingDir; dir != "" {
		// Many builders set a working directory that no layer has. A command that starts in one
		// that cannot be made is refused when it starts.
		_ = b.tree.EnsureDirectory(dir)
	}
	return b.writer.Finish(b.tree, erofs.Options{UUID: b.config.UUID()})
}

// put stores n at path. Device nodes of archives are left out below /dev, because
// a sandbox has its own; elsewhere they are refused.
func (b *builder) put(path string, n *erofs.Node) error {
	if !b.devices && (n.Kind == erofs.CharDevice || n.Kind == erofs.BlockDevice) {
		clean, err := erofs.CleanPath(path)
		if err != nil || strings.HasPrefix(clean, "dev/") {
			return err
		}
		return refused("%q is a device: devices are allowed below /dev only", path)
	}
	if b.opt.SquashOwners {
		n.UID, n.GID = 0, 0
	}
	for _, x := range n.Xattrs {
		b.xattrs += int64(len(x.Name) + len(x.Value))
	}
	if b.xattrs > b.limits.XattrBytes {
		return refused("extended attributes have more than %d bytes", b.limits.XattrBytes)
	}
	if err := b.tree.Put(path, n); err != nil {
		return err
	}
	return b.checkEntries()
}

func (b *builder) link(path, target string) error {
	if err := b.tree.Link(path, target); err != nil {
		return err
	}
	return b.checkEntries()
}

func (b *builder) checkEntries() error {
	if b.tree.Created() > b.limits.Entries {
		return refused("there are more than %d files", b.limits.Entries)
	}
	return nil
}

// putFile stores a regular file with the contents of r. size is the announced size, so that a
// file that is too large is refused early.
func (b *builder) putFile(path string, n *erofs.Node, r io.Reader, size int64) error {
	if size > b.limits.FileBytes {
		return refused("%q has %d bytes: a file may have %d", path, size, b.limits.FileBytes)
	}
	data, err := b.writer.Store(&contents{b: b, path: path, r: r})
	if err != nil {
		return err
	}
	n.Data = data
	return b.put(path, n)
}

// contents reads a file within the limits.
type contents struct {
	b    *builder
	path string
	r    io.Reader
	n    int64
}

func (c *contents) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	c.b.total += int64(n)
	switch {
	case c.n > c.b.limits.FileBytes:
		return 0, refused("%q has more than the %d bytes that a file may have", c.path, c.b.limits.FileBytes)
	case c.b.total > c.b.limits.TotalBytes:
		return 0, refused("the files have more than %d bytes", c.b.limits.TotalBytes)
	case err != nil && err != io.EOF:
		return n, readError(err)
	}
	return n, err
}

// setTime stores t; the format has no times before 1970.
func setTime(n *erofs.Node, t time.Time) {
	if t.Unix() > 0 {
		n.MtimeSec, n.MtimeNsec = t.Unix(), uint32(t.Nanosecond())
	}
}
