package image

import (
	"context"
	"io"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/storage/erofs"
)

// Draft is an image that is being made. Its user must return the errors of its methods.
type Draft struct{ b *builder }

// Make makes an image of the files that fill puts in the draft. It is bounded as imports are,
// with CodeLimit, but accepts device nodes: the files do not come from an untrusted archive. If
// fill fails, nothing is left, and its error is returned.
func (s *Store) Make(ctx context.Context, opt Options, fill func(*Draft) error) (api.Image, error) {
	img, err := s.build(ctx, opt, func(b *builder) error {
		b.devices = true
		b.progress.begin(PhasePack, 0)
		if err := fill(&Draft{b}); err != nil {
			return err
		}
		b.progress.end()
		return nil
	})
	if api.CodeOf(err) == api.CodeHostile {
		err = api.Errorf(api.CodeLimit, "%w", err)
	}
	return img, err
}

// Put stores n at path, which is relative to the root.
func (d *Draft) Put(path string, n *erofs.Node) error {
	if err := d.b.ctx.Err(); err != nil {
		return err
	}
	return d.b.put(path, n)
}

// PutFile stores a regular file with contents, whose size is known.
func (d *Draft) PutFile(path string, n *erofs.Node, contents io.Reader, size int64) error {
	d.b.progress.detail(path)
	return d.b.putFile(path, n, d.b.input(contents), size)
}

// Link makes path another name of the file at target.
func (d *Draft) Link(path, target string) error { return d.b.link(path, target) }
