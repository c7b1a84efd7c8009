package aside

import (
	gocontext "context"
	"reflect"
	"unsafe"

	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/safemem"
	"gvisor.dev/gvisor/pkg/sentry/arch/fpu"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/kernel/pipe"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
	"gvisor.dev/gvisor/pkg/state"
	"gvisor.dev/gvisor/pkg/tcpip/stack"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/sentry/cow"
	"ramet.dev/ramet/internal/sentry/kern"
	"ramet.dev/ramet/internal/sentry/saved"
	"ramet.dev/ramet/internal/sentry/uplink"
)

// Key names the State in the kernel's saved state.
const Key = "ramet.sidestate"

// State keeps, while the kernel is saved, the bytes that gVisor would save one by one: each
// byte of a slice is an object of its own, which takes as long to write and to read as
// any other. The registers of a thread are 4096 objects, the buffer of a pipe is up to a
// million even when it is empty: two thirds of a usual state. A string is a single object.
type State struct {
	tasks     []*kernel.Task
	registers []string // of each of tasks: its fpu.State
	pipes     []*pipe.Pipe
	contents  []string // of each of pipes
	mapped    *cow.Mapped
	counters  string // of the network, see takeCounters
	// Detached are the mount points to mount again.
	Detached []string
	// Connected says that there was an interface to the outside.
	Connected bool
}

// Take takes the side state out of the kernel, the interfaces, which a child makes
// anew, and the connections to the outside, which it does not have. The kernel must be paused
// until restore has been called. sockets returns all sockets of the kernel, others are the stacks of its other network
// namespaces.
func Take(ctx context.Context, k *kern.Kernel, mem *cow.Memory, sockets func() []*kernel.SocketRecord, others []*stack.Stack) (a *State, restore func(), err error) {
	mapped, restoreMapped, err := mem.TakeMapped(ctx, k.Kernel)
	if err != nil {
		return nil, nil, err
	}
	network := k.NetStack()
	restoreConnections := uplink.TakeConnections(ctx, network, sockets, others)
	counters, restoreStack := TakeStack(network)
	a = &State{mapped: mapped, counters: counters}
	back := []func(){restoreMapped, restoreConnections, restoreStack}
	tables, taken := map[*kernel.FDTable]bool{}, map[*pipe.Pipe]bool{}
	for _, t := range k.TaskSet().Root.Tasks() {
		var files *kernel.FDTable
		t.WithMuLocked(func(t *kernel.Task) {
			files = t.FDTable()
			back = append(back, a.takeRegisters(t, t.Arch().FloatingPointData()))
		})
		if tables[files] {
			continue
		}
		tables[files] = true
		files.ForEach(ctx, func(_ int32, f *vfs.FileDescription, _ kernel.FDFlags) bool {
			if end, ok := f.Impl().(*pipe.VFSPipeFD); ok && !taken[end.Pipe()] {
				taken[end.Pipe()] = true
				back = append(back, a.takeContents(end.Pipe()))
			}
			return true
		})
	}
	return a, func() {
		for _, f := range back {
			f()
		}
	}, nil
}

func (a *State) takeRegisters(t *kernel.Task, registers *fpu.State) (restore func()) {
	was := *registers
	a.tasks, a.registers = append(a.tasks, t), append(a.registers, string(was))
	*registers = noRegisters
	return func() { *registers = was }
}

func (a *State) takeContents(p *pipe.Pipe) (restore func()) {
	b := bufferOf(p)
	buf, off := *b.buf, *b.off
	a.pipes, a.contents = append(a.pipes, p), append(a.contents, b.contents())
	*b.buf, *b.off = nil, 0
	return func() { *b.buf, *b.off = buf, off }
}

// Restore puts the bytes into the kernel that was loaded with a.
func (a *State) Restore(mem *cow.Memory) error {
	if len(a.registers) != len(a.tasks) || len(a.contents) != len(a.pipes) {
		return api.Errorf(api.CodeCorrupt, "saved state has the registers of %d of %d threads and the contents of %d of %d pipes", len(a.registers), len(a.tasks), len(a.contents), len(a.pipes))
	}
	for i, t := range a.tasks {
		if t == nil || len(a.registers[i]) < len(noRegisters) {
			return api.Errorf(api.CodeCorrupt, "saved state has registers of no thread")
		}
		if err := setRegisters(t.Arch().FloatingPointData(), a.registers[i]); err != nil {
			return err
		}
	}
	for i, p := range a.pipes {
		if p == nil || !bufferOf(p).fill(a.contents[i]) {
			return api.Errorf(api.CodeCorrupt, "saved state has other contents of a pipe than it says")
		}
	}
	if a.mapped == nil {
		return api.Errorf(api.CodeCorrupt, "saved state does not say what is mapped")
	}
	if err := mem.PutMapped(a.mapped); err != nil {
		return api.Errorf(api.CodeCorrupt, "saved state: %w", err)
	}
	return nil
}

// pipeBuffer is the fields of a pipe that have its contents: size bytes from off on in buf,
// which is a ring. blocks and seq describe buf as well.
type pipeBuffer struct {
	buf       *[]byte
	blocks    *[2]safemem.Block
	seq       *safemem.BlockSeq
	off, size *int64
}

// bufferOf returns the buffer of p. gVisor has no accessors for it.
func bufferOf(p *pipe.Pipe) pipeBuffer {
	v := reflect.ValueOf(p).Elem()
	return pipeBuffer{
		buf:    (*[]byte)(unsafe.Pointer(v.FieldByName("buf").UnsafeAddr())),
		blocks: (*[2]safemem.Block)(unsafe.Pointer(v.FieldByName("bufBlocks").UnsafeAddr())),
		seq:    (*safemem.BlockSeq)(unsafe.Pointer(v.FieldByName("bufBlockSeq").UnsafeAddr())),
		off:    (*int64)(unsafe.Pointer(v.FieldByName("off").UnsafeAddr())),
		size:   (*int64)(unsafe.Pointer(v.FieldByName("size").UnsafeAddr())),
	}
}

func (b pipeBuffer) contents() string {
	ring, from, n := *b.buf, *b.off, *b.size
	if first := ring[from:]; n > int64(len(first)) {
		return string(first) + string(ring[:n-int64(len(first))])
	}
	return string(ring[from : from+n])
}

// fill gives contents to a pipe that was saved without. It returns false if they are
// not as many as the pipe says.
func (b pipeBuffer) fill(contents string) bool {
	if int64(len(contents)) != *b.size || *b.off != 0 || len(*b.buf) != 0 {
		return false
	}
	*b.buf = []byte(contents)
	b.blocks[0] = safemem.BlockFromSafeSlice(*b.buf)
	b.blocks[1] = b.blocks[0]
	*b.seq = safemem.BlockSeqFromSlice(b.blocks[:])
	return true
}

func (*State) StateTypeName() string { return "ramet.dev/ramet/internal/sentry/aside.State" }
func (*State) StateFields() []string {
	return []string{"tasks", "registers", "pipes", "contents", "mapped", "counters", "Detached", "Connected"}
}

// fields are in the order of StateFields.
func (a *State) fields() []any {
	return []any{&a.tasks, &a.registers, &a.pipes, &a.contents, &a.mapped, &a.counters, &a.Detached, &a.Connected}
}
func (a *State) StateSave(sink state.Sink)                          { saved.Save(sink, a.fields()) }
func (a *State) StateLoad(_ gocontext.Context, source state.Source) { saved.Load(source, a.fields()) }

func init() { state.Register((*State)(nil)) }
