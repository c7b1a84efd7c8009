package manager

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/access"
	"ramet.dev/ramet/internal/cowfs"
	"ramet.dev/ramet/internal/image"
	"ramet.dev/ramet/internal/pack"
	"ramet.dev/ramet/internal/sandbox"
)

// Export writes the files of a sandbox or snapshot as they are at one moment. The
// sandbox goes on meanwhile.
func (m *Manager) Export(ctx context.Context, ref string, req sandbox.ExportRequest, w io.Writer) (err error) {
	ctx, ended := m.observe(ctx, "export")
	defer ended(&err)
	turn, err := m.heavy.Take(ctx, access.From(ctx).Tenant)
	if err != nil {
		return fmt.Errorf("export: %w", err)
	}
	defer turn()
	p, err := m.packing(ctx, ref)
	if err != nil {
		return fmt.Errorf("export: %w", err)
	}
	defer p.close()
	write := func(w io.Writer) error { return p.src.Layer(ctx, w) }
	switch req.Format {
	case sandbox.ExportLayer:
	case sandbox.ExportTar:
		write = func(w io.Writer) error { return p.src.Tar(ctx, w) }
	case sandbox.ExportOCI:
		return packError(p.src.OCI(ctx, w, p.archive(req.Gzip)))
	default:
		return sandbox.Invalid("format", "%q is not known: layer, oci and tar are", req.Format)
	}
	if req.Gzip {
		return packError(pack.Gzip(w, write))
	}
	return packError(write(w))
}

// Commit makes an image of the files of a sandbox or snapshot as they are at one
// moment. The sandbox goes on meanwhile.
func (m *Manager) Commit(ctx context.Context, ref string, req sandbox.CommitRequest, progress func(sandbox.Progress)) (_ *sandbox.Image, err error) {
	ctx, ended := m.observe(ctx, "commit")
	defer ended(&err)
	name, err := image.ParseName("name", req.Name)
	if err != nil {
		return nil, err
	}
	turn, err := m.heavy.Take(ctx, access.From(ctx).Tenant)
	if err != nil {
		return nil, fmt.Errorf("commit: %w", err)
	}
	defer turn()
	p, err := m.packing(ctx, ref)
	if err != nil {
		return nil, fmt.Errorf("commit: %w", err)
	}
	defer p.close()
	source := "commit of " + p.title
	if req.Message != "" {
		source += ": " + req.Message
	}
	config := image.Config{Env: p.image.Env, Cmd: p.image.Cmd, Entrypoint: p.image.Entry, WorkingDir: p.image.Cwd, User: p.image.User}
	if err := access.From(ctx).MayMakeTree("images"); err != nil {
		return nil, err
	}
	images, err := m.imagesFor(ctx)
	if err != nil {
		return nil, err
	}
	if !req.Replace {
		if err := images.CheckName(name, ""); err != nil { // before the work; Make looks again
			return nil, fmt.Errorf("commit: %w", err)
		}
	}
	img, err := images.Make(ctx, image.Options{Name: name, KeepName: !req.Replace, Source: source, Config: &config, Progress: progress}, func(d *image.Draft) error {
		return packError(p.src.Fill(ctx, d))
	})
	if err != nil {
		return nil, fmt.Errorf("commit: %w", err)
	}
	noteImage(ctx, img.ID)
	if b, err := m.resolve(ctx, p.id); err == nil { // else it was of a snapshot
		m.tellOf(sandbox.EventCommitted, b, sandbox.Event{Image: img.ID})
	}
	return &img, nil
}

// packing is a moment that is packed.
type packing struct {
	*moment
	src   pack.Source
	image sandbox.Image
	title string // of the sandbox or snapshot: its name, or its id
}

// packing pins the files that ref refers to, until close.
func (m *Manager) packing(ctx context.Context, ref string) (_ *packing, err error) {
	mo, err := m.look(ctx, ref)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			mo.close()
		}
	}()
	mo.undo = append(mo.undo, m.useImage(mo.image))
	p := &packing{moment: mo, title: ref}
	if p.image, err = m.images.Resolve(mo.image); err != nil {
		return nil, err
	}
	// Names are the caller's, who may have none for it any more.
	seen, err := m.findImage(ctx, mo.image)
	if err != nil && sandbox.CodeOf(err) != sandbox.CodeNotFound {
		return nil, err
	}
	p.image.Names = seen.Names
	p.src, err = m.sourceOf(mo)
	return p, err
}

// sourceOf returns what is packed of a moment, until that is closed.
func (m *Manager) sourceOf(mo *moment) (src pack.Source, err error) {
	data, err := m.mapImage(mo.image)
	if err != nil {
		return src, err
	}
	mo.undo = append(mo.undo, func() { _ = unix.Munmap(data) }) // its arguments are right
	base, err := cowfs.NewFiles(cowfs.OpenView(nil, 0), data)
	if err != nil {
		return src, sandbox.Errorf(sandbox.CodeCorrupt, "open image %s: %w", mo.image, err)
	}
	return pack.Source{Image: base, Files: mo.files, Keep: unasked}, nil
}

// archive describes an archive of what is packed. What a sandbox was given besides
// its image's configuration, its environment above all, stays out: it may be
// secret.
func (p *packing) archive(zipped bool) pack.Archive {
	base := p.image.ID
	if len(p.image.Names) > 0 {
		base = p.image.Names[0]
	}
	return pack.Archive{
		Name: p.title, Tag: "latest", Gzip: zipped,
		Config:  pack.Config{Env: p.image.Env, Cmd: p.image.Cmd, Entrypoint: p.image.Entry, WorkingDir: p.image.Cwd, User: p.image.User},
		Base:    pack.Step{Created: p.image.CreatedAt, CreatedBy: "ramet image " + base, Comment: p.image.Source},
		Changes: pack.Step{Created: p.at.UTC().Truncate(time.Second), CreatedBy: "ramet export " + p.title},
	}
}

// packError gives errors of packing a code.
func packError(err error) error {
	switch {
	case errors.Is(err, pack.ErrUnfit):
		return sandbox.Errorf(sandbox.CodeUnsupported, "%w", err)
	case errors.Is(err, pack.ErrLimit):
		return sandbox.Errorf(sandbox.CodeLimit, "%w", err)
	case cowfs.IsCorrupt(err):
		return sandbox.Errorf(sandbox.CodeCorrupt, "%w", err)
	}
	return err
}
