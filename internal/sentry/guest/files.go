package guest

import (
	"io"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
	"gvisor.dev/gvisor/pkg/usermem"
)

// fileReader reads a guest file from its start.
type fileReader struct {
	ctx  context.Context
	file *vfs.FileDescription
}

// Read implements io.Reader.
func (r *fileReader) Read(buf []byte) (int, error) {
	n, err := r.file.Read(r.ctx, usermem.BytesIOSequence(buf), vfs.ReadOptions{})
	if n == 0 && err == nil && len(buf) > 0 {
		err = io.EOF
	}
	return int(n), err
}

// listDir returns the names in a directory of the sandbox.
func (g *Guest) listDir(ctx context.Context, dir string) ([]string, error) {
	root, err := g.root(ctx)
	if err != nil {
		return nil, err
	}
	defer root.DecRef(ctx)
	creds := auth.NewRootCredentials(g.k.RootUserNamespace())
	file, err := g.k.VFS().OpenAt(ctx, creds, pathAt(root, dir), &vfs.OpenOptions{Flags: linux.O_RDONLY | linux.O_DIRECTORY})
	if err != nil {
		return nil, err
	}
	defer file.DecRef(ctx)
	var names []string
	err = file.IterDirents(ctx, vfs.IterDirentsCallbackFunc(func(d vfs.Dirent) error {
		if d.Name != "." && d.Name != ".." {
			names = append(names, d.Name)
		}
		return nil
	}))
	return names, err
}
