package pack

import (
	"archive/tar"
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"io"
	"runtime"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/gzip"
)

// Config has the command, environment and user of containers of the image.
type Config = v1.Config

// HealthConfig has the command by which containers are found healthy.
type HealthConfig = v1.HealthConfig

// Step describes for people how a layer was made.
type Step struct {
	Created            time.Time
	CreatedBy, Comment string
}

func (s Step) history() v1.History {
	return v1.History{Created: v1.Time{Time: s.Created}, CreatedBy: s.CreatedBy, Comment: s.Comment}
}

// Archive describes an archive of an image.
type Archive struct {
	// Name and Tag name the image.
	Name, Tag string
	Config    Config
	// Base and Changes describe the two layers.
	Base, Changes Step
	// Gzip compresses the layers.
	Gzip bool
}

// dockerManifest is an entry of manifest.json, the list of images that docker save
// writes.
type dockerManifest struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// OCI writes a tar of an OCI image layout: the files of the image as one layer and the
// changes as another. It also has the documents that older versions of docker load look
// for. Its names are digests and precede the named contents, so the layers are written
// twice, the first time only to be hashed: nothing is kept on the disk.
func (s *Source) OCI(ctx context.Context, w io.Writer, a Archive) error {
	if err := s.oci(ctx, w, &a); err != nil {
		return fmt.Errorf("pack archive: %w", err)
	}
	return nil
}

func (s *Source) oci(ctx context.Context, w io.Writer, a *Archive) error {
	base := Source{Image: s.Image, Files: s.Image}
	layers := []*blob{
		{write: func(w io.Writer) error { return base.bottom(ctx, w) }},
		{write: func(w io.Writer) error { return s.Layer(ctx, w) }},
	}
	mediaType := types.OCIUncompressedLayer
	if a.Gzip {
		mediaType = types.OCILayer
	}
	var diffIDs []v1.Hash
	var paths []string
	var descriptors []v1.Descriptor
	for _, l := range layers {
		plain, packed := newMeter(io.Discard), newMeter(io.Discard)
		if !a.Gzip {
			packed = plain
			if err := l.write(plain); err != nil {
				return err
			}
		} else if err := Gzip(packed, func(w io.Writer) error { plain.w = w; return l.write(plain) }); err != nil {
			return err
		}
		l.digest, l.size = packed.digest(), packed.n
		diffIDs = append(diffIDs, plain.digest())
		paths = append(paths, l.path())
		descriptors = append(descriptors, l.descriptor(mediaType))
		if write := l.write; a.Gzip {
			l.write = func(w io.Writer) error { return Gzip(w, write) }
		}
	}
	config := document(v1.ConfigFile{
		Created: v1.Time{Time: a.Changes.Created}, Architecture: runtime.GOARCH, OS: "linux", Config: a.Config,
		RootFS: v1.RootFS{Type: "layers", DiffIDs: diffIDs}, History: []v1.History{a.Base.history(), a.Changes.history()},
	})
	manifest := document(v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1, Config: config.descriptor(types.OCIConfigJSON), Layers: descriptors,
	})
	image := manifest.descriptor(types.OCIManifestSchema1)
	image.Annotations = map[string]string{"org.opencontainers.image.ref.name": a.Tag, "io.containerd.image.name": "docker.io/library/" + a.Name + ":" + a.Tag}
	index := document(v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex, Manifests: []v1.Descriptor{image}})
	old := document([]dockerManifest{{Config: config.path(), RepoTags: []string{a.Name + ":" + a.Tag}, Layers: paths}})
	layout := document(map[string]string{"imageLayoutVersion": "1.0.0"})
	out := tar.NewWriter(w)
	for _, f := range []struct {
		name string
		*blob
	}{
		{"oci-layout", layout}, {"index.json", index}, {"manifest.json", old},
		{config.path(), config}, {manifest.path(), manifest}, {layers[0].path(), layers[0]}, {layers[1].path(), layers[1]},
	} {
		if err := f.put(out, f.name); err != nil {
			return err
		}
	}
	return out.Close()
}

// blob is a file of an archive.
type blob struct {
	digest v1.Hash
	size   int64
	write  func(io.Writer) error
}

func (b *blob) path() string { return "blobs/" + b.digest.Algorithm + "/" + b.digest.Hex }

// descriptor returns a reference to the blob.
func (b *blob) descriptor(mediaType types.MediaType) v1.Descriptor {
	return v1.Descriptor{MediaType: mediaType, Digest: b.digest, Size: b.size}
}

// document returns a blob with v's JSON.
func document(v any) *blob {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // strings, numbers and times of this century always encode
	}
	m := newMeter(io.Discard)
	m.Write(text) // io.Discard takes everything
	return &blob{digest: m.digest(), size: m.n, write: func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	}}
}

// put writes the blob to an archive.
func (b *blob) put(out *tar.Writer, name string) error {
	if err := out.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: b.size}); err != nil {
		return err
	}
	m := newMeter(out)
	if err := b.write(m); err != nil {
		return err
	}
	if m.digest() != b.digest {
		return fmt.Errorf("layer %s has become %s while it was written", b.digest, m.digest())
	}
	return nil
}

// meter counts and hashes the bytes that are written through it.
type meter struct {
	w    io.Writer
	n    int64
	hash hash.Hash
}

func newMeter(w io.Writer) *meter { return &meter{w: w, hash: sha256.New()} }

// Write implements io.Writer.
func (m *meter) Write(p []byte) (int, error) {
	n, err := m.w.Write(p)
	m.n += int64(n)
	m.hash.Write(p[:n])
	return n, err
}

func (m *meter) digest() v1.Hash {
	return v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(m.hash.Sum(nil))}
}

// Gzip compresses the output of write.
func Gzip(w io.Writer, write func(io.Writer) error) error {
	z := gzip.NewWriter(w)
	// A tar comes in blocks of 512 bytes and less.
	in := bufio.NewWriterSize(z, pieceSize)
	if err := write(in); err != nil {
		return err
	}
	if err := in.Flush(); err != nil {
		return err
	}
	return z.Close()
}
