package volumes

import (
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
	"gvisor.dev/gvisor/pkg/sentry/socket/unix/transport"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
)

// paths implements the methods of vfs.FilesystemImpl that resolve a path: kernfs does, and names
// are dropped afterwards that nothing refers to.
type paths struct{ fs *filesystem }

// within does an operation on a path.
func within[T any](ctx context.Context, p *paths, do func() (T, error)) (T, error) {
	p.fs.dentries.begin()
	defer p.fs.dentries.end(ctx)
	return do()
}

// do is within for operations without a result.
func (p *paths) do(ctx context.Context, do func() error) error {
	p.fs.dentries.begin()
	defer p.fs.dentries.end(ctx)
	return do()
}

// AccessAt implements vfs.FilesystemImpl.AccessAt.
func (p *paths) AccessAt(ctx context.Context, rp *vfs.ResolvingPath, creds *auth.Credentials, ats vfs.AccessTypes) error {
	return p.do(ctx, func() error { return p.fs.Filesystem.AccessAt(ctx, rp, creds, ats) })
}

// GetDentryAt implements vfs.FilesystemImpl.GetDentryAt.
func (p *paths) GetDentryAt(ctx context.Context, rp *vfs.ResolvingPath, opts vfs.GetDentryOptions) (*vfs.Dentry, error) {
	return within(ctx, p, func() (*vfs.Dentry, error) { return p.fs.Filesystem.GetDentryAt(ctx, rp, opts) })
}

// GetParentDentryAt implements vfs.FilesystemImpl.GetParentDentryAt.
func (p *paths) GetParentDentryAt(ctx context.Context, rp *vfs.ResolvingPath) (*vfs.Dentry, error) {
	return within(ctx, p, func() (*vfs.Dentry, error) { return p.fs.Filesystem.GetParentDentryAt(ctx, rp) })
}

// LinkAt implements vfs.FilesystemImpl.LinkAt.
func (p *paths) LinkAt(ctx context.Context, rp *vfs.ResolvingPath, vd vfs.VirtualDentry) error {
	return p.do(ctx, func() error { return p.fs.Filesystem.LinkAt(ctx, rp, vd) })
}

// MkdirAt implements vfs.FilesystemImpl.MkdirAt.
func (p *paths) MkdirAt(ctx context.Context, rp *vfs.ResolvingPath, opts vfs.MkdirOptions) error {
	return p.do(ctx, func() error { return p.fs.Filesystem.MkdirAt(ctx, rp, opts) })
}

// MknodAt implements vfs.FilesystemImpl.MknodAt.
func (p *paths) MknodAt(ctx context.Context, rp *vfs.ResolvingPath, opts vfs.MknodOptions) error {
	return p.do(ctx, func() error { return p.fs.Filesystem.MknodAt(ctx, rp, opts) })
}

// OpenAt implements vfs.FilesystemImpl.OpenAt.
func (p *paths) OpenAt(ctx context.Context, rp *vfs.ResolvingPath, opts vfs.OpenOptions) (*vfs.FileDescription, error) {
	return within(ctx, p, func() (*vfs.FileDescription, error) { return p.fs.Filesystem.OpenAt(ctx, rp, opts) })
}

// ReadlinkAt implements vfs.FilesystemImpl.ReadlinkAt.
func (p *paths) ReadlinkAt(ctx context.Context, rp *vfs.ResolvingPath) (string, error) {
	return within(ctx, p, func() (string, error) { return p.fs.Filesystem.ReadlinkAt(ctx, rp) })
}

// keeping is the key of a context of a rename that must not replace anything.
type keeping struct{}

// RenameAt implements vfs.FilesystemImpl.RenameAt. kernfs only knows of names that it has in
// memory, so it is the daemon that has to keep what is there.
func (p *paths) RenameAt(ctx context.Context, rp *vfs.ResolvingPath, oldParent vfs.VirtualDentry, oldName string, opts vfs.RenameOptions) error {
	if opts.Flags&linux.RENAME_NOREPLACE != 0 {
		ctx = context.WithValue(ctx, keeping{}, true)
	}
	return p.do(ctx, func() error { return p.fs.Filesystem.RenameAt(ctx, rp, oldParent, oldName, opts) })
}

// RmdirAt implements vfs.FilesystemImpl.RmdirAt.
func (p *paths) RmdirAt(ctx context.Context, rp *vfs.ResolvingPath) error {
	return p.do(ctx, func() error { return p.fs.Filesystem.RmdirAt(ctx, rp) })
}

// SetStatAt implements vfs.FilesystemImpl.SetStatAt.
func (p *paths) SetStatAt(ctx context.Context, rp *vfs.ResolvingPath, opts vfs.SetStatOptions) error {
	return p.do(ctx, func() error { return p.fs.Filesystem.SetStatAt(ctx, rp, opts) })
}

// StatAt implements vfs.FilesystemImpl.StatAt.
func (p *paths) StatAt(ctx context.Context, rp *vfs.ResolvingPath, opts vfs.StatOptions) (linux.Statx, error) {
	return within(ctx, p, func() (linux.Statx, error) { return p.fs.Filesystem.StatAt(ctx, rp, opts) })
}

// StatFSAt implements vfs.FilesystemImpl.StatFSAt.
func (p *paths) StatFSAt(ctx context.Context, rp *vfs.ResolvingPath) (linux.Statfs, error) {
	return within(ctx, p, func() (linux.Statfs, error) { return p.fs.Filesystem.StatFSAt(ctx, rp) })
}

// SymlinkAt implements vfs.FilesystemImpl.SymlinkAt.
func (p *paths) SymlinkAt(ctx context.Context, rp *vfs.ResolvingPath, target string) error {
	return p.do(ctx, func() error { return p.fs.Filesystem.SymlinkAt(ctx, rp, target) })
}

// UnlinkAt implements vfs.FilesystemImpl.UnlinkAt.
func (p *paths) UnlinkAt(ctx context.Context, rp *vfs.ResolvingPath) error {
	return p.do(ctx, func() error { return p.fs.Filesystem.UnlinkAt(ctx, rp) })
}

// BoundEndpointAt implements vfs.FilesystemImpl.BoundEndpointAt.
func (p *paths) BoundEndpointAt(ctx context.Context, rp *vfs.ResolvingPath, opts vfs.BoundEndpointOptions) (transport.BoundEndpoint, error) {
	return within(ctx, p, func() (transport.BoundEndpoint, error) { return p.fs.Filesystem.BoundEndpointAt(ctx, rp, opts) })
}

// ListXattrAt implements vfs.FilesystemImpl.ListXattrAt.
func (p *paths) ListXattrAt(ctx context.Context, rp *vfs.ResolvingPath, size uint64) ([]string, error) {
	return within(ctx, p, func() ([]string, error) { return p.fs.Filesystem.ListXattrAt(ctx, rp, size) })
}

// GetXattrAt implements vfs.FilesystemImpl.GetXattrAt.
func (p *paths) GetXattrAt(ctx context.Context, rp *vfs.ResolvingPath, opts vfs.GetXattrOptions) (string, error) {
	return within(ctx, p, func() (string, error) { return p.fs.Filesystem.GetXattrAt(ctx, rp, opts) })
}

// SetXattrAt implements vfs.FilesystemImpl.SetXattrAt.
func (p *paths) SetXattrAt(ctx context.Context, rp *vfs.ResolvingPath, opts vfs.SetXattrOptions) error {
	return p.do(ctx, func() error { return p.fs.Filesystem.SetXattrAt(ctx, rp, opts) })
}

// RemoveXattrAt implements vfs.FilesystemImpl.RemoveXattrAt.
func (p *paths) RemoveXattrAt(ctx context.Context, rp *vfs.ResolvingPath, name string) error {
	return p.do(ctx, func() error { return p.fs.Filesystem.RemoveXattrAt(ctx, rp, name) })
}
