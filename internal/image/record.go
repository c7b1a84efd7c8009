package image

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"ramet.dev/ramet/api"
)

// formatVersion is raised when records or names change so that older programs
// must not read them.
const formatVersion = 1

// Config is what an image says about running it.
type Config struct {
	Env        []string `json:"env,omitempty"`
	Cmd        []string `json:"cmd,omitempty"`
	Entrypoint []string `json:"entrypoint,omitempty"`
	WorkingDir string   `json:"working_dir,omitempty"`
	User       string   `json:"user,omitempty"`
}

// uuid derives the UUID of an image's superblock.
func (c Config) uuid() (u [16]byte) {
	encoded, err := json.Marshal(c)
	if err != nil {
		panic(err) // strings always encode
	}
	sum := sha256.Sum256(encoded)
	copy(u[:], sum[:])
	return u
}

// record is the content of records/ID.json. It never changes.
type record struct {
	Version int       `json:"version"`
	Digest  string    `json:"digest"` // of the blob, hexadecimal
	Size    int64     `json:"size"`
	Created time.Time `json:"created"`
	Source  string    `json:"source,omitempty"`
	Config  Config    `json:"config"`
}

// names is the content of names.json.
type names struct {
	Version int               `json:"version"`
	Names   map[string]string `json:"names"` // canonical name, after its owner, to id
}

func idOf(digest [sha256.Size]byte) string {
	return api.EncodeID(api.KindImage, [10]byte(digest[:10]))
}

func (r record) image(id string, names []string) api.Image {
	return api.Image{
		ID: id, Names: names, Digest: "sha256:" + r.Digest, SizeBytes: r.Size, CreatedAt: r.Created, Source: r.Source,
		Env: r.Config.Env, Cmd: r.Config.Cmd, Entry: r.Config.Entrypoint, Cwd: r.Config.WorkingDir, User: r.Config.User,
	}
}

// readRecord returns the record of id, which must be well-formed. Errors:
// CodeNotFound, CodeCorrupt.
func (s *Store) readRecord(id string) (record, error) {
	var r record
	switch err := readDocument(s.recordPath(id), &r, &r.Version); {
	case errors.Is(err, fs.ErrNotExist):
		return record{}, api.NotFound("image", id)
	case err != nil:
		return record{}, err
	}
	digest, err := hex.DecodeString(r.Digest)
	if err != nil || len(digest) != sha256.Size || idOf([sha256.Size]byte(digest)) != id {
		return record{}, corrupt("record of image %s holds the digest %q", id, r.Digest)
	}
	return r, nil
}

func (s *Store) readNames() (names, error) {
	n := names{Version: formatVersion}
	if err := readDocument(s.path(namesFile), &n, &n.Version); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return names{}, err
	}
	if n.Names == nil {
		n.Names = map[string]string{}
	}
	return n, nil
}

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

// writeDocument replaces the file at path by v's JSON so that after a crash it
// is the old or the new one.
func writeDocument(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", filepath.Base(path), err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), tempPrefix)
	if err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(path), err)
	}
	defer os.Remove(f.Name()) // fails after the rename, which is right
	defer f.Close()
	if _, err := f.Write(append(b, '\n')); err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(path), err)
	}
	return publish(f, path, 0o600)
}

// publish gives the complete file f its final name. When it returns nil, the
// file survives a loss of power.
func publish(f *os.File, path string, mode os.FileMode) error {
	if err := f.Chmod(mode); err != nil {
		return fmt.Errorf("publish %s: %w", filepath.Base(path), err)
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("publish %s: %w", filepath.Base(path), err)
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return fmt.Errorf("publish %s: %w", filepath.Base(path), err)
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("sync directory %s: %w", path, err)
	}
	return nil
}
