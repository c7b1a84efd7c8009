package image

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/image/choose"
)

// containerImage is a container image of an archive or a registry.
type containerImage struct {
	config *v1.ConfigFile
	layers []containerLayer // the lowest first
	source string
}

// containerLayer is a layer. Its digests are trusted, its contents are not.
type containerLayer struct {
	digest v1.Hash // of the blob; zero if unknown
	diffID v1.Hash // of the tar in it
	size   int64   // of the blob, in bytes
	open   func(ctx context.Context) (io.ReadCloser, error)
}

// newContainerImage joins configuration and layers, which must fit.
func newContainerImage(config *v1.ConfigFile, layers []containerLayer, source string) (*containerImage, error) {
	if len(layers) > maxLayers {
		return nil, refused("image has %d layers: it may have %d", len(layers), maxLayers)
	}
	platform := choose.Platform
	if config.OS != "" && config.OS != platform.OS || config.Architecture != "" && config.Architecture != platform.Architecture {
		return nil, api.Errorf(api.CodeUnsupported, "image is for %s/%s: sandboxes run %s", config.OS, config.Architecture, platform)
	}
	if len(config.RootFS.DiffIDs) != len(layers) {
		return nil, corrupt("image has %d layers, its configuration lists %d", len(layers), len(config.RootFS.DiffIDs))
	}
	for i, id := range config.RootFS.DiffIDs {
		if id.Algorithm != "sha256" {
			return nil, api.Errorf(api.CodeUnsupported, "layer has a digest of the kind %q: only sha256 is supported", id.Algorithm)
		}
		layers[i].diffID = id
	}
	return &containerImage{config, layers, source}, nil
}

// container applies the layers of img, the lowest first.
func (b *builder) container(phase string, img *containerImage) error {
	b.config = configOf(&img.config.Config)
	if b.source == "" {
		b.source = img.source
	}
	total := int64(0)
	for _, l := range img.layers {
		total += l.size
	}
	b.progress.begin(phase, total)
	for i, l := range img.layers {
		if err := b.layer(l); err != nil {
			return fmt.Errorf("layer %d of %d: %w", i+1, len(img.layers), err)
		}
	}
	b.progress.end()
	return nil
}

// layer applies a layer and then compares it with its digests. The tree has the entries of the
// layer by then: if the digests differ, the whole import fails.
func (b *builder) layer(l containerLayer) error {
	blob, err := l.open(b.ctx)
	if err != nil {
		return err
	}
	defer blob.Close()
	compressed := newVerifier(blob, l.digest)
	in, err := decompress(b.input(compressed), b.limits)
	if err != nil {
		return err
	}
	defer in.close()
	plain := newVerifier(in, l.diffID)
	// The tar reader reads single blocks, which would slow down the digest.
	buffered := &stream{Reader: newBuffer(plain)}
	if _, err := b.applyTar(buffered, true); err != nil {
		return err
	}
	if err := buffered.drain(); err != nil {
		return err
	}
	if err := plain.verify("layer"); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, compressed); err != nil {
		return readError(err)
	}
	if err := compressed.verify("blob of layer"); err != nil {
		return err
	}
	return b.tree.NextLayer()
}

// verifier hashes the data that is read through it.
type verifier struct {
	r    io.Reader
	want v1.Hash
	hash hash.Hash
}

func newVerifier(r io.Reader, want v1.Hash) *verifier {
	return &verifier{r, want, sha256.New()}
}

func (v *verifier) Read(p []byte) (int, error) {
	n, err := v.r.Read(p)
	v.hash.Write(p[:n])
	return n, err
}

// verify compares the digest of the data with the expected one. No expected digest fits
// always.
func (v *verifier) verify(what string) error {
	sum := v.hash.Sum(nil)
	want, err := hex.DecodeString(v.want.Hex)
	if v.want == (v1.Hash{}) || v.want.Algorithm == "sha256" && err == nil && bytes.Equal(sum, want) {
		return nil
	}
	return corrupt("%s has digest sha256:%x, expected is %s", what, sum, v.want)
}
