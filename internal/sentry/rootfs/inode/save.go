package inode

import (
	gocontext "context"
	"fmt"

	"gvisor.dev/gvisor/pkg/sentry/memmap"
	"gvisor.dev/gvisor/pkg/state"

	"ramet.dev/ramet/internal/sentry/saved"
	"ramet.dev/ramet/internal/storage/cowfs"
)

// A saved table is its inodes and the state of the tree. gVisor generates methods like those
// below with a tool that is not in its module.

// liveInodes is the part of a table that exists while a state is saved or restored.
type liveInodes struct {
	all  []*Inode
	tree cowfs.State
	// spaces are the address spaces that files are mapped in: see savemaps.go.
	spaces []memmap.MappingSpace
}

// PrepareSave collects the saved objects. The tree must have been pinned, and nothing may have
// changed since.
func (t *Table) PrepareSave() error {
	if err := t.Flush(); err != nil {
		return fmt.Errorf("write attributes of files: %w", err)
	}
	t.live = liveInodes{tree: t.tree.State()}
	places := map[memmap.MappingSpace]int{} // in t.live.spaces
	for _, i := range t.inodes {
		t.live.all = append(t.live.all, i)
		i.saved = t.live.pack(i, places)
	}
	return nil
}

// BeforeResume forgets what PrepareSave collected.
func (t *Table) BeforeResume() {
	for _, i := range t.live.all {
		i.saved = ""
	}
	t.live = liveInodes{}
}

// SavedTree returns the state of the tree that a restored table needs.
func (t *Table) SavedTree() cowfs.State { return t.live.tree }

// CompleteRestore gives a restored table, which has its tree, its inodes.
func (t *Table) CompleteRestore() error {
	for _, i := range t.live.all {
		if err := t.live.unpack(i); err != nil {
			return err
		}
		t.inodes[i.ino] = i
		if i.refs == 0 {
			t.markDirty(i.ino) // see DecRef
		}
	}
	t.live = liveInodes{}
	return nil
}

const typePrefix = "ramet.dev/ramet/internal/sentry/rootfs/inode."

func init() {
	state.Register((*Table)(nil))
	state.Register((*Inode)(nil))
}

// StateTypeName implements state.Type.StateTypeName.
func (*Table) StateTypeName() string { return typePrefix + "Table" }

// StateFields implements state.Type.StateFields.
func (*Table) StateFields() []string {
	return []string{"clock", "devMinor", "inodes", "treeRoot", "nextIno", "blocks", "limit", "spaces"}
}

func (t *Table) fields() []any {
	s := &t.live.tree
	return []any{&t.clock, &t.devMinor, &t.live.all, (*uint64)(&s.Root), (*uint64)(&s.NextIno), &s.Blocks, &s.Limit, &t.live.spaces}
}

// StateSave implements state.SaverLoader.StateSave.
func (t *Table) StateSave(sink state.Sink) { saved.Save(sink, t.fields()) }

// StateLoad implements state.SaverLoader.StateLoad.
func (t *Table) StateLoad(_ gocontext.Context, source state.Source) { saved.Load(source, t.fields()) }

// StateTypeName implements state.Type.StateTypeName.
func (*Inode) StateTypeName() string { return typePrefix + "Inode" }

// StateFields implements state.Type.StateFields.
func (*Inode) StateFields() []string {
	return []string{"table", "ino", "refs", "saved", "Locks", "Watches", "pipe", "Endpoint", "attr", "flags", "writable"}
}

func (i *Inode) fields() []any {
	return []any{&i.table, (*uint64)(&i.ino), &i.refs, &i.saved, &i.Locks, &i.Watches, &i.pipe, &i.Endpoint}
}

// The flags of a saved inode.
const (
	flagNoted = 1 << iota
	flagNoCaps
	flagMapped
	flagNameless
)

// StateSave implements state.SaverLoader.StateSave.
func (i *Inode) StateSave(sink state.Sink) {
	if i.saved == "" && !i.mappings.IsEmpty() {
		panic(fmt.Sprintf("inode %d is mapped, and was not there when the save was prepared", i.ino)) // the encoder makes it an error
	}
	saved.Save(sink, i.fields())
	sink.SaveValue(8, string(i.attr.Encode()))
	flags := uint8(0)
	if i.Noted.Load() {
		flags |= flagNoted
	}
	if i.noCaps.Load() {
		flags |= flagNoCaps
	}
	if i.mapped.Load() {
		flags |= flagMapped
	}
	if i.Nameless.Load() {
		flags |= flagNameless
	}
	sink.SaveValue(9, flags)
	sink.SaveValue(10, i.writable.Load())
}

// StateLoad implements state.SaverLoader.StateLoad.
func (i *Inode) StateLoad(_ gocontext.Context, source state.Source) {
	saved.Load(source, i.fields())
	source.LoadValue(8, new(string), func(v any) {
		if err := i.attr.Decode([]byte(v.(string))); err != nil {
			panic(err) // the state's decoder makes it an error
		}
		i.mode.Store(i.attr.Mode)
	})
	source.LoadValue(9, new(uint8), func(v any) {
		flags := v.(uint8)
		i.Noted.Store(flags&flagNoted != 0)
		i.noCaps.Store(flags&flagNoCaps != 0)
		i.mapped.Store(flags&flagMapped != 0)
		i.Nameless.Store(flags&flagNameless != 0)
	})
	source.LoadValue(10, new(int64), func(v any) { i.writable.Store(v.(int64)) })
}
