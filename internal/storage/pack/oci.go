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
	"time"

	"github.com/klauspost/compress/gzip"
)

// Config is what an archive says about running its image.
type Config struct {
	Env        []string `json:"Env,omitempty"`
	Cmd        []string `json:"Cmd,omitempty"`
	Entrypoint []string `json:"Entrypoint,omitempty"`
	WorkingDir string   `json:"WorkingDir,omitempty"`
	User       string   `json:"User,omitempty"`
}

// Step is what made one layer, for people.
type Step struct {
	Created   time.Time `json:"created"`
	CreatedBy string    `json:"created_by,omitempty"`
	Comment   string    `json:"comment,omitempty"`
}

// Archive describes an archive of an image.
type Archive struct {
	// Name and Tag are what the image is to be called.
	Name, Tag string
	Config    Config
	// Base and Changes tell where the two layers come from.
	Base, Changes Step
	// Gzip compresses the layers.
	Gzip bool
}

// Types of what is in an archive, from the OCI image specification.
const (
	typeIndex     = "application/vnd.oci.image.index.v1+json"
	typeManifest  = "application/vnd.oci.image.manifest.v1+json"
	typeConfig    = "application/vnd.oci.image.config.v1+json"
	typeLayer     = "application/vnd.oci.image.layer.v1.tar"
	typeLayerGzip = "application/vnd.oci.image.layer.v1.tar+gzip"
)

// OCI writes a tar of an OCI image layout: the files of the image as one layer and
// the changes as another. It has what older versions of docker load look for, too.
// Names in it are digests and come before what they name, so the layers are
// written twice, the first time only to be hashed: nothing is kept on the disk.
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
	mediaType := typeLayer
	if a.Gzip {
		mediaType = typeLayerGzip
	}
	var diffIDs, paths []string
	var descriptors []descriptor
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
		descriptors = append(descriptors, descriptor{MediaType: mediaType, Digest: l.digest, Size: l.size})
		if write := l.write; a.Gzip {
			l.write = func(w io.Writer) error { return Gzip(w, write) }
		}
	}
	config := document(map[string]any{
		"created": a.Changes.Created, "architecture": "amd64", "os": "linux", "config": a.Config,
		"rootfs": map[string]any{"type": "layers", "diff_ids": diffIDs}, "history": []Step{a.Base, a.Changes},
	})
	manifest := document(map[string]any{
		"schemaVersion": 2, "mediaType": typeManifest, "layers": descriptors,
		"config": descriptor{MediaType: typeConfig, Digest: config.digest, Size: config.size},
	})
	index := document(map[string]any{
		"schemaVersion": 2, "mediaType": typeIndex, "manifests": []descriptor{{
			MediaType: typeManifest, Digest: manifest.digest, Size: manifest.size,
			Annotations: map[string]string{"org.opencontainers.image.ref.name": a.Tag, "io.containerd.image.name": "docker.io/library/" + a.Name + ":" + a.Tag},
		}},
	})
	old := document([]map[string]any{{"Config": config.path(), "RepoTags": []string{a.Name + ":" + a.Tag}, "Layers": paths}})
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

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// blob is a file of an archive.
type blob struct {
	digest string // "sha256:…"
	size   int64
	write  func(io.Writer) error
}

func (b *blob) path() string { return "blobs/sha256/" + b.digest[len("sha256:"):] }

// document returns a blob with v's JSON.
func document(v any) *blob {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // strings, numbers and times of this century always encode
	}
	sum := sha256.Sum256(text)
	return &blob{digest: "sha256:" + hex.EncodeToString(sum[:]), size: int64(len(text)), write: func(w io.Writer) error {
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

// meter counts and hashes what is written through it.
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

func (m *meter) digest() string { return "sha256:" + hex.EncodeToString(m.hash.Sum(nil)) }

// Gzip compresses what write writes.
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
