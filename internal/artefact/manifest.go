package artefact

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"strings"
)

// Media types of a snapshot's blobs.
const (
	ArtifactType = artifactPrefix + "v1"
	ConfigType   = "application/vnd.ramet.snapshot.config.v1+json"
	StateType    = "application/vnd.ramet.snapshot.state.v1+zstd"
	PagesType    = "application/vnd.ramet.snapshot.pages.v1+zstd"
	IndexType    = "application/vnd.ramet.snapshot.index.v1"
	EngineType   = "application/vnd.ramet.engine.v1+zstd"

	artifactPrefix = "application/vnd.ramet.snapshot."
	manifestType   = "application/vnd.oci.image.manifest.v1+json"
	indexesType    = "application/vnd.oci.image.index.v1+json"

	// contentKey annotates pages, and the index of pages, with the key of their content.
	contentKey = "dev.ramet.content"
	// maxLayers bounds the blobs of a manifest, those that this version does not know included.
	maxLayers = 4*MaxParts + 64
	// MaxBlobBytes bounds a blob.
	MaxBlobBytes = 1 << 42
)

// Descriptor names a blob.
type Descriptor struct {
	MediaType    string            `json:"mediaType"`
	Digest       string            `json:"digest"`
	Size         int64             `json:"size"`
	ArtifactType string            `json:"artifactType,omitempty"`
	Annotations  map[string]string `json:"annotations,omitempty"`
}

// Manifest names the blobs of a snapshot.
type Manifest struct {
	SchemaVersion int               `json:"schemaVersion"`
	MediaType     string            `json:"mediaType"`
	ArtifactType  string            `json:"artifactType"`
	Config        Descriptor        `json:"config"`
	Layers        []Descriptor      `json:"layers"`
	Subject       *Descriptor       `json:"subject,omitempty"` // of a signature
	Annotations   map[string]string `json:"annotations,omitempty"`
}

// Describe returns the descriptor of a manifest of a snapshot.
func Describe(manifest []byte) Descriptor {
	return Descriptor{MediaType: manifestType, ArtifactType: ArtifactType, Digest: Digest(manifest), Size: int64(len(manifest))}
}

// Pages is a part as it travels: its frames and their index.
type Pages struct{ Frames, Index Descriptor }

// Blobs are the blobs of a manifest by what they are.
type Blobs struct {
	State Descriptor
	// Pages has parts, and the image if it travels, by the keys of their contents.
	Pages map[string]Pages
	// Engine is nil unless the program that wrote the state travels.
	Engine *Descriptor
}

// digestOf writes a SHA-256 as descriptors have it.
func digestOf(sum []byte) string { return "sha256:" + hex.EncodeToString(sum) }

// Digest returns the digest of a document.
func Digest(b []byte) string {
	sum := sha256.Sum256(b)
	return digestOf(sum[:])
}

// NewManifest returns the manifest of a snapshot with some of its blobs, in the order of the
// configuration.
func NewManifest(c *Config, config Descriptor, blobs *Blobs) *Manifest {
	m := &Manifest{SchemaVersion: 2, MediaType: manifestType, ArtifactType: ArtifactType, Config: config, Layers: []Descriptor{blobs.State}}
	added := map[string]bool{}
	add := func(content string) {
		if p, ok := blobs.Pages[content]; ok && !added[content] {
			added[content] = true
			p.Index.Annotations = map[string]string{contentKey: content}
			p.Frames.Annotations = p.Index.Annotations
			m.Layers = append(m.Layers, p.Index, p.Frames)
		}
	}
	for i := range c.Parts {
		add(c.Parts[i].Key())
	}
	add(c.Image.Key())
	if blobs.Engine != nil {
		m.Layers = append(m.Layers, *blobs.Engine)
	}
	m.Annotations = map[string]string{"org.opencontainers.image.created": c.CreatedAt.UTC().Format("2006-01-02T15:04:05Z")}
	if c.Name != "" {
		m.Annotations["org.opencontainers.image.title"] = c.Name
	}
	return m
}

// Encode returns the manifest as a blob.
func (m *Manifest) Encode() ([]byte, error) { return json.Marshal(m) }

// IsSnapshot reports whether a manifest says that it is of a snapshot, of any version.
func IsSnapshot(manifest []byte) bool {
	var m struct {
		ArtifactType string `json:"artifactType"`
	}
	return json.Unmarshal(manifest, &m) == nil && strings.HasPrefix(m.ArtifactType, artifactPrefix)
}

// ParseManifest reads a manifest.
func ParseManifest(b []byte) (*Manifest, error) {
	var m Manifest
	version := Version
	if err := decode(b, &m, &version); err != nil {
		return nil, err
	}
	switch {
	case m.SchemaVersion != 2, m.MediaType != "" && m.MediaType != manifestType:
		return nil, corrupt("the snapshot has no valid OCI manifest")
	case m.ArtifactType != ArtifactType, m.Config.MediaType != ConfigType:
		return nil, corrupt("%q is not a snapshot of ramet: its type is %q", cut(m.Config.Digest), cut(m.ArtifactType))
	case len(m.Layers) > maxLayers:
		return nil, hostile("the snapshot has %d blobs: %d are allowed", len(m.Layers), maxLayers)
	}
	if err := m.Config.check(maxDocument); err != nil {
		return nil, err
	}
	for i := range m.Layers {
		if err := m.Layers[i].check(MaxBlobBytes); err != nil {
			return nil, err
		}
	}
	return &m, nil
}

func (d *Descriptor) check(most int64) error {
	switch {
	case !digestForm.MatchString(d.Digest):
		return corrupt("a blob of the snapshot has an invalid digest %q", cut(d.Digest))
	case d.Size < 0 || d.Size > most:
		return hostile("blob %s has %d bytes: %d are allowed", d.Digest, d.Size, most)
	}
	return nil
}

// Blobs returns the blobs that a configuration needs. Blobs of other types are for later
// versions. The image may be missing, all else must be there.
func (m *Manifest) Blobs(c *Config) (*Blobs, error) {
	b := &Blobs{Pages: map[string]Pages{}}
	sizes := map[string]int64{}
	for i := range m.Layers {
		d := m.Layers[i]
		if size, twice := sizes[d.Digest]; twice && size != d.Size {
			return nil, corrupt("blob %s has two sizes", d.Digest)
		}
		sizes[d.Digest] = d.Size
		content := d.Annotations[contentKey]
		p := b.Pages[content]
		switch d.MediaType {
		case StateType:
			if b.State.Digest != "" {
				return nil, corrupt("the snapshot has two states")
			}
			b.State = d
			continue
		case EngineType:
			b.Engine = &d
			continue
		case IndexType:
			if p.Index.Digest != "" {
				return nil, corrupt("the snapshot has two indexes of %s", cut(content))
			}
			p.Index = d
		case PagesType:
			if p.Frames.Digest != "" {
				return nil, corrupt("the snapshot has the pages of %s twice", cut(content))
			}
			p.Frames = d
		default:
			continue
		}
		b.Pages[content] = p
	}
	if b.State.Digest == "" {
		return nil, corrupt("the snapshot has no state")
	}
	need := map[string]bool{}
	for i := range c.Parts {
		need[c.Parts[i].Key()] = true
	}
	if _, ok := b.Pages[c.Image.Key()]; ok {
		need[c.Image.Key()] = true
	}
	for content := range need {
		if p := b.Pages[content]; p.Index.Digest == "" || p.Frames.Digest == "" {
			return nil, corrupt("the snapshot has no pages of %s", content)
		}
	}
	if len(b.Pages) != len(need) {
		return nil, corrupt("the snapshot has pages of %s parts, %s are its own", strconv.Itoa(len(b.Pages)), strconv.Itoa(len(need)))
	}
	return b, nil
}
