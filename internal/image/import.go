package image

import (
	"bufio"
	"context"
	"io"
	"os"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/storage/hostfs"
)

// ImportPath makes an image of the file at path: a directory, an OCI layout, an archive of
// docker save or a similar program, or a tar of a root file system. The
// archives may be compressed with gzip, zstd or xz.
func (s *Store) ImportPath(ctx context.Context, path string, opt Options) (api.Image, error) {
	if opt.Source == "" {
		opt.Source = path
	}
	st, err := os.Stat(path)
	if err != nil {
		return api.Image{}, inputError(path, err)
	}
	if st.IsDir() {
		a, err := openDir(path)
		if err != nil {
			return api.Image{}, err
		}
		defer a.root.Close()
		if has(a, "oci-layout") && has(a, "index.json") {
			return s.importArchive(ctx, a, opt)
		}
		return s.ImportDir(ctx, path, opt)
	}
	if !st.Mode().IsRegular() {
		return api.Image{}, api.Invalid("path", "%q is neither a directory nor a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return api.Image{}, inputError(path, err)
	}
	defer f.Close()
	return s.ImportStream(ctx, f, opt)
}

// ImportStream makes an image of an archive of any kind, as ImportPath does. Archives of container images are not ordered for streaming; they are
// copied to the store's disk first, unless r is a plain file. Cancelling takes
// effect at the next read.
func (s *Store) ImportStream(ctx context.Context, r io.Reader, opt Options) (api.Image, error) {
	return s.build(ctx, opt, func(b *builder) error {
		b.progress.begin(PhaseUnpack, fileSize(r))
		in, err := decompress(b.input(r), b.limits)
		if err != nil {
			return err
		}
		defer in.close()
		if !mayBeContainerArchive(in.Reader) {
			return b.rootfs(in)
		}
		var f hostfs.File
		if plain, isFile := r.(*os.File); isFile && !in.compressed && fileSize(r) > 0 {
			f = plain
		} else {
			if f, err = s.files.NewSpool(); err != nil {
				return err
			}
			defer f.Close()
			if _, err := io.CopyBuffer(f, struct{ io.Reader }{in}, make([]byte, readAhead)); err != nil {
				return readError(err)
			}
			b.progress.end()
		}
		return b.tarFile(f)
	})
}

// tarFile imports a plain tar of either kind.
func (b *builder) tarFile(f hostfs.File) error {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return readError(err)
	}
	a, err := indexTar(f, f, b.limits)
	if err != nil {
		return err
	}
	if isContainerArchive(a) {
		img, err := readContainerArchive(a, b.opt.Select)
		if err != nil {
			return err
		}
		return b.container(PhaseUnpack, img)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return readError(err)
	}
	b.progress.begin(PhaseUnpack, fileSize(f))
	return b.rootfs(&stream{Reader: bufio.NewReaderSize(b.input(f), readAhead)})
}

func (s *Store) importArchive(ctx context.Context, a archive, opt Options) (api.Image, error) {
	return s.build(ctx, opt, func(b *builder) error {
		img, err := readContainerArchive(a, opt.Select)
		if err != nil {
			return err
		}
		return b.container(PhaseUnpack, img)
	})
}
