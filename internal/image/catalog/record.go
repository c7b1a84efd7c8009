package catalog

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"ramet.dev/ramet/api"
)

// formatVersion is raised when records or names change so that older programs
// must not read them.
const formatVersion = 1

// Config is the configuration of an image. Its encoding decides the UUID of the image: a new field is left out of
// it while it is empty.
type Config struct {
	Env         []string          `json:"env,omitempty"`
	Cmd         []string          `json:"cmd,omitempty"`
	Entrypoint  []string          `json:"entrypoint,omitempty"`
	WorkingDir  string            `json:"working_dir,omitempty"`
	User        string            `json:"user,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Ports       []string          `json:"exposed_ports,omitempty"`
	VolumePaths []string          `json:"volume_paths,omitempty"`
	StopSignal  string            `json:"stop_signal,omitempty"`
	Healthcheck *api.Healthcheck  `json:"healthcheck,omitempty"`
}

// UUID derives the UUID of an image's superblock.
func (c Config) UUID() (u [16]byte) {
	encoded, err := json.Marshal(c)
	if err != nil {
		panic(err) // strings always encode
	}
	sum := sha256.Sum256(encoded)
	copy(u[:], sum[:])
	return u
}

// Record is the content of records/ID.json. Nothing of it changes but Containers.
type Record struct {
	Version int       `json:"version"`
	Digest  string    `json:"digest"` // of the blob, hexadecimal
	Size    int64     `json:"size"`
	Created time.Time `json:"created"`
	Source  string    `json:"source,omitempty"`
	Config  Config    `json:"config"`
	// Containers has the digests of the configurations of container images that were pulled as this
	// image, the latest first. A configuration names the contents of all layers.
	Containers []string `json:"containers,omitempty"`
}

// maxContainers bounds Record.Containers: images that are built anew have another configuration and
// may have the same files.
const maxContainers = 16

// with returns the record with further containers, and whether they are new.
func (r Record) with(containers []string) (Record, bool) {
	more := slices.DeleteFunc(slices.Clone(containers), func(c string) bool { return slices.Contains(r.Containers, c) })
	if len(more) == 0 {
		return r, false
	}
	more = append(more, r.Containers...)
	r.Containers = more[:min(len(more), maxContainers)]
	return r, true
}

// Names is the content of names.json.
type Names struct {
	Version int               `json:"version"`
	Names   map[string]string `json:"names"` // canonical name, after its owner, to id
}

// ID returns the id of an image whose file has a digest.
func ID(digest [sha256.Size]byte) string {
	return api.EncodeID(api.KindImage, [10]byte(digest[:10]))
}

// Record returns the record of id, which must be well-formed. Errors:
// CodeNotFound, CodeCorrupt.
func (c *Catalog) Record(id string) (Record, error) {
	var r Record
	switch err := readDocument(c.recordPath(id), &r, &r.Version); {
	case errors.Is(err, fs.ErrNotExist):
		return Record{}, api.NotFound("image", id)
	case err != nil:
		return Record{}, err
	}
	digest, err := hex.DecodeString(r.Digest)
	if err != nil || len(digest) != sha256.Size || ID([sha256.Size]byte(digest)) != id {
		return Record{}, corrupt("record of image %s holds the digest %q", id, r.Digest)
	}
	return r, nil
}

// Names returns all names. Errors: CodeCorrupt, CodeUnsupported.
func (c *Catalog) Names() (Names, error) {
	n := Names{Version: formatVersion}
	if err := readDocument(c.path(namesFile), &n, &n.Version); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Names{}, err
	}
	if n.Names == nil {
		n.Names = map[string]string{}
	}
	return n, nil
}

// readDocument decodes the file at path. version points into what into points to.
func readDocument(path string, into any, version *int) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, into); err != nil {
		return corrupt("decode %s: %w", filepath.Base(path), err)
	}
	if *version != formatVersion {
		return api.Errorf(api.CodeUnsupported, "%s has format version %d: this program knows %d", filepath.Base(path), *version, formatVersion)
	}
	return nil
}

func corrupt(format string, args ...any) error {
	return api.Errorf(api.CodeCorrupt, format, args...)
}
