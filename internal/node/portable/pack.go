package portable

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/artefact"
	"ramet.dev/ramet/internal/engine/snapfile"
	"ramet.dev/ramet/internal/node/engines"
	"ramet.dev/ramet/internal/node/freezes"
	"ramet.dev/ramet/internal/node/memfiles"
	"ramet.dev/ramet/internal/node/networks"
	"ramet.dev/ramet/internal/node/quota"
	"ramet.dev/ramet/internal/node/reach"
	"ramet.dev/ramet/internal/node/snapdir"
	"ramet.dev/ramet/internal/node/snapshots"
	"ramet.dev/ramet/internal/service/access"
	"ramet.dev/ramet/internal/storage/hostfs"
	"ramet.dev/ramet/internal/storage/paths"
)

// Config is what a Porter works with.
type Config struct {
	Paths     paths.Paths
	Snapshots snapshots.Arrivals
	Freezes   *freezes.Table
	MemFiles  *memfiles.Table
	Images    Images
	Networks  Networks
	Admission *quota.Admission
	// Limits refuses limits of sandboxes that this machine cannot give.
	Limits func(api.Limits) error
	// Spool makes a file on disk without a name.
	Spool   func() (*os.File, error)
	Engines Engines
	// Trust are the keys one of which must have signed what arrives, whoever asks for it; empty
	// if nothing has to be signed.
	Trust []string
	// Turn waits until a heavy operation of the caller may begin.
	Turn func(ctx context.Context) (done func(), err error)
	// Observe is told of an operation that begins, and the result of its end.
	Observe func(ctx context.Context, operation string) (context.Context, func(*error))
	Log     *slog.Logger
}

// Images keeps images.
type Images interface {
	UseImage(id string) (release func())
	OpenImage(id string) (*os.File, error)
	// Describe returns an image, whoever sees it, and FindImage one that the caller sees.
	Describe(id string) (api.Image, error)
	FindImage(ctx context.Context, ref string) (api.Image, error)
	// Bring adds an image from elsewhere, and Forget removes one that nothing uses.
	Bring(ctx context.Context, r io.Reader, img *api.Image) (added bool, err error)
	Forget(id string)
}

// Engines are what can load a state here.
type Engines interface {
	Own() string
	Knows(name string) bool
	// Describe returns the program of an engine that is known, and Add keeps one of another.
	Describe(name string) (engines.Program, *os.File, error)
	Add(p engines.Program, fill func(io.Writer) error) error
}

// Networks decides what sandboxes may reach.
type Networks interface {
	Grant(ctx context.Context, of networks.Owner, req *api.NetworkRequest, branch networks.Branch, from reach.Network) (reach.Network, error)
}

// Porter packs and unpacks snapshots. It is safe for concurrent use.
type Porter struct {
	cfg    Config
	signer signer
}

// New returns a porter. Config.Trust must be valid.
func New(cfg Config) *Porter {
	return &Porter{cfg: cfg, signer: signer{path: cfg.Paths.SigningKey(), fs: hostfs.OS}}
}

// parcel is a snapshot that is to leave, with its files open.
type parcel struct {
	id     string
	config *artefact.Config
	// raw is the configuration as it travels.
	raw    []byte
	state  *os.File
	names  []string   // of the generations on this machine
	files  []*os.File // of the generations
	image  *os.File
	closes []func()
}

func (p *parcel) close() {
	for _, f := range slices.Backward(p.closes) {
		f()
	}
}

// open pins a snapshot on disk, and describes it.
func (p *Porter) open(ctx context.Context, ref string) (_ *parcel, err error) {
	s, err := p.cfg.Snapshots.Find(ctx, ref)
	if err != nil {
		return nil, err
	}
	switch v := s.View(); {
	case v.State != api.SnapshotReady:
		return nil, api.Errorf(api.CodeWrongState, "snapshot %s is %s, not ready: try again when it is", s.ID, v.State)
	case !v.OnDisk:
		return nil, api.Errorf(api.CodeWrongState, "snapshot %s is in memory only: take one that is on disk", s.ID)
	}
	f, err := s.Open(ctx)
	if err != nil {
		return nil, err
	}
	c := &parcel{id: s.ID, state: f.State, names: f.Generations, closes: []func(){func() { p.cfg.Freezes.Drop(f) }}}
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	if c.files, err = p.cfg.MemFiles.Files(c.names); err != nil {
		return nil, err
	}
	if err := p.visible(ctx, c); err != nil {
		return nil, err
	}
	rec := s.Record()
	c.closes = append(c.closes, p.cfg.Images.UseImage(rec.Source.Image))
	if c.image, err = p.cfg.Images.OpenImage(rec.Source.Image); err != nil {
		return nil, err
	}
	c.closes = append(c.closes, func() { c.image.Close() })
	if err := p.describe(ctx, c, &rec); err != nil {
		return nil, err
	}
	s.Note(ctx)
	return c, nil
}

// visible refuses a caller that is bound to a tree and does not see all snapshots whose parts would leave: parts are
// packed whole, with pages that this snapshot has no more.
func (p *Porter) visible(ctx context.Context, c *parcel) error {
	if !access.From(ctx).Bound() {
		return nil
	}
	for _, name := range c.names {
		id, _, ok := snapdir.Owner(name)
		if !ok || id == c.id {
			continue
		}
		if _, err := p.cfg.Snapshots.Find(ctx, id); err != nil {
			return api.Errorf(api.CodeForbidden, "snapshot %s has parts of one that this token does not see: use a token for the whole tenant", c.id)
		}
	}
	return nil
}

// describe fills in the configuration.
func (p *Porter) describe(ctx context.Context, c *parcel, rec *snapshots.Record) error {
	parts, err := p.parts(ctx, c)
	if err != nil {
		return err
	}
	if rec.Origin != nil {
		if known, err := artefact.ParseConfig(rec.Origin.Config); err == nil && slices.Equal(known.Parts, parts) { // else it was rewritten here
			c.config, c.raw = known, rec.Origin.Config
			return nil
		}
	}
	img, err := p.cfg.Images.Describe(rec.Source.Image)
	if err != nil {
		return err
	}
	program, file, err := p.cfg.Engines.Describe(rec.Snapshot.Engine)
	if err != nil {
		return err
	}
	defer file.Close()
	st, err := file.Stat()
	if err != nil {
		return err
	}
	source := &rec.Source
	c.config = &artefact.Config{
		Version: artefact.Version, ID: c.id, Name: rec.Snapshot.Name, CreatedAt: rec.Snapshot.CreatedAt,
		Engine:    artefact.Engine{Name: rec.Snapshot.Engine, Build: program.Build, Sentry: "sha256:" + program.Digest, Size: st.Size()},
		Processor: artefact.Processor{Architecture: runtime.GOARCH, PageSize: os.Getpagesize(), Features: rec.Processor},
		Image:     artefact.Image{ID: img.ID, Content: artefact.Content{Digest: img.Digest, Size: img.SizeBytes}, Source: img.Source, Config: img.ImageConfig},
		Parts:     parts, Lineage: rec.Ancestors,
		Sandbox: artefact.Sandbox{
			Name: source.Name, Hostname: source.Identity.Hostname, Limits: source.Limits, Env: source.Env, Cwd: source.Cwd, User: source.User, Metadata: source.Metadata,
			Network: source.Network, TrustHostCA: source.TrustHostCA, Placeholders: rec.Reach.Placeholders, SecretEnv: source.SecretEnv,
		},
		LeftOut: leftOut(rec),
	}
	if c.config.State, err = p.digestState(ctx, c); err != nil {
		return err
	}
	c.raw, err = c.config.Encode()
	return err
}

// leftOut lists what the sandbox had and the artefact does not.
func leftOut(rec *snapshots.Record) (list []string) {
	s := &rec.Source
	for _, v := range s.Volumes {
		list = append(list, "volume "+v.Volume+" at "+v.Path)
	}
	for _, name := range s.SecretEnv {
		list = append(list, "value of the secret variable "+name)
	}
	for _, name := range slices.Sorted(maps.Keys(rec.Reach.Placeholders)) {
		list = append(list, "value of the secret "+name)
	}
	for what, has := range map[string]bool{
		"certificate authority of its network": len(rec.Reach.Authority) > 0,
		"self-control":                         rec.Control != nil,
		"lifecycle":                            s.Lifecycle != nil,
		"automatic checkpoints":                s.AutoCheckpoint != nil,
		"held requests":                        rec.Reach.Hold != "",
	} {
		if has {
			list = append(list, what)
		}
	}
	slices.Sort(list)
	return list
}

// parts describes the generations of a snapshot.
func (p *Porter) parts(ctx context.Context, c *parcel) ([]artefact.Part, error) {
	parts := make([]artefact.Part, len(c.names))
	for i, name := range c.names {
		part, ok := p.cfg.Snapshots.Part(name)
		if !ok { // an earlier version of Ramet kept no digest
			st, err := c.files[i].Stat()
			if err != nil {
				return nil, err
			}
			part.Size = st.Size()
			if part.Digest, err = snapdir.PagesDigest(ctx, c.files[i]); err != nil {
				return nil, err
			}
		}
		kind := artefact.KindFiles
		if snapdir.IsMemory(name) {
			kind = artefact.KindMemory
		}
		parts[i] = artefact.Part{Kind: kind, Content: artefact.Content{Digest: "sha256:" + part.Digest, Size: part.Size}}
	}
	return parts, nil
}

// portable writes the state of a parcel to a spool as it travels: with its generations named
// by the keys of its parts.
func (p *Porter) portable(c *parcel, spool *os.File) (int64, error) {
	state, err := snapdir.OpenState(c.state)
	if err != nil {
		return 0, err
	}
	defer state.Close()
	names := make([]string, len(c.config.Parts))
	for i := range names {
		names[i] = c.config.Parts[i].Key()
	}
	if !slices.Equal(state.Snap.Generations, c.names) {
		return 0, api.Errorf(api.CodeCorrupt, "the state of snapshot %s is of other parts than it said: verify it", c.id)
	}
	state.Snap.Generations = names
	if _, err := spool.WriteAt(state.Pages(), snapfile.PagesOffset); err != nil {
		return 0, err
	}
	return state.Snap.WriteTo(spool)
}

// digestState returns the size and the digest of the state as it travels.
func (p *Porter) digestState(ctx context.Context, c *parcel) (artefact.Content, error) {
	spool, err := p.cfg.Spool()
	if err != nil {
		return artefact.Content{}, err
	}
	defer spool.Close()
	size, err := p.portable(c, spool)
	if err != nil {
		return artefact.Content{}, noSpace(err)
	}
	hash := sha256.New()
	if _, err := io.Copy(hash, io.NewSectionReader(spool, 0, size)); err != nil {
		return artefact.Content{}, err
	}
	return artefact.Content{Digest: "sha256:" + hex.EncodeToString(hash.Sum(nil)), Size: size}, nil
}

// Pack writes a snapshot to w as the tar of an artefact.
func (p *Porter) Pack(ctx context.Context, ref string, req api.PackRequest, w io.Writer) (err error) {
	ctx, ended := p.cfg.Observe(ctx, "pack")
	defer ended(&err)
	defer func() {
		if err != nil {
			err = fmt.Errorf("pack: %w", err)
		}
	}()
	turn, err := p.cfg.Turn(ctx)
	if err != nil {
		return err
	}
	defer turn()
	c, err := p.open(ctx, ref)
	if err != nil {
		return err
	}
	defer c.close()
	blobs, err := p.compress(ctx, c, carried{image: !req.WithoutImage, engine: req.WithEngine})
	if err != nil {
		return noSpace(err)
	}
	defer blobs.spool.Close()
	manifest, err := blobs.manifest(c)
	if err != nil {
		return err
	}
	signature, err := p.sign(ctx, req.Sign, manifest)
	if err != nil {
		return err
	}
	out, err := artefact.NewArchiveWriter(w, manifest, c.raw, signature)
	if err != nil {
		return err
	}
	for _, d := range blobs.order {
		if err := out.Add(d, blobs.open(d)); err != nil {
			return err
		}
	}
	return out.Close()
}

// packed is the blobs of a snapshot, one behind the other in a file without a name.
type packed struct {
	spool *os.File
	blobs artefact.Blobs
	at    map[string]int64 // offsets in spool, by digest
	order []artefact.Descriptor
	end   int64
}

func (b *packed) open(d artefact.Descriptor) io.Reader {
	return io.NewSectionReader(b.spool, b.at[d.Digest], d.Size)
}

func (b *packed) manifest(c *parcel) ([]byte, error) {
	config := artefact.Descriptor{MediaType: artefact.ConfigType, Digest: artefact.Digest(c.raw), Size: int64(len(c.raw))}
	return artefact.NewManifest(c.config, config, &b.blobs).Encode()
}

// add appends what write writes as a blob.
func (b *packed) add(mediaType string, write func(io.Writer) error) (artefact.Descriptor, error) {
	hash := sha256.New()
	out := io.NewOffsetWriter(b.spool, b.end)
	if err := write(io.MultiWriter(out, hash)); err != nil {
		return artefact.Descriptor{}, err
	}
	size, err := out.Seek(0, io.SeekCurrent)
	if err != nil {
		return artefact.Descriptor{}, err
	}
	d := artefact.Descriptor{MediaType: mediaType, Digest: "sha256:" + hex.EncodeToString(hash.Sum(nil)), Size: size}
	if _, has := b.at[d.Digest]; !has {
		b.at[d.Digest] = b.end
		b.order = append(b.order, d)
		b.end += size
	}
	return d, nil
}

// compress makes the blobs of a snapshot: the small ones first.
func (p *Porter) compress(ctx context.Context, c *parcel, with carried) (_ *packed, err error) {
	b := &packed{at: map[string]int64{}, blobs: artefact.Blobs{Pages: map[string]artefact.Pages{}}}
	if b.spool, err = p.cfg.Spool(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			b.spool.Close()
		}
	}()
	state, err := p.cfg.Spool()
	if err != nil {
		return nil, err
	}
	defer state.Close()
	size, err := p.portable(c, state)
	if err != nil {
		return nil, err
	}
	b.blobs.State, err = b.add(artefact.StateType, func(w io.Writer) error {
		return artefact.WriteStream(ctx, w, io.NewSectionReader(state, 0, size))
	})
	if err != nil {
		return nil, err
	}
	for i := range c.config.Parts {
		if err := b.pages(ctx, c.config.Parts[i].Content, c.files[i]); err != nil {
			return nil, err
		}
	}
	if with.image {
		if err := b.pages(ctx, c.config.Image.Content, c.image); err != nil {
			return nil, err
		}
	}
	if with.engine {
		if err := p.engine(ctx, c, b); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// carried says what travels besides the state and the parts.
type carried struct{ image, engine bool }

// engine adds the program that loads the state.
func (p *Porter) engine(ctx context.Context, c *parcel, b *packed) error {
	of := &c.config.Engine
	program, file, err := p.cfg.Engines.Describe(of.Name)
	if err != nil {
		return err
	}
	defer file.Close()
	if "sha256:"+program.Digest != of.Sentry {
		return api.Errorf(api.CodeUnsupported, "the engine %s that came with the snapshot is not here: pack it without the engine", of.Sentry)
	}
	d, err := b.add(artefact.EngineType, func(w io.Writer) error { return artefact.WriteStream(ctx, w, file) })
	b.blobs.Engine = &d
	return err
}

// pages adds a part, or the image.
func (b *packed) pages(ctx context.Context, of artefact.Content, f *os.File) (err error) {
	if _, has := b.blobs.Pages[of.Key()]; has {
		return nil
	}
	var index *artefact.Index
	var p artefact.Pages
	p.Frames, err = b.add(artefact.PagesType, func(w io.Writer) (err error) {
		index, err = artefact.WritePages(ctx, w, f, of.Size)
		return err
	})
	if err != nil {
		return err
	}
	p.Index, err = b.add(artefact.IndexType, func(w io.Writer) error {
		_, err := w.Write(index.Encode())
		return err
	})
	b.blobs.Pages[of.Key()] = p
	return err
}

// PackContents says what a pack of a snapshot would take along, and what it leaves here.
func (p *Porter) PackContents(ctx context.Context, ref string) (_ *api.PackContents, err error) {
	turn, err := p.cfg.Turn(ctx)
	if err != nil {
		return nil, err
	}
	defer turn()
	c, err := p.open(ctx, ref)
	if err != nil {
		return nil, fmt.Errorf("pack: %w", err)
	}
	defer c.close()
	of := &c.config.Sandbox
	out := &api.PackContents{
		Snapshot: c.id, Image: c.config.Image.ID, Engine: c.config.Engine.Name, Architecture: c.config.Processor.Architecture,
		Env: slices.Sorted(maps.Keys(of.Env)), Secrets: slices.Sorted(maps.Keys(of.Placeholders)), Network: of.Network, LeftOut: c.config.LeftOut,
		Parts: []api.PackPart{{Kind: "state", Digest: c.config.State.Digest, SizeBytes: c.config.State.Size}},
	}
	for i, part := range c.config.Parts {
		id, _, _ := snapdir.Owner(c.names[i])
		out.Parts = append(out.Parts, api.PackPart{Kind: string(part.Kind), Snapshot: id, Digest: part.Digest, SizeBytes: allocated(c.files[i])})
	}
	out.Parts = append(out.Parts, api.PackPart{Kind: "image", Digest: c.config.Image.Digest, SizeBytes: c.config.Image.Size})
	return out, nil
}

// allocated returns how many bytes of a sparse file take up space.
func allocated(f *os.File) int64 {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return 0
	}
	return st.Blocks * 512
}

// noSpace gives the error of a full disk its code.
func noSpace(err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return api.Errorf(api.CodeNoSpace, "the disk of the daemon is full: %w", err)
	}
	return err
}
