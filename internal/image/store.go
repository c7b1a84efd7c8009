package image

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"ramet.dev/ramet/api"
)

const (
	blobsDir   = "blobs"
	recordsDir = "records"
	namesFile  = "names.json"
	blobSuffix = ".erofs"
	tempPrefix = ".tmp-"
)

// Store is a directory of images. Several processes may use one directory. All
// methods are safe for concurrent use.
type Store struct {
	dir    string
	prefix string // of the names that are seen
	named  bool   // images without one of them are not seen,
	// unless nameless is set and nobody has a name for them.
	nameless bool
	everyone bool // what images are called by others is told
}

// Open returns the store in dir, which it makes if needed, and removes what
// crashed imports left there. It waits while another process changes the store.
func Open(dir string) (*Store, error) {
	s := &Store{dir: dir}
	for _, d := range []string{dir, s.path(blobsDir), s.path(recordsDir)} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, fmt.Errorf("make image store: %w", err)
		}
	}
	if err := s.locked(s.collect); err != nil {
		return nil, fmt.Errorf("open image store: %w", err)
	}
	return s, nil
}

// collect removes temporary files that no process holds, and blobs without a
// record: a removal or an import was cut short. The store must be locked.
func (s *Store) collect() error {
	for _, dir := range []string{s.dir, s.path(recordsDir)} { // documents are written under the store's lock
		if err := removeTemps(dir); err != nil {
			return err
		}
	}
	entries, err := os.ReadDir(s.path(blobsDir))
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := s.path(blobsDir, e.Name())
		digest, isBlob := strings.CutSuffix(e.Name(), blobSuffix)
		switch {
		case strings.HasPrefix(e.Name(), tempPrefix):
			if err := removeUnlocked(path); err != nil {
				return err
			}
		case isBlob:
			sum, err := hex.DecodeString(digest)
			if err != nil || len(sum) != sha256.Size {
				continue // not ours
			}
			if _, err := os.Lstat(s.recordPath(idOf([sha256.Size]byte(sum)))); errors.Is(err, fs.ErrNotExist) {
				if err := os.Remove(path); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func removeTemps(dir string) error {
	left, err := filepath.Glob(filepath.Join(dir, tempPrefix+"*"))
	if err != nil {
		return err
	}
	for _, path := range left {
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	return nil
}

func removeUnlocked(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // its import has just ended
	}
	if err != nil {
		return err
	}
	defer f.Close()
	free, err := lockFile(f, false)
	if err != nil || !free {
		return err
	}
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// List returns all images that are seen, newest first.
func (s *Store) List() ([]api.Image, error) {
	n, err := s.readNames()
	if err != nil {
		return nil, err
	}
	ids, err := s.ids("")
	if err != nil {
		return nil, err
	}
	out := []api.Image{}
	for _, id := range ids {
		r, err := s.readRecord(id)
		if api.CodeOf(err) == api.CodeNotFound {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		if img, err := s.visible(r, n, id, id); err == nil {
			out = append(out, img)
		}
	}
	slices.SortFunc(out, func(a, b api.Image) int {
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	return out, nil
}

// ids returns the ids with the given prefix.
func (s *Store) ids(prefix string) ([]string, error) {
	entries, err := os.ReadDir(s.path(recordsDir))
	if err != nil {
		return nil, fmt.Errorf("list images: %w", err)
	}
	var out []string
	for _, e := range entries {
		id, ok := strings.CutSuffix(e.Name(), ".json")
		if ok && api.IsID(api.KindImage, id) && strings.HasPrefix(id, prefix) {
			out = append(out, id)
		}
	}
	return out, nil
}

// Resolve returns the image that ref means: an id, an unambiguous beginning of
// one (8 characters or more, "img_" included) or a name. Errors: CodeNotFound,
// CodeInvalid, CodeConflict if ref is ambiguous.
func (s *Store) Resolve(ref string) (api.Image, error) {
	img, _, err := s.resolve(ref)
	return img, err
}

// resolve also returns the name that ref is, or "".
func (s *Store) resolve(ref string) (img api.Image, name string, err error) {
	n, err := s.readNames()
	if err != nil {
		return api.Image{}, "", err
	}
	id := ref
	switch {
	case api.IsID(api.KindImage, ref):
	case idPrefixPattern.MatchString(ref) && len(ref) >= minPrefixLen:
		ids, err := s.ids(ref)
		if err != nil {
			return api.Image{}, "", err
		}
		ids = slices.DeleteFunc(ids, func(id string) bool {
			_, err := s.visible(record{}, n, id, id)
			return err != nil
		})
		if len(ids) > 1 {
			return api.Image{}, "", api.Errorf(api.CodeConflict, "%q is the beginning of %d image ids: %s", ref, len(ids), strings.Join(ids, ", "))
		}
		if len(ids) == 1 {
			id = ids[0]
		}
	default:
		if name, err = ParseName("image", ref); err != nil {
			return api.Image{}, "", err
		}
		id = n.Names[s.key(name)]
	}
	if !api.IsID(api.KindImage, id) {
		return api.Image{}, "", api.NotFound("image", ref)
	}
	r, err := s.readRecord(id)
	if err != nil {
		return api.Image{}, "", err
	}
	img, err = s.visible(r, n, id, ref)
	return img, name, err
}

// Path returns the path of the image's file. The file never changes; whoever has
// it open keeps it when the image is removed. Errors as of Resolve.
func (s *Store) Path(id string) (string, error) {
	if !api.IsID(api.KindImage, id) {
		return "", api.Invalid("image", "%q is not an image id", id)
	}
	r, err := s.readRecord(id)
	if err != nil {
		return "", err
	}
	return s.blobPath(r.Digest), nil
}

// Verify reads the whole image and compares it with its digest and
// configuration. The error is CodeCorrupt if they differ. It ends early when ctx
// does.
func (s *Store) Verify(ctx context.Context, id string) error {
	path, err := s.Path(id)
	if err != nil {
		return err
	}
	r, err := s.readRecord(id)
	if err != nil {
		return err
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return corrupt("image %s: its file is missing", id)
	}
	if err != nil {
		return fmt.Errorf("verify image %s: %w", id, err)
	}
	defer f.Close()
	digest := sha256.New()
	size, err := io.Copy(digest, &countReader{ctx: ctx, r: f})
	if err != nil {
		return fmt.Errorf("verify image %s: %w", id, err)
	}
	if got := hex.EncodeToString(digest.Sum(nil)); size != r.Size || got != r.Digest {
		return corrupt("image %s: its file has %d bytes of digest sha256:%s, expected are %d of sha256:%s", id, size, got, r.Size, r.Digest)
	}
	return checkSuperblock(f, size, r.Config)
}

func (s *Store) path(elem ...string) string {
	return filepath.Join(append([]string{s.dir}, elem...)...)
}

func (s *Store) recordPath(id string) string { return s.path(recordsDir, id+".json") }

func (s *Store) blobPath(digest string) string { return s.path(blobsDir, digest+blobSuffix) }
