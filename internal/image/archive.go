package image

import (
	"archive/tar"
	"bufio"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"
	"syscall"

	"ramet.dev/ramet/api"
)

// archive gives the files of a container image by their names in it.
type archive interface {
	// open returns the file and its size. A missing file is fs.ErrNotExist.
	open(name string) (io.ReadCloser, int64, error)
}

// dirArchive is an unpacked archive. os.Root keeps links in it from leading out.
type dirArchive struct{ root *os.Root }

func (d dirArchive) open(name string) (io.ReadCloser, int64, error) {
	f, err := d.root.Open(name)
	var host syscall.Errno
	if err != nil && !errors.As(err, &host) {
		return nil, 0, refused("%q in the image directory leads out of it", name) // os.Root has no error value for that
	}
	if err != nil {
		return nil, 0, err
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = refused("%q in the image directory is not a regular file", name)
	}
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, st.Size(), nil
}

// tarArchive is an uncompressed tar with an index.
type tarArchive struct {
	file  io.ReaderAt
	files map[string]tarFile
}

type tarFile struct {
	offset, size int64
	alias        string // name of the file that has the contents, if this is a link
}

// maxAliases bounds chains of links, which docker save made of equal layers.
const maxAliases = 8

// indexTar lists the files of an uncompressed tar without reading them.
func indexTar(f io.ReadSeeker, at io.ReaderAt, limits Limits) (*tarArchive, error) {
	t := &tarArchive{at, map[string]tarFile{}}
	in := tar.NewReader(f)
	for {
		h, err := in.Next()
		if err == io.EOF {
			return t, nil
		}
		if err != nil && !errors.Is(err, tar.ErrInsecurePath) {
			return nil, readError(err)
		}
		name := path.Clean("/" + h.Name)[1:]
		switch h.Typeflag {
		case tar.TypeReg:
			// Contents follow the header directly; the reader buffers nothing.
			offset, err := f.Seek(0, io.SeekCurrent)
			if err != nil {
				return nil, readError(err)
			}
			t.files[name] = tarFile{offset: offset, size: h.Size}
		case tar.TypeSymlink:
			t.files[name] = tarFile{alias: path.Join("/", path.Dir(name), h.Linkname)[1:]}
		case tar.TypeLink:
			t.files[name] = tarFile{alias: path.Clean("/" + h.Linkname)[1:]}
		}
		if len(t.files) > limits.Entries {
			return nil, refused("archive has more than %d files", limits.Entries)
		}
	}
}

func (t *tarArchive) open(name string) (io.ReadCloser, int64, error) {
	name = path.Clean("/" + name)[1:]
	for range maxAliases {
		f, ok := t.files[name]
		if !ok {
			return nil, 0, fs.ErrNotExist
		}
		if f.alias == "" {
			return io.NopCloser(io.NewSectionReader(t.file, f.offset, f.size)), f.size, nil
		}
		name = f.alias
	}
	return nil, 0, refused("%q in the archive is a chain of links", name)
}

// readDocumentOf returns a manifest or configuration.
func readDocumentOf(a archive, name string) ([]byte, error) {
	f, size, err := a.open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, corrupt("archive has no %q", name)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if size > maxDocument {
		return nil, refused("%q has %d bytes: it may have %d", name, size, maxDocument)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxDocument))
	if err != nil {
		return nil, readError(err)
	}
	return b, nil
}

func has(a archive, name string) bool {
	f, _, err := a.open(name)
	if err == nil {
		f.Close()
	}
	return err == nil
}

// isContainerArchive tells container images from root file systems.
func isContainerArchive(a archive) bool {
	return has(a, "manifest.json") || has(a, "oci-layout") && has(a, "index.json")
}

// archiveName matches names that programs put first in archives of container images.
var archiveName = regexp.MustCompile(`^(\./)?(blobs(/.*)?|oci-layout|index\.json|manifest\.json|repositories|(sha256:)?[0-9a-f]{64}(/.*|\.json|\.tar|\.tar\.gz)?)$`)

// mayBeContainerArchive examines the first name in a tar without consuming it. The name of the
// directory itself, with which tar -C DIR . begins, is skipped.
func mayBeContainerArchive(r *bufio.Reader) bool {
	head, err := r.Peek(min(64<<10, r.Size()))
	if err != nil && err != io.EOF {
		return false // the next read reports it
	}
	in := tar.NewReader(bytes.NewReader(head))
	h, err := in.Next()
	if err == nil && path.Clean(h.Name) == "." {
		h, err = in.Next()
	}
	return err == nil && archiveName.MatchString(strings.TrimSuffix(h.Name, "/"))
}

func newBuffer(r io.Reader) *bufio.Reader { return bufio.NewReaderSize(r, readAhead) }

// openDir returns the archive unpacked at path. The caller closes its root.
func openDir(path string) (dirArchive, error) {
	root, err := os.OpenRoot(path)
	if err != nil {
		return dirArchive{}, inputError(path, err)
	}
	return dirArchive{root}, nil
}

// ambiguous returns an error that asks the user to choose.
func ambiguous(names []string) error {
	return api.Invalid("select", "archive holds several images, name one of: %s", strings.Join(names, ", "))
}
