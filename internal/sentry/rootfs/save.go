package rootfs

import (
	gocontext "context"
	"fmt"

	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
	"gvisor.dev/gvisor/pkg/state"

	"ramet.dev/ramet/internal/storage/cowfs"
)

// A saved file system is its open inodes and dentries, and the number of the
// tree's root. gVisor generates methods like those below with a tool that is not
// in its module.

// contextID is the type of keys of context values.
type contextID int

// CtxOpen is the key of a func(cowfs.State) (*Source, error): it gives a restored
// file system its tree.
const CtxOpen contextID = 1

// liveObjects is what a saved state has besides the root.
type liveObjects struct {
	inodes   []*inode
	dentries []*dentry
	state    cowfs.State
	// spaces are the address spaces that files are mapped in: see savemaps.go.
	spaces []memmap.MappingSpace
}

// PrepareSave implements vfs.FilesystemImplSaveRestoreExtension.PrepareSave. The
// tree must have been pinned, and nothing have changed since.
func (fs *filesystem) PrepareSave(ctx context.Context) error {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.sweep(ctx)
	if err := fs.flush(); err != nil {
		return fmt.Errorf("write attributes of files: %w", err)
	}
	fs.live = liveObjects{state: fs.tree.State()}
	places := map[memmap.MappingSpace]int{} // in fs.live.spaces
	for _, i := range fs.inodes {
		fs.live.inodes = append(fs.live.inodes, i)
		i.saved = fs.live.pack(i, places)
	}
	fs.collect(fs.root)
	return nil
}

// collect notes the dentries below d. Those without a name are only reachable from
// open files and need not be found.
func (fs *filesystem) collect(d *dentry) {
	for _, c := range d.children {
		fs.live.dentries = append(fs.live.dentries, c)
		fs.collect(c)
	}
}

// BeforeResume implements vfs.FilesystemImplSaveRestoreExtension.BeforeResume.
func (fs *filesystem) BeforeResume(context.Context) {
	for _, i := range fs.live.inodes {
		i.saved = ""
	}
	fs.live = liveObjects{}
}

// CompleteRestore implements vfs.FilesystemImplSaveRestoreExtension.CompleteRestore.
func (fs *filesystem) CompleteRestore(ctx context.Context, _ vfs.CompleteRestoreOptions) error {
	open, ok := ctx.Value(CtxOpen).(func(cowfs.State) (*Source, error))
	if !ok {
		return fmt.Errorf("no files were given to restore %s from", Name)
	}
	src, err := open(fs.live.state)
	if err != nil {
		return err
	}
	fs.attach(src)
	for _, i := range fs.live.inodes {
		if err := fs.live.unpack(i); err != nil {
			return err
		}
		fs.inodes[i.ino] = i
		if i.refs == 0 {
			fs.markDirty(i) // see dropInode
		}
	}
	for _, d := range fs.live.dentries {
		parent := d.parent.Load()
		if parent.children == nil {
			parent.children = map[string]*dentry{}
		}
		parent.children[d.name] = d
	}
	fs.cached.Store(int64(len(fs.live.dentries)))
	fs.live = liveObjects{}
	return nil
}

const typePrefix = "ramet.dev/ramet/internal/sentry/rootfs."

func init() {
	state.Register((*FilesystemType)(nil))
	state.Register((*filesystem)(nil))
	state.Register((*dentry)(nil))
	state.Register((*inode)(nil))
	state.Register((*fileFD)(nil))
	state.Register((*regularFD)(nil))
	state.Register((*directoryFD)(nil))
}

func (*FilesystemType) StateTypeName() string                         { return typePrefix + "FilesystemType" }
func (*FilesystemType) StateFields() []string                         { return nil }
func (*FilesystemType) StateSave(state.Sink)                          {}
func (*FilesystemType) StateLoad(_ gocontext.Context, _ state.Source) {}

func (*filesystem) StateTypeName() string { return typePrefix + "filesystem" }
func (*filesystem) StateFields() []string {
	return []string{"vfsfs", "clock", "devMinor", "root", "inodes", "dentries", "treeRoot", "nextIno", "blocks", "limit", "spaces"}
}
func (fs *filesystem) fields() []any {
	s := &fs.live.state
	return []any{&fs.vfsfs, &fs.clock, &fs.devMinor, &fs.root, &fs.live.inodes, &fs.live.dentries,
		(*uint64)(&s.Root), (*uint64)(&s.NextIno), &s.Blocks, &s.Limit, &fs.live.spaces}
}
func (fs *filesystem) StateSave(sink state.Sink)                          { save(sink, fs.fields()) }
func (fs *filesystem) StateLoad(_ gocontext.Context, source state.Source) { load(source, fs.fields()) }

func save(sink state.Sink, fields []any) {
	for n, f := range fields {
		sink.Save(n, f)
	}
}

func load(source state.Source, fields []any) {
	for n, f := range fields {
		source.Load(n, f)
	}
}

func (*dentry) StateTypeName() string { return typePrefix + "dentry" }
func (*dentry) StateFields() []string {
	return []string{"vfsd", "fs", "inode", "name", "parent", "refs", "unlinked"}
}
func (d *dentry) fields() []any { return []any{&d.vfsd, &d.fs, &d.inode, &d.name} }
func (d *dentry) StateSave(sink state.Sink) {
	save(sink, d.fields())
	sink.SaveValue(4, d.parent.Load())
	sink.SaveValue(5, d.refs.Load())
	sink.SaveValue(6, d.unlinked.Load())
}
func (d *dentry) StateLoad(_ gocontext.Context, source state.Source) {
	load(source, d.fields())
	source.LoadValue(4, new(*dentry), func(v any) { d.parent.Store(v.(*dentry)) })
	source.LoadValue(5, new(int64), func(v any) { d.refs.Store(v.(int64)) })
	source.LoadValue(6, new(bool), func(v any) { d.unlinked.Store(v.(bool)) })
}

func (*inode) StateTypeName() string { return typePrefix + "inode" }
func (*inode) StateFields() []string {
	return []string{"fs", "ino", "refs", "saved", "locks", "watches", "pipe", "endpoint", "attr", "flags", "writable"}
}
func (i *inode) fields() []any {
	return []any{&i.fs, (*uint64)(&i.ino), &i.refs, &i.saved, &i.locks, &i.watches, &i.pipe, &i.endpoint}
}

// The flags of a saved inode.
const (
	flagNoted = 1 << iota
	flagNoCaps
	flagMapped
	flagNameless
)

func (i *inode) StateSave(sink state.Sink) {
	if i.saved == "" && !i.mappings.IsEmpty() {
		panic(fmt.Sprintf("inode %d is mapped, and was not there when the save was prepared", i.ino)) // the encoder makes it an error
	}
	save(sink, i.fields())
	sink.SaveValue(8, string(i.attr.Encode()))
	flags := uint8(0)
	if i.noted.Load() {
		flags |= flagNoted
	}
	if i.noCaps.Load() {
		flags |= flagNoCaps
	}
	if i.mapped.Load() {
		flags |= flagMapped
	}
	if i.nameless.Load() {
		flags |= flagNameless
	}
	sink.SaveValue(9, flags)
	sink.SaveValue(10, i.writable.Load())
}

func (i *inode) StateLoad(_ gocontext.Context, source state.Source) {
	load(source, i.fields())
	source.LoadValue(8, new(string), func(v any) {
		if err := i.attr.Decode([]byte(v.(string))); err != nil {
			panic(err) // the state's decoder makes it an error
		}
		i.mode.Store(i.attr.Mode)
	})
	source.LoadValue(9, new(uint8), func(v any) {
		flags := v.(uint8)
		i.noted.Store(flags&flagNoted != 0)
		i.noCaps.Store(flags&flagNoCaps != 0)
		i.mapped.Store(flags&flagMapped != 0)
		i.nameless.Store(flags&flagNameless != 0)
	})
	source.LoadValue(10, new(int64), func(v any) { i.writable.Store(v.(int64)) })
}

func (*fileFD) StateTypeName() string                                 { return typePrefix + "fileFD" }
func (*fileFD) StateFields() []string                                 { return []string{"vfsfd", "LockFD"} }
func (fd *fileFD) fields() []any                                      { return []any{&fd.vfsfd, &fd.LockFD} }
func (fd *fileFD) StateSave(sink state.Sink)                          { save(sink, fd.fields()) }
func (fd *fileFD) StateLoad(_ gocontext.Context, source state.Source) { load(source, fd.fields()) }

func (*regularFD) StateTypeName() string                                 { return typePrefix + "regularFD" }
func (*regularFD) StateFields() []string                                 { return []string{"fileFD", "off"} }
func (fd *regularFD) fields() []any                                      { return []any{&fd.fileFD, &fd.off} }
func (fd *regularFD) StateSave(sink state.Sink)                          { save(sink, fd.fields()) }
func (fd *regularFD) StateLoad(_ gocontext.Context, source state.Source) { load(source, fd.fields()) }

func (*directoryFD) StateTypeName() string                                 { return typePrefix + "directoryFD" }
func (*directoryFD) StateFields() []string                                 { return []string{"fileFD", "off", "last", "ended"} }
func (fd *directoryFD) fields() []any                                      { return []any{&fd.fileFD, &fd.off, &fd.last, &fd.ended} }
func (fd *directoryFD) StateSave(sink state.Sink)                          { save(sink, fd.fields()) }
func (fd *directoryFD) StateLoad(_ gocontext.Context, source state.Source) { load(source, fd.fields()) }
