package volumes

import (
	gocontext "context"
	"fmt"
	"maps"
	"slices"

	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/sentry/fsimpl/kernfs"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
	"gvisor.dev/gvisor/pkg/state"

	"ramet.dev/ramet/internal/sentry/saved"
)

// The methods below are what gVisor's state package asks of saved types. gVisor generates them
// with a tool that is not part of its Go module.

// contextID is the type of keys of context values.
type contextID int

// CtxClient is the key of the *Client of a restored file system.
const CtxClient contextID = 1

// PrepareSave implements vfs.FilesystemImplSaveRestoreExtension.PrepareSave.
func (*filesystem) PrepareSave(context.Context) error { return nil }

// BeforeResume implements vfs.FilesystemImplSaveRestoreExtension.BeforeResume.
func (*filesystem) BeforeResume(context.Context) {}

// CompleteRestore implements vfs.FilesystemImplSaveRestoreExtension.CompleteRestore.
func (fs *filesystem) CompleteRestore(ctx context.Context, _ vfs.CompleteRestoreOptions) error {
	c, ok := ctx.Value(CtxClient).(*Client)
	if !ok {
		return fmt.Errorf("nobody was given to ask for the files of volume %s", fs.volume)
	}
	fs.client, fs.paths.fs = c, fs
	return nil
}

const prefix = "ramet.dev/ramet/internal/sentry/volumes."

func init() {
	state.Register((*FilesystemType)(nil))
	state.Register((*filesystem)(nil))
	state.Register((*inode)(nil))
	state.Register((*fileFD)(nil))
	state.Register((*regularFD)(nil))
	state.Register((*directoryFD)(nil))
}

func (*FilesystemType) StateTypeName() string                     { return prefix + "FilesystemType" }
func (*FilesystemType) StateFields() []string                     { return nil }
func (*FilesystemType) StateSave(state.Sink)                      {}
func (*FilesystemType) StateLoad(gocontext.Context, state.Source) {}

func (*filesystem) StateTypeName() string { return prefix + "filesystem" }
func (*filesystem) StateFields() []string {
	return []string{"Filesystem", "volume", "minor", "clock", "inodes", "dentries"}
}
func (fs *filesystem) fields() []any {
	return []any{&fs.Filesystem, &fs.volume, &fs.minor, &fs.clock, &fs.inodes}
}
func (fs *filesystem) StateSave(sink state.Sink) {
	saved.Save(sink, fs.fields())
	sink.SaveValue(len(fs.fields()), slices.Collect(maps.Keys(fs.dentries.list)))
}
func (fs *filesystem) StateLoad(_ gocontext.Context, source state.Source) {
	saved.Load(source, fs.fields())
	source.LoadValue(len(fs.fields()), new([]*kernfs.Dentry), func(v any) {
		fs.dentries.list = map[*kernfs.Dentry]bool{}
		for _, d := range v.([]*kernfs.Dentry) {
			fs.dentries.list[d] = true
		}
	})
}

func (*inode) StateTypeName() string { return prefix + "inode" }
func (*inode) StateFields() []string {
	return []string{"InodeWatches", "fs", "locks", "mappings", "fifo", "attr.Ino", "attr.Mode", "attr.UID", "attr.GID", "attr.Nlink", "attr.Rdev", "attr.Size", "attr.Atime", "attr.Mtime", "attr.Ctime", "refs", "held"}
}
func (i *inode) fields() []any {
	a := &i.attr
	return []any{&i.InodeWatches, &i.fs, &i.locks, &i.mappings, &i.fifo, &a.Ino, &a.Mode, &a.UID, &a.GID, &a.Nlink, &a.Rdev, &a.Size, &a.Atime, &a.Mtime, &a.Ctime}
}
func (i *inode) StateSave(sink state.Sink) {
	saved.Save(sink, i.fields())
	sink.SaveValue(len(i.fields()), i.refs.Load())
	sink.SaveValue(len(i.fields())+1, i.held.Load())
}
func (i *inode) StateLoad(_ gocontext.Context, source state.Source) {
	saved.Load(source, i.fields())
	source.LoadValue(len(i.fields()), new(int64), func(v any) { i.refs.Store(v.(int64)) })
	source.LoadValue(len(i.fields())+1, new(bool), func(v any) { i.held.Store(v.(bool)) })
}

func (*fileFD) StateTypeName() string        { return prefix + "fileFD" }
func (*fileFD) StateFields() []string        { return []string{"vfsfd", "LockFD"} }
func (fd *fileFD) fields() []any             { return []any{&fd.vfsfd, &fd.LockFD} }
func (fd *fileFD) StateSave(sink state.Sink) { saved.Save(sink, fd.fields()) }
func (fd *fileFD) StateLoad(_ gocontext.Context, source state.Source) {
	saved.Load(source, fd.fields())
}

func (*regularFD) StateTypeName() string        { return prefix + "regularFD" }
func (*regularFD) StateFields() []string        { return []string{"fileFD", "off"} }
func (fd *regularFD) fields() []any             { return []any{&fd.fileFD, &fd.off} }
func (fd *regularFD) StateSave(sink state.Sink) { saved.Save(sink, fd.fields()) }
func (fd *regularFD) StateLoad(_ gocontext.Context, source state.Source) {
	saved.Load(source, fd.fields())
}

func (*directoryFD) StateTypeName() string        { return prefix + "directoryFD" }
func (*directoryFD) StateFields() []string        { return []string{"fileFD", "off", "last", "ended"} }
func (fd *directoryFD) fields() []any             { return []any{&fd.fileFD, &fd.off, &fd.last, &fd.ended} }
func (fd *directoryFD) StateSave(sink state.Sink) { saved.Save(sink, fd.fields()) }
func (fd *directoryFD) StateLoad(_ gocontext.Context, source state.Source) {
	saved.Load(source, fd.fields())
}
