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
	"slices"
	"strings"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/image/catalog"
	"ramet.dev/ramet/internal/storage/hostfs"
)

// Store is a directory of images, as an owner sees it. Several processes may use one directory. All
// methods are safe for concurrent use.
type Store struct {
	files  *catalog.Catalog
	prefix string // of the names of the owner
	named  bool   // images without a name of the owner are not seen,
	// unless nameless is set and no owner has a name for them.
	nameless bool
	everyone bool // images are shown with the names of other owners
}

// Open returns the store in dir, which it makes if needed, and removes the files that crashed
// imports left there. It waits while another process changes the store.
func Open(dir string) (*Store, error) { return open(dir, hostfs.OS) }

// open is Open with a given file system.
func open(dir string, fsys hostfs.FS) (*Store, error) {
	files, err := catalog.Open(dir, fsys)
	if err != nil {
		return nil, err
	}
	return &Store{files: files}, nil
}

// List returns all images that are seen, newest first.
func (s *Store) List() ([]api.Image, error) {
	n, err := s.files.Names()
	if err != nil {
		return nil, err
	}
	ids, err := s.files.IDs("")
	if err != nil {
		return nil, err
	}
	out := []api.Image{}
	for _, id := range ids {
		r, err := s.files.Record(id)
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

// idOfContainer returns the id of an image that is seen, whose file is there and that was pulled with a
// configuration, or "".
func (s *Store) idOfContainer(container string) (string, error) {
	n, err := s.files.Names()
	if err != nil {
		return "", err
	}
	ids, err := s.files.IDs("")
	if err != nil {
		return "", err
	}
	for _, id := range ids {
		r, err := s.files.Record(id)
		if err != nil || !slices.Contains(r.Containers, container) || !s.files.HasBlob(r) {
			continue // a damaged record is reported where the image is used
		}
		if _, err := s.visible(r, n, id, id); err == nil {
			return id, nil
		}
	}
	return "", nil
}

// Resolve returns the image that ref means: an id, an unambiguous beginning of
// an id (8 characters or more, "img_" included) or a name. Errors: CodeNotFound,
// CodeInvalid, CodeConflict if ref is ambiguous.
func (s *Store) Resolve(ref string) (api.Image, error) {
	img, _, err := s.resolve(ref)
	return img, err
}

// resolve also returns the name that ref is, or "".
func (s *Store) resolve(ref string) (img api.Image, name string, err error) {
	n, err := s.files.Names()
	if err != nil {
		return api.Image{}, "", err
	}
	id := ref
	switch {
	case api.IsID(api.KindImage, ref):
	case idPrefixPattern.MatchString(ref) && len(ref) >= minPrefixLen:
		ids, err := s.files.IDs(ref)
		if err != nil {
			return api.Image{}, "", err
		}
		ids = slices.DeleteFunc(ids, func(id string) bool {
			_, err := s.visible(catalog.Record{}, n, id, id)
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
	r, err := s.files.Record(id)
	if err != nil {
		return api.Image{}, "", err
	}
	img, err = s.visible(r, n, id, ref)
	return img, name, err
}

// Path returns the path of the image's file. The file never changes; a process that
// has it open keeps it when the image is removed. Errors as of Resolve.
func (s *Store) Path(id string) (string, error) {
	if !api.IsID(api.KindImage, id) {
		return "", api.Invalid("image", "%q is not an image id", id)
	}
	r, err := s.files.Record(id)
	if err != nil {
		return "", err
	}
	return s.files.BlobPath(r.Digest), nil
}

// Verify reads the whole image and compares it with its digest and
// configuration. The error is CodeCorrupt if they differ. It ends early when ctx
// does.
func (s *Store) Verify(ctx context.Context, id string) error {
	path, err := s.Path(id)
	if err != nil {
		return err
	}
	r, err := s.files.Record(id)
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
