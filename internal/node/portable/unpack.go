package portable

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/artefact"
	"ramet.dev/ramet/internal/network/secrets"
	"ramet.dev/ramet/internal/node/engines"
	"ramet.dev/ramet/internal/node/fsview"
	"ramet.dev/ramet/internal/node/networks"
	"ramet.dev/ramet/internal/node/reach"
	"ramet.dev/ramet/internal/node/snapdir"
	"ramet.dev/ramet/internal/node/snapshots"
	"ramet.dev/ramet/internal/service/access"
)

// blobs gives the blobs of an artefact. They match their digests, or reading them fails.
type blobs interface {
	Open(ctx context.Context, d artefact.Descriptor) (io.ReadCloser, error)
}

// Unpack makes a snapshot of the tar of an artefact.
func (p *Porter) Unpack(ctx context.Context, r io.Reader, req api.UnpackRequest) (_ *api.Snapshot, err error) {
	ctx, ended := p.cfg.Observe(ctx, "unpack")
	defer ended(&err)
	snap, err := p.unpack(ctx, r, req)
	if err != nil {
		return nil, fmt.Errorf("unpack: %w", noSpace(err))
	}
	return snap, nil
}

func (p *Porter) unpack(ctx context.Context, r io.Reader, req api.UnpackRequest) (*api.Snapshot, error) {
	if err := mayUnpack(ctx, req); err != nil {
		return nil, err
	}
	turn, err := p.cfg.Turn(ctx)
	if err != nil {
		return nil, err
	}
	defer turn()
	file, err := p.cfg.Spool()
	if err != nil {
		return nil, err
	}
	defer file.Close()
	a := &arrival{porter: p, req: req}
	defer a.end()
	archive, err := artefact.ReadArchive(ctx, r, artefact.ReadOptions{Spool: &spool{File: file}, Judge: func(h *artefact.Head) (map[string]bool, error) { return a.begin(ctx, h) }})
	if err != nil {
		return nil, err
	}
	return a.finish(ctx, archive)
}

func mayUnpack(ctx context.Context, req api.UnpackRequest) error {
	if err := access.From(ctx).MayMakeTree("snapshots"); err != nil {
		return err
	}
	return cmp.Or(api.ValidOptionalName("name", req.Name), ValidTrust(req.Trust))
}

// reserve is how much of a disk stays free, in bytes: a full one stops all sandboxes.
const reserve = 256 << 20

// room refuses bytes that a disk has no room for.
func room(f *os.File, bytes int64) error {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err != nil {
		return err
	}
	if free := int64(st.Bavail) * st.Bsize; free < bytes+reserve {
		return api.Errorf(api.CodeNoSpace, "the snapshot needs %d MiB of disk, %d MiB are free: make room", bytes>>20, max(0, free-reserve)>>20)
	}
	return nil
}

// spool is a file that leaves room on its disk.
type spool struct {
	*os.File
	unchecked int64
}

// checkEvery is how much is written between looks at the room on the disk.
const checkEvery = 16 << 20

// Write implements io.Writer.
func (s *spool) Write(p []byte) (int, error) {
	if s.unchecked -= int64(len(p)); s.unchecked < 0 {
		if err := room(s.File, checkEvery); err != nil {
			return 0, err
		}
		s.unchecked = checkEvery
	}
	return s.File.Write(p)
}

// arrival is a snapshot that is being unpacked.
type arrival struct {
	porter *Porter
	req    api.UnpackRequest

	head     *artefact.Head
	snapshot *snapshots.Snapshot // listed, and not ready
	names    []string            // of the parts here; empty for those that are to be written
	hasImage bool                // the caller sees the image already
	release  func()              // of the image
	brought  bool                // the image is new
	brings   bool                // its engine comes with it
	done     bool
}

// end takes back what was not finished.
func (a *arrival) end() {
	if a.snapshot != nil && !a.done {
		a.snapshot.Remove()
	}
	if a.release != nil {
		a.release()
		if a.brought && !a.done {
			a.porter.cfg.Images.Forget(a.head.Config.Image.ID)
		}
	}
}

// begin judges a snapshot, and reserves its name and the parts that are here. It returns the
// blobs that are not needed.
func (a *arrival) begin(ctx context.Context, h *artefact.Head) (skip map[string]bool, err error) {
	p, c := a.porter, h.Config
	a.head = h
	for _, keys := range [][]string{p.cfg.Trust, a.req.Trust} {
		if len(keys) == 0 {
			continue
		}
		if err := h.Trusted(keys); err != nil {
			return nil, err
		}
	}
	if err := c.Processor.Fits(runtime.GOARCH, os.Getpagesize(), snapshots.ProcessorFeatures()); err != nil {
		return nil, err
	}
	if err := a.judgeEngine(ctx); err != nil {
		return nil, err
	}
	rec, err := p.record(ctx, h, a.req)
	if err != nil {
		return nil, err
	}
	made, err := p.cfg.Admission.Admit(ctx, rec.Tenant(), rec.Ancestors, 0)
	if err != nil {
		return nil, err
	}
	defer made()
	a.release = p.cfg.Images.UseImage(c.Image.ID)
	img, err := p.cfg.Images.FindImage(ctx, c.Image.ID)
	a.hasImage = err == nil && img.Digest == c.Image.Digest
	_, comes := h.Blobs.Pages[c.Image.Key()]
	if !a.hasImage && !comes {
		return nil, api.Errorf(api.CodeNotFound, "the snapshot needs image %s, which is not here: pack it with the image", c.Image.ID)
	}
	if a.snapshot, err = p.cfg.Snapshots.Begin(*rec); err != nil {
		return nil, err
	}
	skip, wanted := map[string]bool{}, map[string]bool{}
	note := func(content string, here bool) {
		of := wanted
		if here {
			of = skip
		}
		pages := h.Blobs.Pages[content]
		of[pages.Frames.Digest], of[pages.Index.Digest] = true, true
	}
	a.names = make([]string, len(c.Parts))
	for i, part := range c.Parts {
		name := p.cfg.Snapshots.Share(ctx, a.snapshot, strings.TrimPrefix(part.Digest, "sha256:"), part.Size)
		if !slices.Contains(a.names, name) { // generations of a state differ in their names
			a.names[i] = name
		}
		note(part.Key(), a.names[i] != "")
	}
	if e := h.Blobs.Engine; e != nil && !a.brings {
		skip[e.Digest] = true
	}
	if comes {
		note(c.Image.Key(), a.hasImage)
	}
	for digest := range wanted {
		delete(skip, digest)
	}
	return skip, nil
}

// judgeEngine refuses a snapshot whose engine is neither here nor may come with it. An engine
// is a program that runs outside of sandboxes: only the owner of the daemon brings one, and
// only from somebody whose key is trusted.
func (a *arrival) judgeEngine(ctx context.Context) error {
	p, of := a.porter, &a.head.Config.Engine
	switch {
	case p.cfg.Engines.Knows(of.Name):
		return nil
	case a.head.Blobs.Engine == nil:
		return api.Errorf(api.CodeUnsupported, "the snapshot is for engine %q, this is %q: use the ramet that made it", of.Name, p.cfg.Engines.Own())
	case len(p.cfg.Trust)+len(a.req.Trust) == 0:
		return api.Errorf(api.CodeForbidden, "the snapshot brings its engine, a program: name the key of who signed it with --trust")
	}
	if err := access.From(ctx).OwnerOnly("brings engines"); err != nil {
		return err
	}
	a.brings = true
	return nil
}

// engine keeps the program that came with the snapshot.
func (a *arrival) engine(ctx context.Context, from blobs) error {
	if !a.brings {
		return nil
	}
	of := &a.head.Config.Engine
	blob, err := from.Open(ctx, *a.head.Blobs.Engine)
	if err != nil {
		return err
	}
	defer blob.Close()
	return a.porter.cfg.Engines.Add(engines.Program{Name: of.Name, Build: of.Build, Digest: strings.TrimPrefix(of.Sentry, "sha256:")}, func(w io.Writer) error {
		return artefact.ReadStream(ctx, w, blob, artefact.Content{Digest: of.Sentry, Size: of.Size})
	})
}

// record describes the snapshot as one of this machine. It begins a tree, in which it has a
// parent of its own: ids of other machines decide nothing here.
func (p *Porter) record(ctx context.Context, h *artefact.Head, req api.UnpackRequest) (*snapshots.Record, error) {
	c := h.Config
	from := &c.Sandbox
	name := cmp.Or(req.Name, c.Name)
	err := cmp.Or(
		api.ValidOptionalName("name", name), api.ValidEnv("env", from.Env), api.ValidMetadata("metadata", from.Metadata),
		api.ValidChildHostname(from.Hostname, false), api.ValidDir("working_dir", from.Cwd), validNetwork(from),
	)
	if err == nil && api.IsTemplateName(name) {
		err = api.Invalid("name", "%q is a name of templates that the daemon makes: give --name", name)
	}
	if err != nil {
		return nil, api.Errorf(api.CodeCorrupt, "the snapshot cannot be used here: %w", err)
	}
	if err := p.cfg.Limits(from.Limits); err != nil {
		return nil, fmt.Errorf("the limits of the snapshot: %w", err)
	}
	tenant, id, sandbox := access.From(ctx).Tenant, api.NewID(api.KindSnapshot), api.NewID(api.KindSandbox)
	net := reach.Network{Kept: reach.Kept{Placeholders: from.Placeholders}}
	if from.Network != nil && len(p.cfg.Trust)+len(req.Trust) > 0 { // else a stranger would say what programs reach, and with which secrets
		if net, err = p.cfg.Networks.Grant(ctx, networks.Owner{Tenant: tenant, Tree: sandbox}, &api.NetworkRequest{NetworkPolicy: *from.Network}, networks.Branch{}, net); err != nil {
			return nil, fmt.Errorf("the network of the snapshot: %w", err)
		}
	}
	source := api.Sandbox{
		ID: sandbox, Tenant: access.Recorded(tenant), Name: from.Name, State: api.StateDestroyed, Image: c.Image.ID, CreatedAt: c.CreatedAt, Limits: from.Limits,
		Env: from.Env, Cwd: from.Cwd, User: from.User, Metadata: from.Metadata, Network: net.Policy, TrustHostCA: from.TrustHostCA,
		Claimed:  slices.Sorted(maps.Keys(from.Metadata)), // by whoever made it: rules about access ignore it
		Identity: api.Identity{SandboxID: sandbox, Hostname: from.Hostname},
	}
	return &snapshots.Record{
		Snapshot: api.Snapshot{
			ID: id, Tenant: source.Tenant, Name: name, Sandbox: sandbox, Image: c.Image.ID, CreatedAt: time.Now().UTC(), OnDisk: true, Engine: c.Engine.Name,
			Metadata: from.Metadata, Claimed: source.Claimed, Origin: &api.SnapshotOrigin{Digest: h.Digest, Snapshot: c.ID, CreatedAt: c.CreatedAt},
		},
		Ancestors: []string{sandbox},
		History:   []fsview.ForkPoint{{Freeze: id, Line: id}},
		Source:    source, Reach: net.Kept, Architecture: c.Processor.Architecture, Processor: c.Processor.Features,
		Origin: &snapshots.Origin{Digest: h.Digest, Config: h.ConfigBytes},
	}, nil
}

// validNetwork refuses what no program of ours writes about a network.
func validNetwork(s *artefact.Sandbox) error {
	for name, placeholder := range s.Placeholders {
		if !secrets.IsName(name) || !secrets.IsPlaceholder(placeholder) {
			return api.Invalid("placeholders", "%q has none", name)
		}
	}
	if s.Network == nil {
		return nil
	}
	return s.Network.Valid()
}

// finish writes the snapshot, whose blobs are there or can be fetched, and makes it ready.
func (a *arrival) finish(ctx context.Context, from blobs) (*api.Snapshot, error) {
	dir, err := a.porter.cfg.Paths.Snapshot(a.snapshot.ID)
	if err != nil {
		return nil, err
	}
	in, err := snapdir.Receive(dir)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	if err := a.parts(ctx, in, from); err != nil {
		return nil, err
	}
	if err := a.image(ctx, from); err != nil {
		return nil, err
	}
	if err := a.state(ctx, in, from); err != nil {
		return nil, err
	}
	if err := a.engine(ctx, from); err != nil { // last: it stays until a daemon starts that finds nothing of it
		return nil, err
	}
	w, err := in.Put(a.needs())
	if err != nil {
		return nil, err
	}
	if err := a.porter.cfg.Snapshots.End(ctx, a.snapshot, w); err != nil {
		return nil, err
	}
	a.done = true
	a.snapshot.Note(ctx)
	v := a.snapshot.View()
	return &v, nil
}

// needs returns the snapshots that have parts of this one.
func (a *arrival) needs() (list []string) {
	for _, name := range a.names {
		if id, _, ok := snapdir.Owner(name); ok && id != a.snapshot.ID && !slices.Contains(list, id) {
			list = append(list, id)
		}
	}
	return list
}

// parts writes the parts that are not here.
func (a *arrival) parts(ctx context.Context, in *snapdir.Incoming, from blobs) error {
	for i, part := range a.head.Config.Parts {
		if a.names[i] != "" {
			continue
		}
		file := snapdir.PartFile(part.Kind == artefact.KindMemory, i)
		var written snapdir.Part
		err := a.pages(ctx, from, part.Content, func(frames io.Reader, x *artefact.Index) (err error) {
			written, err = in.Part(file, part.Size, func(write func(int64, []byte) error) error {
				return artefact.ReadPages(ctx, frames, x, write)
			})
			return err
		})
		if err != nil {
			return fmt.Errorf("part %d: %w", i, err)
		}
		if got := "sha256:" + written.Digest; got != part.Digest {
			return api.Errorf(api.CodeCorrupt, "part %d of the snapshot has digest %s, expected is %s", i, got, part.Digest)
		}
		a.names[i] = a.snapshot.ID + "/" + file
	}
	return nil
}

// pages opens a part or the image, once there is room for it.
func (a *arrival) pages(ctx context.Context, from blobs, of artefact.Content, read func(frames io.Reader, x *artefact.Index) error) error {
	p := a.head.Blobs.Pages[of.Key()]
	index, err := from.Open(ctx, p.Index)
	if err != nil {
		return err
	}
	x, err := artefact.ReadIndex(index, of.Size, p.Frames.Size)
	index.Close()
	if err != nil {
		return err
	}
	if err := a.porter.room(x.Bytes()); err != nil {
		return err
	}
	frames, err := from.Open(ctx, p.Frames)
	if err != nil {
		return err
	}
	defer frames.Close()
	return read(frames, x)
}

// room refuses bytes that the directory of snapshots has no room for.
func (p *Porter) room(bytes int64) error {
	dir, err := os.Open(p.cfg.Paths.Snapshots())
	if err != nil {
		return err
	}
	defer dir.Close()
	return room(dir, bytes)
}

// image adds the image unless it is here.
func (a *arrival) image(ctx context.Context, from blobs) error {
	if a.hasImage {
		return nil
	}
	c := &a.head.Config.Image
	if err := a.porter.room(c.Size); err != nil { // its holes are written, too
		return err
	}
	return a.pages(ctx, from, c.Content, func(frames io.Reader, x *artefact.Index) (err error) {
		whole := artefact.PagesReader(ctx, frames, x)
		defer whole.Close()
		a.brought, err = a.porter.cfg.Images.Bring(ctx, whole, &api.Image{ID: c.ID, Digest: c.Digest, SizeBytes: c.Size, Source: c.Source, ImageConfig: c.Config})
		return err
	})
}

// state writes the state, with its generations as they are called here.
func (a *arrival) state(ctx context.Context, in *snapdir.Incoming, from blobs) error {
	c := a.head.Config
	if err := a.porter.room(2 * c.State.Size); err != nil {
		return err
	}
	file, err := a.porter.cfg.Spool()
	if err != nil {
		return err
	}
	defer file.Close()
	blob, err := from.Open(ctx, a.head.Blobs.State)
	if err != nil {
		return err
	}
	defer blob.Close()
	if err := artefact.ReadStream(ctx, file, blob, c.State); err != nil {
		return err
	}
	state, err := snapdir.OpenForeignState(file)
	if err != nil {
		return api.Errorf(api.CodeCorrupt, "the state of the snapshot: %w", err)
	}
	defer state.Close()
	sizes := make([]int64, len(c.Parts))
	for i, part := range c.Parts {
		sizes[i] = part.Size
		if i < len(state.Snap.Generations) && state.Snap.Generations[i] != part.Key() {
			return api.Errorf(api.CodeCorrupt, "the state of the snapshot is of other parts than it says")
		}
	}
	return in.State(state, a.names, sizes)
}
