package artefact

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"

	"ramet.dev/ramet/api"
)

// Version is the version of the format that this package writes and reads.
const Version = 1

// Bounds of what is read. maxDocument is the bound that registries have for manifests.
const (
	maxDocument = 4 << 20
	// MaxParts bounds the parts of a snapshot: the generations that one state can refer to.
	MaxParts = 128
	// MaxStateBytes bounds a state, which has the contents of /dev/shm in it.
	MaxStateBytes = 256 << 30
	// maxNames bounds lists of names.
	maxNames = 4096
)

// Kind says what the pages of a part are.
type Kind string

const (
	KindMemory Kind = "memory" // of processes
	KindFiles  Kind = "files"  // of the root file system's differences from the image
)

// Config describes a snapshot. It depends on the contents alone, not on how blobs are
// compressed or on which of them travel.
type Config struct {
	Version   int       `json:"version"`
	ID        string    `json:"id"` // of the snapshot where it was made
	Name      string    `json:"name,omitempty"`
	CreatedAt time.Time `json:"created_at"`
	Engine    Engine    `json:"engine"`
	Processor Processor `json:"processor"`
	Image     Image     `json:"image"`
	// State is the kernel's state. The generations in it are named by the keys of Parts.
	State Content `json:"state"`
	// Parts are the generations, in the order in which the state counts them.
	Parts []Part `json:"parts"`
	// Lineage has the ids of what the snapshot descends from, the frozen sandbox the last.
	Lineage []string `json:"lineage"`
	Sandbox Sandbox  `json:"sandbox"`
	// LeftOut has what the sandbox had and the snapshot does not bring, for people.
	LeftOut []string `json:"left_out,omitempty"`
}

// Engine is what can load the state.
type Engine struct {
	// Name names the form of the state: the version of gVisor and of Ramet's part of the state.
	Name string `json:"name"`
	// Build is the part of the name that the program reports.
	Build string `json:"build"`
	// Sentry is the digest of the program that the state is from, and Size its length.
	Sentry string `json:"sentry"`
	Size   int64  `json:"size"`
}

// maxEngineBytes bounds the program of an engine.
const maxEngineBytes = 1 << 30

// Processor is what a machine must have.
type Processor struct {
	Architecture string   `json:"architecture"` // as Go names it
	PageSize     int      `json:"page_size"`
	Features     []string `json:"features,omitempty"` // that the guest has seen
}

// Image is the image of the sandbox.
type Image struct {
	Content
	ID     string          `json:"id"`
	Source string          `json:"source,omitempty"` // for people
	Config api.ImageConfig `json:"config"`
}

// Content is a sequence of bytes before they are compressed.
type Content struct {
	Digest string `json:"digest"`
	Size   int64  `json:"size"`
}

// Key names the pages of a part, or the image: two parts without pages differ in their lengths.
func (c *Content) Key() string { return c.Digest + "@" + strconv.FormatInt(c.Size, 10) }

// Part is a generation: sparse pages, each at its place in the sandbox.
type Part struct {
	Kind Kind `json:"kind"`
	// Content has the digest of the pages that are not zero, and the length with holes.
	Content
}

// Sandbox is what a restored sandbox has besides its state.
type Sandbox struct {
	Name     string            `json:"name,omitempty"`
	Hostname string            `json:"hostname,omitempty"`
	Limits   api.Limits        `json:"limits"`
	Env      map[string]string `json:"env,omitempty"`
	Cwd      string            `json:"working_dir,omitempty"`
	User     string            `json:"user,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"`
	// Network is what it may reach; nil for nothing. Profiles in it are named, not copied.
	Network *api.NetworkPolicy `json:"network,omitempty"`
	// TrustHostCA is as of api.Sandbox.
	TrustHostCA *bool `json:"trust_host_ca,omitempty"`
	// Placeholders are what its programs have in place of secrets, by the names of these.
	Placeholders map[string]string `json:"placeholders,omitempty"`
	// SecretEnv has the names of variables whose values do not travel.
	SecretEnv []string `json:"secret_env,omitempty"`
}

// Encode returns the configuration as a blob: the same bytes for the same configuration.
func (c *Config) Encode() ([]byte, error) { return json.Marshal(c) }

// ParseConfig reads a configuration and checks all that does not depend on a machine.
func ParseConfig(b []byte) (*Config, error) {
	var c Config
	if err := decode(b, &c, &c.Version); err != nil {
		return nil, err
	}
	return &c, c.check()
}

// decode reads a document whose version must be known. version points into what v points to.
func decode(b []byte, v any, version *int) error {
	if len(b) > maxDocument {
		return hostile("a document of the snapshot has %d bytes: %d are allowed", len(b), maxDocument)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	if err := d.Decode(v); err != nil {
		return corrupt("a document of the snapshot is not valid JSON: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return corrupt("a document of the snapshot has data after its end")
	}
	if *version != Version {
		return api.Errorf(api.CodeUnsupported, "the snapshot has format version %d, this ramet reads %d: use a ramet that reads it", *version, Version)
	}
	return nil
}

var (
	digestForm = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
	wordForm   = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`)
)

// check refuses a configuration that no program of ours can have written.
func (c *Config) check() error {
	if err := c.Image.check("image", maxImageBytes); err != nil {
		return err
	}
	if err := c.State.check("state", MaxStateBytes); err != nil {
		return err
	}
	if len(c.Parts) > MaxParts {
		return hostile("the snapshot has %d parts: %d are allowed", len(c.Parts), MaxParts)
	}
	for i := range c.Parts {
		p := &c.Parts[i]
		if p.Kind != KindMemory && p.Kind != KindFiles {
			return corrupt("part %d of the snapshot is of unknown kind %q", i, cut(string(p.Kind)))
		}
		if err := p.check("a part", MaxPartBytes); err != nil {
			return err
		}
		if p.Size%PageSize != 0 {
			return corrupt("part %d of the snapshot does not consist of whole pages", i)
		}
	}
	switch {
	case !api.IsID(api.KindImage, c.Image.ID), c.Image.Size%PageSize != 0:
		return corrupt("the snapshot has no valid image")
	case !wordForm.MatchString(c.Processor.Architecture), c.Processor.PageSize <= 0:
		return corrupt("the snapshot does not say which processor it is for")
	case c.Engine.Name == "", len(c.Engine.Name) > 256, len(c.Engine.Build) > 256, !digestForm.MatchString(c.Engine.Sentry), c.Engine.Size <= 0, c.Engine.Size > maxEngineBytes:
		return corrupt("the snapshot does not say which engine it is for")
	}
	return c.checkLists()
}

func (c *Config) checkLists() error {
	for _, list := range [][]string{c.Processor.Features, c.Lineage, c.LeftOut, c.Sandbox.SecretEnv} {
		if len(list) > maxNames {
			return hostile("the snapshot has a list of %d names: %d are allowed", len(list), maxNames)
		}
	}
	for _, f := range c.Processor.Features {
		if !wordForm.MatchString(f) {
			return corrupt("the snapshot names an impossible processor feature %q", cut(f))
		}
	}
	seen := map[string]bool{}
	for _, id := range c.Lineage {
		if !api.IsID(api.KindSandbox, id) && !api.IsID(api.KindSnapshot, id) {
			return corrupt("the snapshot has an ancestor with the invalid id %q", cut(id))
		}
		if seen[id] || id == c.ID {
			return corrupt("the snapshot descends from %s in a loop", id)
		}
		seen[id] = true
	}
	if !api.IsID(api.KindSnapshot, c.ID) {
		return corrupt("the snapshot has an invalid id %q", cut(c.ID))
	}
	return nil
}

func (c *Content) check(what string, most int64) error {
	switch {
	case !digestForm.MatchString(c.Digest):
		return corrupt("%s of the snapshot has no valid digest", what)
	case c.Size <= 0:
		return corrupt("%s of the snapshot has %d bytes", what, c.Size)
	case c.Size > most:
		return hostile("%s of the snapshot has %d bytes: %d are allowed", what, c.Size, most)
	}
	return nil
}

// Fits refuses a snapshot that this machine cannot run. It needs no more than the
// configuration, so that it is called before anything large is fetched.
func (p *Processor) Fits(architecture string, pageSize int, features []string) error {
	switch {
	case p.Architecture != architecture:
		return api.Errorf(api.CodeUnsupported, "the snapshot is for %s, this machine is %s: use a machine of that architecture", p.Architecture, architecture)
	case p.PageSize != pageSize:
		return api.Errorf(api.CodeUnsupported, "the snapshot has pages of %d bytes, this machine of %d: use a machine like its own", p.PageSize, pageSize)
	}
	have := map[string]bool{}
	for _, f := range features {
		have[f] = true
	}
	var missing []string
	for _, f := range p.Features {
		if !have[f] {
			missing = append(missing, f)
		}
	}
	if len(missing) > 0 {
		return api.Errorf(api.CodeUnsupported, "this processor lacks %s, which the sandbox has seen: use a machine that has it", strings.Join(missing, ", "))
	}
	return nil
}

// cut bounds a text of others in an error.
func cut(s string) string { return s[:min(len(s), 64)] }

func corrupt(format string, args ...any) error {
	return api.Errorf(api.CodeCorrupt, format, args...)
}

func hostile(format string, args ...any) error {
	return api.Errorf(api.CodeHostile, format, args...)
}
