package stock

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
)

// ExportRoot copies the files of a sandbox into the empty directory dir, which becomes the root of
// a container. It omits devices and owners: the container makes its own devices, and runs as the
// user who owns the copy.
func ExportRoot(ctx context.Context, c *client.Client, ref, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("export root file system: %w", err)
	}
	defer root.Close()
	r, w := io.Pipe()
	unpacked := make(chan error, 1)
	go func() {
		err := unpack(root, r)
		r.CloseWithError(err) // ends the writer
		unpacked <- err
	}()
	res, err := c.Processes.ExecStream(ctx, ref, api.ExecRequest{
		Argv: []string{"tar", "--create", "--one-file-system", "--directory=/", "."},
	}, api.ExecIO{Stdout: w})
	if err == nil && !res.OK {
		err = fmt.Errorf("tar ended with exit code %d", res.ExitCode)
	}
	w.CloseWithError(err) // io.EOF for the reader if nil
	if err := errors.Join(err, <-unpacked); err != nil {
		return fmt.Errorf("export root file system: %w", err)
	}
	return nil
}

// unpack unpacks a tar archive below root. No entry can leave root: the sandbox that wrote the
// archive is not trusted.
func unpack(root *os.Root, in io.Reader) error {
	archive := tar.NewReader(in)
	for {
		h, err := archive.Next()
		if err == io.EOF {
			_, err := io.Copy(io.Discard, in) // the padding at the end
			return err
		}
		if err != nil {
			return err
		}
		if err := unpackOne(root, h, archive); err != nil {
			return fmt.Errorf("unpack %q: %w", h.Name, err)
		}
	}
}

func unpackOne(root *os.Root, h *tar.Header, content io.Reader) error {
	name := path.Clean(h.Name)
	perm := fs.FileMode(h.Mode) & fs.ModePerm
	switch h.Typeflag {
	case tar.TypeDir:
		if name == "." {
			return nil
		}
		if err := root.Mkdir(name, 0o700); err != nil {
			return err
		}
		return root.Chmod(name, perm|0o700) // root of the container may be an ordinary user here
	case tar.TypeReg:
		f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, content)
		// Python compiles a module again whose time differs from that in its compiled file.
		return errors.Join(err, f.Chmod(perm), f.Close(), root.Chtimes(name, h.ModTime, h.ModTime))
	case tar.TypeSymlink:
		return root.Symlink(h.Linkname, name)
	case tar.TypeLink:
		return root.Link(path.Clean(h.Linkname), name)
	}
	return nil
}
