package image

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/image/choose"
)

// maxIndexDepth bounds indexes of indexes; docker save makes two.
const maxIndexDepth = 4

// Annotations with which programs name the images of an archive.
const (
	annotationRef  = "org.opencontainers.image.ref.name"
	annotationName = "io.containerd.image.name"
)

// readContainerArchive returns the only image of a, or the image that choice names.
func readContainerArchive(a archive, choice string) (*containerImage, error) {
	if has(a, "oci-layout") && has(a, "index.json") {
		return readOCI(a, choice)
	}
	return readDockerSave(a, choice)
}

// readOCI reads an OCI image layout.
func readOCI(a archive, choice string) (*containerImage, error) {
	raw, err := readDocumentOf(a, "index.json")
	if err != nil {
		return nil, err
	}
	desc, err := chooseManifest(a, raw, choice, maxIndexDepth)
	if err != nil {
		return nil, err
	}
	raw, err = readBlob(a, desc.Digest)
	if err != nil {
		return nil, err
	}
	manifest, err := v1.ParseManifest(bytes.NewReader(raw))
	if err != nil {
		return nil, corrupt("decode manifest %s: %w", desc.Digest, err)
	}
	raw, err = readBlob(a, manifest.Config.Digest)
	if err != nil {
		return nil, err
	}
	config, err := v1.ParseConfigFile(bytes.NewReader(raw))
	if err != nil {
		return nil, corrupt("decode configuration %s: %w", manifest.Config.Digest, err)
	}
	layers := make([]containerLayer, len(manifest.Layers))
	for i, l := range manifest.Layers {
		name, err := blobName(l.Digest)
		if err != nil {
			return nil, err
		}
		layers[i] = containerLayer{digest: l.Digest, size: l.Size, open: opener(a, name)}
	}
	return newContainerImage(config, layers, nameOf(&desc))
}

// chooseManifest returns the manifest of the wanted image for this machine.
func chooseManifest(a archive, rawIndex []byte, choice string, depth int) (v1.Descriptor, error) {
	index, err := v1.ParseIndexManifest(bytes.NewReader(rawIndex))
	if err != nil {
		return v1.Descriptor{}, corrupt("decode index: %w", err)
	}
	var found []v1.Descriptor
	var names, others []string
	for _, d := range index.Manifests {
		name := nameOf(&d)
		if !choose.Runs(&d) {
			others = append(others, d.Platform.String())
			continue
		}
		if !choose.IsImage(&d) {
			continue
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
		if choice != "" && name != "" && !sameName(name, choice) && d.Annotations[annotationRef] != choice {
			continue
		}
		if !slices.ContainsFunc(found, func(f v1.Descriptor) bool { return f.Digest == d.Digest }) {
			found = append(found, d)
		}
	}
	if !slices.ContainsFunc(found, func(d v1.Descriptor) bool { return nameOf(&d) != nameOf(&found[0]) }) {
		if found, err = choose.Best(found); err != nil {
			return v1.Descriptor{}, err
		}
	}
	switch {
	case len(found) > 1:
		return v1.Descriptor{}, ambiguous(names)
	case len(found) == 0 && choice != "" && len(names) > 0:
		return v1.Descriptor{}, api.Invalid("select", "archive has no image %q; it has %s", choice, strings.Join(names, ", "))
	case len(found) == 0 && len(others) > 0:
		return v1.Descriptor{}, api.Errorf(api.CodeUnsupported, "image is for %s: sandboxes run %s", strings.Join(others, ", "), choose.Platform)
	case len(found) == 0:
		return v1.Descriptor{}, corrupt("index lists no image")
	}
	d := found[0]
	if !d.MediaType.IsIndex() {
		return d, nil
	}
	if depth == 0 {
		return v1.Descriptor{}, refused("indexes are nested too deep")
	}
	raw, err := readBlob(a, d.Digest)
	if err != nil {
		return v1.Descriptor{}, err
	}
	inner, err := chooseManifest(a, raw, "", depth-1)
	if inner.Annotations[annotationName] == "" {
		inner.Annotations = d.Annotations // the outer entry carries the name
	}
	return inner, err
}

// nameOf returns the name of an image in an index, or "".
func nameOf(d *v1.Descriptor) string {
	return cmp.Or(d.Annotations[annotationName], d.Annotations[annotationRef])
}

// sameName compares the name of an image in an archive, which may be complete, with the name
// that a person typed.
func sameName(full, typed string) bool {
	return full == typed || strings.HasSuffix(full, "/"+typed)
}

// blobName returns where a layout keeps a blob. Digests come from the archive.
func blobName(h v1.Hash) (string, error) {
	if h.Algorithm != "sha256" || len(h.Hex) != 64 || strings.Trim(h.Hex, "0123456789abcdef") != "" {
		return "", api.Errorf(api.CodeUnsupported, "%q is not a sha256 digest", h.String())
	}
	return "blobs/sha256/" + h.Hex, nil
}

// readBlob returns a document that has the digest h.
func readBlob(a archive, h v1.Hash) ([]byte, error) {
	name, err := blobName(h)
	if err != nil {
		return nil, err
	}
	raw, err := readDocumentOf(a, name)
	if err != nil {
		return nil, err
	}
	v := newVerifier(bytes.NewReader(raw), h)
	if _, err := io.Copy(io.Discard, v); err != nil {
		return nil, err
	}
	return raw, v.verify("document")
}

func opener(a archive, name string) func(context.Context) (io.ReadCloser, error) {
	return func(context.Context) (io.ReadCloser, error) {
		f, _, err := a.open(name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, corrupt("archive has no %q", name)
		}
		return f, err
	}
}

// dockerManifest is an image in the manifest.json of docker save.
type dockerManifest struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// readDockerSave reads the format of docker save before it became an OCI layout.
// Layers have no digest of their own there: the configuration has the digests of their
// contents, and the configuration's name has its own digest.
func readDockerSave(a archive, choice string) (*containerImage, error) {
	raw, err := readDocumentOf(a, "manifest.json")
	if err != nil {
		return nil, err
	}
	var all, fit []dockerManifest
	if err := json.Unmarshal(raw, &all); err != nil {
		return nil, corrupt("decode manifest.json: %w", err)
	}
	var names []string
	for _, m := range all {
		names = append(names, m.RepoTags...)
		if choice == "" || slices.ContainsFunc(m.RepoTags, func(tag string) bool { return sameName(tag, choice) }) {
			fit = append(fit, m)
		}
	}
	switch {
	case len(all) == 0:
		return nil, corrupt("manifest.json lists no image")
	case len(fit) == 0:
		return nil, api.Invalid("select", "archive has no image %q; it has %s", choice, strings.Join(names, ", "))
	case len(fit) > 1:
		return nil, ambiguous(names)
	}
	m := fit[0]
	if raw, err = readDocumentOf(a, m.Config); err != nil {
		return nil, err
	}
	v := newVerifier(bytes.NewReader(raw), configDigest(m.Config))
	if _, err := io.Copy(io.Discard, v); err != nil {
		return nil, err
	}
	if err := v.verify("configuration"); err != nil {
		return nil, err
	}
	config, err := v1.ParseConfigFile(bytes.NewReader(raw))
	if err != nil {
		return nil, corrupt("decode configuration: %w", err)
	}
	layers := make([]containerLayer, len(m.Layers))
	for i, name := range m.Layers {
		layers[i] = containerLayer{open: opener(a, name)}
		if f, size, err := a.open(name); err == nil {
			layers[i].size = size
			f.Close()
		}
	}
	source := ""
	if len(m.RepoTags) > 0 {
		source = m.RepoTags[0]
	}
	return newContainerImage(config, layers, source)
}

// configDigest returns the digest in a configuration's file name: "HEX.json" or
// "sha256:HEX"; the zero Hash if there is none.
func configDigest(name string) v1.Hash {
	h := v1.Hash{Algorithm: "sha256", Hex: strings.TrimPrefix(strings.TrimSuffix(name, ".json"), "sha256:")}
	if i := strings.LastIndexByte(h.Hex, '/'); i >= 0 {
		h.Hex = h.Hex[i+1:]
	}
	if _, err := blobName(h); err != nil {
		return v1.Hash{}
	}
	return h
}
