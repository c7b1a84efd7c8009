package rootfs

import (
	gocontext "context"
	"fmt"

	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
	"gvisor.dev/gvisor/pkg/state"

	"ramet.dev/ramet/internal/sentry/saved"
	"ramet.dev/ramet/internal/storage/cowfs"
)

// A saved file system is its dentries, and the inodes and the tree's root that package inode
// saves. gVisor generates methods like those below with a tool that is not in its module.

// contextID is the type of keys of context values.
type contextID int

// CtxOpen is the key of a func(cowfs.State) (*Source, error): it gives a restored
// file system its tree.
const CtxOpen contextID = 1

// PrepareSave implements vfs.FilesystemImplSaveRestoreExtension.PrepareSave. The tree must
// have been pinned, and nothing may have changed since.
func (fs *filesystem) PrepareSave(ctx context.Context) error {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.sweep(ctx)
	if err := fs.table.PrepareSave(); err != nil {
		return err
	}
	fs.live = collect(fs.root, nil)
	return nil
}

// collect appends the dentries below d to all. Dentries without a name are only reachable from open
// files and need not be found.
func collect(d *dentry, all []*dentry) []*dentry {
	for _, c := range d.children {
		all = collect(c, append(all, c))
	}
	return all
}

// BeforeResume implements vfs.FilesystemImplSaveRestoreExtension.BeforeResume.
func (fs *filesystem) BeforeResume(context.Context) {
	fs.table.BeforeResume()
	fs.live = nil
}

// CompleteRestore implements vfs.FilesystemImplSaveRestoreExtension.CompleteRestore.
func (fs *filesystem) CompleteRestore(ctx context.Context, _ vfs.CompleteRestoreOptions) error {
	open, ok := ctx.Value(CtxOpen).(func(cowfs.State) (*Source, error))
	if !ok {
		return fmt.Errorf("no files were given to restore %s from", Name)
	}
	src, err := open(fs.table.SavedTree())
	if err != nil {
		return err
	}
	fs.attach(src)
	if err := fs.table.CompleteRestore(); err != nil {
		return err
	}
	for _, d := range fs.live {
		d.parent.Load().put(d, d.name)
	}
	fs.cached.Store(int64(len(fs.live)))
	fs.live = nil
	return nil
}

const typePrefix = "ramet.dev/ramet/internal/sentry/rootfs."

func init() {
	state.Register((*FilesystemType)(nil))
	state.Register((*filesystem)(nil))
	state.Register((*names)(nil))
	state.Register((*dentry)(nil))
	state.Register((*fileFD)(nil))
	state.Register((*regularFD)(nil))
	state.Register((*directoryFD)(nil))
}

func (*FilesystemType) StateTypeName() string                         { return typePrefix + "FilesystemType" }
func (*FilesystemType) StateFields() []string                         { return nil }
func (*FilesystemType) StateSave(state.Sink)                          {}
func (*FilesystemType) StateLoad(_ gocontext.Context, _ state.Source) {}

func (*filesystem) StateTypeName() string        { return typePrefix + "filesystem" }
func (*filesystem) StateFields() []string        { return []string{"vfsfs", "names"} }
func (fs *filesystem) fields() []any             { return []any{&fs.vfsfs, &fs.names} }
func (fs *filesystem) StateSave(sink state.Sink) { saved.Save(sink, fs.fields()) }
func (fs *filesystem) StateLoad(_ gocontext.Context, source state.Source) {
	saved.Load(source, fs.fields())
}

func (*names) StateTypeName() string                                { return typePrefix + "names" }
func (*names) StateFields() []string                                { return []string{"table", "root", "live"} }
func (n *names) fields() []any                                      { return []any{&n.table, &n.root, &n.live} }
func (n *names) StateSave(sink state.Sink)                          { saved.Save(sink, n.fields()) }
func (n *names) StateLoad(_ gocontext.Context, source state.Source) { saved.Load(source, n.fields()) }

func (*dentry) StateTypeName() string { return typePrefix + "dentry" }
func (*dentry) StateFields() []string {
	return []string{"vfsd", "names", "inode", "name", "parent", "refs", "unlinked"}
}
func (d *dentry) fields() []any { return []any{&d.vfsd, &d.names, &d.inode, &d.name} }
func (d *dentry) StateSave(sink state.Sink) {
	saved.Save(sink, d.fields())
	sink.SaveValue(4, d.parent.Load())
	sink.SaveValue(5, d.refs.Load())
	sink.SaveValue(6, d.unlinked.Load())
}
func (d *dentry) StateLoad(_ gocontext.Context, source state.Source) {
	saved.Load(source, d.fields())
	source.LoadValue(4, new(*dentry), func(v any) { d.parent.Store(v.(*dentry)) })
	source.LoadValue(5, new(int64), func(v any) { d.refs.Store(v.(int64)) })
	source.LoadValue(6, new(bool), func(v any) { d.unlinked.Store(v.(bool)) })
}

func (*fileFD) StateTypeName() string        { return typePrefix + "fileFD" }
func (*fileFD) StateFields() []string        { return []string{"vfsfd", "LockFD"} }
func (fd *fileFD) fields() []any             { return []any{&fd.vfsfd, &fd.LockFD} }
func (fd *fileFD) StateSave(sink state.Sink) { saved.Save(sink, fd.fields()) }
func (fd *fileFD) StateLoad(_ gocontext.Context, source state.Source) {
	saved.Load(source, fd.fields())
}

func (*regularFD) StateTypeName() string        { return typePrefix + "regularFD" }
func (*regularFD) StateFields() []string        { return []string{"fileFD", "off"} }
func (fd *regularFD) fields() []any             { return []any{&fd.fileFD, &fd.off} }
func (fd *regularFD) StateSave(sink state.Sink) { saved.Save(sink, fd.fields()) }
func (fd *regularFD) StateLoad(_ gocontext.Context, source state.Source) {
	saved.Load(source, fd.fields())
}

func (*directoryFD) StateTypeName() string        { return typePrefix + "directoryFD" }
func (*directoryFD) StateFields() []string        { return []string{"fileFD", "off", "last", "ended"} }
func (fd *directoryFD) fields() []any             { return []any{&fd.fileFD, &fd.off, &fd.last, &fd.ended} }
func (fd *directoryFD) StateSave(sink state.Sink) { saved.Save(sink, fd.fields()) }
func (fd *directoryFD) StateLoad(_ gocontext.Context, source state.Source) {
	saved.Load(source, fd.fields())
}
