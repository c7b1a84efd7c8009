package image

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"strings"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/image/catalog"
	"ramet.dev/ramet/internal/storage/hostfs"
)

// Meta is the data of an image besides its contents.
type Meta struct {
	Name     string // of the image; "" for none
	KeepName bool   // refuse a name that another image has
	Source   string // its origin, for people
	Config   Config
	// Container is the digest of the configuration of the container image that it is made of; "" if
	// there is none.
	Container string
}

// commit makes an image of the complete EROFS file f, made by newTemp. If the store has the
// image already, the image only gets the name.
func (s *Store) commit(f hostfs.File, digest [sha256.Size]byte, size int64, meta Meta) (api.Image, error) {
	id := catalog.ID(digest)
	r := catalog.Record{
		Digest: hex.EncodeToString(digest[:]), Size: size,
		Created: time.Now().UTC().Truncate(time.Millisecond), Source: meta.Source, Config: meta.Config,
	}
	if meta.Container != "" {
		r.Containers = []string{meta.Container}
	}
	// Most of the writing happens here, outside the lock.
	if err := f.Sync(); err != nil {
		return api.Image{}, fmt.Errorf("sync image: %w", err)
	}
	err := s.files.Locked(func() error {
		if meta.KeepName {
			if err := s.CheckName(meta.Name, id); err != nil {
				return err
			}
		}
		if err := s.files.Add(id, f, r); err != nil {
			return err
		}
		if meta.Name == "" {
			return nil
		}
		return s.setName(meta.Name, id)
	})
	if err != nil {
		return api.Image{}, fmt.Errorf("add image: %w", importError(err))
	}
	return s.Resolve(id)
}

// AddOptions are the parameters of Add.
type AddOptions struct {
	Meta
	Digest   string // "sha256:…" that the file must have; "" if unknown
	MaxBytes int64  // 0 for the default limit
}

// Add stores an EROFS file that Ramet has made, perhaps on another machine, with this
// configuration. Errors: CodeCorrupt if it is no such file or has another digest, CodeHostile
// if it is too large.
func (s *Store) Add(ctx context.Context, r io.Reader, opt AddOptions) (api.Image, error) {
	var err error
	if opt.Name != "" {
		if opt.Name, err = ParseName("name", opt.Name); err != nil {
			return api.Image{}, err
		}
	}
	limit := Limits{TotalBytes: opt.MaxBytes}.withDefaults().TotalBytes
	f, err := s.files.NewTemp()
	if err != nil {
		return api.Image{}, err
	}
	defer s.files.Discard(f)
	hash := sha256.New()
	size, err := io.Copy(io.MultiWriter(f, hash), io.LimitReader(&countReader{ctx: ctx, r: r}, limit+1))
	if err != nil {
		return api.Image{}, fmt.Errorf("add image: %w", importError(err))
	}
	if size > limit {
		return api.Image{}, refused("image is larger than %d bytes", limit)
	}
	digest := [sha256.Size]byte(hash.Sum(nil))
	if got := "sha256:" + hex.EncodeToString(digest[:]); opt.Digest != "" && opt.Digest != got {
		return api.Image{}, corrupt("image has digest %s, expected is %s", got, opt.Digest)
	}
	if err := checkSuperblock(f, size, opt.Config); err != nil {
		return api.Image{}, err
	}
	return s.commit(f, digest, size, opt.Meta)
}

// checkSuperblock checks that erofs.Writer can have made f with config. The offsets are those
// of the format's superblock. The reader in the sandbox's kernel checks the rest: it trusts no
// image.
func checkSuperblock(f io.ReaderAt, size int64, config Config) error {
	block := make([]byte, 4096)
	if _, err := f.ReadAt(block, 0); err != nil {
		return corrupt("image has no superblock")
	}
	sb := block[1024:]
	le := binary.LittleEndian
	sum := le.Uint32(sb[4:])
	clear(sb[4:8])
	switch {
	case le.Uint32(sb) != 0xe0f5e1e2, sum != ^crc32.Checksum(sb, crc32.MakeTable(crc32.Castagnoli)):
		return corrupt("image has no valid superblock")
	case sb[12] != 12, le.Uint32(sb[80:]) != 0, int64(le.Uint32(sb[36:]))*4096 != size:
		return corrupt("image is truncated or was not made by this program")
	case [16]byte(sb[48:64]) != config.UUID():
		return corrupt("image does not belong to its configuration")
	}
	return nil
}

// hashFile returns the digest of f's first size bytes.
func hashFile(ctx context.Context, f io.ReaderAt, size int64, report func(int64)) (d [sha256.Size]byte, err error) {
	hash := sha256.New()
	in := &countReader{ctx: ctx, r: io.NewSectionReader(f, 0, size), report: report}
	n, err := io.CopyBuffer(hash, struct{ io.Reader }{in}, make([]byte, readAhead))
	if err == nil && n != size {
		err = fs.ErrInvalid
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		err = fmt.Errorf("hash image: %w", err)
	}
	return [sha256.Size]byte(hash.Sum(nil)), err
}

// IDOf returns the id of the image whose file has a digest, such as "sha256:…".
func IDOf(digest string) (string, error) {
	hexed, ok := strings.CutPrefix(digest, "sha256:")
	sum, err := hex.DecodeString(hexed)
	if !ok || err != nil || len(sum) != sha256.Size {
		return "", corrupt("image has an invalid digest %q", digest)
	}
	return catalog.ID([sha256.Size]byte(sum)), nil
}

// Same reads all of r and compares it with a digest.
func Same(ctx context.Context, r io.Reader, digest string) error {
	hash := sha256.New()
	if _, err := io.Copy(hash, &countReader{ctx: ctx, r: r}); err != nil {
		return err
	}
	if got := "sha256:" + hex.EncodeToString(hash.Sum(nil)); got != digest {
		return corrupt("image has digest %s, expected is %s", got, digest)
	}
	return nil
}
