package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/artefact"
	"ramet.dev/ramet/internal/image/registry"
)

// Options say on whose behalf a registry is asked.
type Options struct {
	// Anonymous does not use the credentials of this process's user, and tells nothing of what a
	// server has answered.
	Anonymous bool
}

func (o Options) remote(ctx context.Context) []remote.Option {
	var credentials authn.Keychain = authn.DefaultKeychain
	if o.Anonymous {
		credentials = authn.NewMultiKeychain() // it has none
	}
	return []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(credentials), remote.WithTransport(registry.Transport())}
}

// error gives an error of the registry's client a code.
func (o Options) error(ref string, err error) error {
	err = registry.Error("snapshot", ref, err)
	if o.Anonymous {
		return registry.WithoutAnswer("snapshot", ref, err)
	}
	return err
}

func parse(ref string) (name.Reference, error) {
	parsed, err := name.ParseReference(ref)
	if err != nil {
		return nil, api.Invalid("ref", "%q is not a reference: %w", ref, err)
	}
	return parsed, nil
}

// Name returns a reference in full, with its registry and tag.
func Name(ref string) (string, error) {
	parsed, err := parse(ref)
	if err != nil {
		return "", err
	}
	return parsed.Name(), nil
}

// Upload is a snapshot that is to be pushed.
type Upload struct {
	Manifest, Config []byte
	// Signature is of the manifest, and may be empty.
	Signature string
	Layers    []artefact.Descriptor
	Open      func(artefact.Descriptor) io.Reader
	// Sent is told of bytes that are sent, and of those that the registry has. It is called by
	// one goroutine at a time.
	Sent func(sent, had int64)
}

// Push sends the blobs that a repository lacks, and then the manifest, which gets a tag.
func Push(ctx context.Context, ref string, u Upload, opt Options) error {
	parsed, err := parse(ref)
	if err != nil {
		return err
	}
	tag, ok := parsed.(name.Tag)
	if !ok {
		return api.Invalid("ref", "%q is a digest: name a tag", ref)
	}
	with := opt.remote(ctx)
	config := artefact.Descriptor{MediaType: artefact.ConfigType, Digest: artefact.Digest(u.Config), Size: int64(len(u.Config))}
	open := func(d artefact.Descriptor) io.Reader {
		if d.Digest == config.Digest {
			return bytes.NewReader(u.Config)
		}
		return u.Open(d)
	}
	for _, d := range append([]artefact.Descriptor{config}, u.Layers...) {
		l := &layer{d: d, open: open}
		if err := remote.WriteLayer(tag.Context(), l, with...); err != nil {
			return opt.error(ref, fmt.Errorf("send a blob: %w", err))
		}
		if l.opened.Load() {
			u.Sent(d.Size, 0)
		} else {
			u.Sent(0, d.Size)
		}
	}
	if err := remote.Put(tag, manifest(u.Manifest), with...); err != nil || u.Signature == "" {
		return opt.error(ref, err)
	}
	return opt.error(ref, sign(tag.Context(), u, with))
}

// sign puts the signature of a manifest beside it, as an artifact that refers to it.
func sign(repo name.Repository, u Upload, with []remote.Option) error {
	none := artefact.Descriptor{MediaType: "application/vnd.oci.empty.v1+json", Digest: artefact.Digest([]byte(artefact.EmptyBlob)), Size: int64(len(artefact.EmptyBlob))}
	l := &layer{d: none, open: func(artefact.Descriptor) io.Reader { return strings.NewReader(artefact.EmptyBlob) }}
	if err := remote.WriteLayer(repo, l, with...); err != nil {
		return err
	}
	m := artefact.SignatureManifest(u.Signature, artefact.Describe(u.Manifest))
	return remote.Put(repo.Digest(artefact.Digest(m)), manifest(m), with...)
}

// signatures returns those that a registry has of a manifest. A registry that knows none, or
// cannot be asked for them, has none.
func (d *Download) signatures(ctx context.Context, digest string) (list []string) {
	index, err := remote.Referrers(d.repo.Digest(digest), d.opt.remote(ctx)...)
	if err != nil {
		return nil
	}
	m, err := index.IndexManifest()
	if err != nil {
		return nil
	}
	for _, r := range m.Manifests[:min(len(m.Manifests), maxSignatures)] {
		if s := r.Annotations[artefact.SignatureKey]; r.ArtifactType == artefact.SignatureType && s != "" {
			list = append(list, s)
		}
	}
	return list
}

// maxSignatures bounds the signatures of a snapshot that are looked at.
const maxSignatures = 64

// layer is a blob as the client of registries sees it.
type layer struct {
	d      artefact.Descriptor
	open   func(artefact.Descriptor) io.Reader
	opened atomic.Bool // its contents were asked for, because the registry lacks them
}

// The methods implement v1.Layer.

func (l *layer) Digest() (v1.Hash, error) { return v1.NewHash(l.d.Digest) }

func (l *layer) DiffID() (v1.Hash, error) { return l.Digest() }

func (l *layer) Compressed() (io.ReadCloser, error) {
	l.opened.Store(true)
	return io.NopCloser(l.open(l.d)), nil
}

func (l *layer) Uncompressed() (io.ReadCloser, error) {
	return nil, errors.New("it is not known how the blob is compressed")
}

func (l *layer) Size() (int64, error) { return l.d.Size, nil }

func (l *layer) MediaType() (types.MediaType, error) { return types.MediaType(l.d.MediaType), nil }

// manifest is a manifest as the client of registries sees it.
type manifest []byte

// RawManifest implements remote.Taggable.
func (m manifest) RawManifest() ([]byte, error) { return m, nil }

// MediaType implements partial.WithMediaType.
func (m manifest) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }

// Download is a snapshot in a registry. Its blobs are fetched when they are opened.
type Download struct {
	Head *artefact.Head
	ref  string
	repo name.Repository
	opt  Options
	read func(n int64)
}

// Pull fetches the documents of a snapshot, with its signatures if signed is set. read is told of the bytes of blobs that were
// fetched.
func Pull(ctx context.Context, ref string, signed bool, opt Options, read func(n int64)) (*Download, error) {
	parsed, err := parse(ref)
	if err != nil {
		return nil, err
	}
	got, err := remote.Get(parsed, opt.remote(ctx)...)
	if err != nil {
		return nil, opt.error(ref, err)
	}
	d := &Download{ref: ref, repo: parsed.Context(), opt: opt, read: read}
	m, err := artefact.ParseManifest(got.Manifest)
	if err != nil {
		if got.MediaType.IsIndex() || got.MediaType.IsImage() && !artefact.IsSnapshot(got.Manifest) {
			err = api.Errorf(api.CodeUnsupported, "%q is an image, not a snapshot: use 'ramet image pull'", ref)
		}
		return nil, err
	}
	blob, err := d.Open(ctx, m.Config)
	if err != nil {
		return nil, err
	}
	defer blob.Close()
	config, err := io.ReadAll(io.LimitReader(blob, m.Config.Size+1))
	if err != nil {
		return nil, opt.error(ref, err)
	}
	if d.Head, err = artefact.NewHead(got.Manifest, config); err != nil {
		return nil, err
	}
	if signed {
		d.Head.Signatures = d.signatures(ctx, d.Head.Digest)
	}
	return d, nil
}

// Open fetches a blob. Reading it fails if it does not match its digest.
func (d *Download) Open(ctx context.Context, of artefact.Descriptor) (io.ReadCloser, error) {
	l, err := remote.Layer(d.repo.Digest(of.Digest), d.opt.remote(ctx)...)
	if err != nil {
		return nil, d.opt.error(d.ref, err)
	}
	blob, err := l.Compressed()
	if err != nil {
		return nil, d.opt.error(d.ref, err)
	}
	return &body{blob, d}, nil
}

// body is a blob that is fetched.
type body struct {
	io.ReadCloser
	of *Download
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.of.read(int64(n))
	if err != nil && err != io.EOF {
		err = b.of.opt.error(b.of.ref, err)
	}
	return n, err
}
