package cow

import (
	gocontext "context"
	"encoding/binary"
	"fmt"
	"reflect"
	"unsafe"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/safemem"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	"gvisor.dev/gvisor/pkg/sentry/mm"
	"gvisor.dev/gvisor/pkg/state"
	"ramet.dev/ramet/internal/sentry/saved"
)

// Mapped keeps, while a kernel is saved, what its processes have mapped: all that is
// numbers in a string for each process, and what they refer to once for all of them. As
// gVisor saves it, field by field, it is a quarter of a usual state, and more of one with
// many processes.
type Mapped struct {
	memories []*mm.MemoryManager
	areas    []string // of each of memories: see areaNumbers
	pages    []string // likewise, see pieceNumbers

	// What areas refer to, by its place.
	objects    []memmap.Mappable
	identities []memmap.MappingIdentity
	names      []string
}

// Each area, a vma of gVisor, is so many numbers: the distance from the one before it, its
// length, and its fields; and each piece of memory, a pma. What is referred to is its place
// plus 1, or 0 for nothing.
const (
	areaNumbers  = 12
	pieceNumbers = 4
)

// TakeMapped takes out of the memory of k's processes what they have mapped, until restore
// is called. The kernel must be paused.
func (m *Memory) TakeMapped(ctx context.Context, k *kernel.Kernel) (mapped *Mapped, restore func(), err error) {
	return m.takeMapped(ctx, memories(k))
}

// HideMapped takes it out as TakeMapped does, but keeps it nowhere: for a moment in which nobody may
// look through it.
func HideMapped(k *kernel.Kernel) (restore func()) {
	var back []func()
	for _, memory := range memories(k) {
		back = append(back, empty(areasOf(memory)), empty(piecesOf(memory)))
	}
	return func() {
		for _, f := range back {
			f()
		}
	}
}

func (m *Memory) takeMapped(ctx context.Context, all []*mm.MemoryManager) (mapped *Mapped, restore func(), err error) {
	mapped = &Mapped{}
	t := taking{Mapped: mapped, file: m.mf, objects: places[memmap.Mappable]{}, identities: places[memmap.MappingIdentity]{}, names: places[string]{}}
	restore = func() {
		for _, f := range t.back {
			f()
		}
	}
	for _, memory := range all {
		// As a save does, which from now on finds nothing in it.
		if err := memory.InvalidateUnsavable(ctx); err != nil {
			restore()
			return nil, nil, fmt.Errorf("take what cannot be saved out of memory: %w", err)
		}
		if err := t.take(memory); err != nil {
			restore()
			return nil, nil, err
		}
	}
	return mapped, restore, nil
}

// taking is TakeMapped under way.
type taking struct {
	*Mapped
	file       memmap.File
	objects    places[memmap.Mappable]
	identities places[memmap.MappingIdentity]
	names      places[string]
	back       []func()
}

// places says where in a list something is.
type places[T comparable] map[T]int

// of returns the place of x plus 1, and adds x to the list if it is new. none has none.
func (p places[T]) of(x T, list *[]T) uint64 {
	var none T
	if x == none {
		return 0
	}
	place, ok := p[x]
	if !ok {
		place = len(*list)
		p[x] = place
		*list = append(*list, x)
	}
	return uint64(place) + 1
}

func (t *taking) take(memory *mm.MemoryManager) error {
	var areas, pages []byte
	add := func(b []byte, numbers ...uint64) []byte {
		for _, n := range numbers {
			b = binary.AppendUvarint(b, n)
		}
		return b
	}
	last := hostarch.Addr(0)
	for _, s := range segmentsOf[area](areasOf(memory)) {
		v := &s.Value
		areas = add(areas, uint64(s.Start-last), uint64(s.End-s.Start), v.off, v.flags(),
			uint64(v.mlockMode), uint64(uint32(v.numaPolicy)), v.numaNodemask, uint64(v.nameMut), uint64(v.lastFault),
			t.objects.of(v.mappable, &t.Mapped.objects), t.identities.of(v.id, &t.Mapped.identities), t.names.of(v.name, &t.Mapped.names))
		last = s.End
	}
	last = 0
	for _, s := range segmentsOf[piece](piecesOf(memory)) {
		p := &s.Value
		if p.file != t.file {
			return fmt.Errorf("save memory at %#x: it is of a %T", uint64(s.Start), p.file)
		}
		pages = add(pages, uint64(s.Start-last), uint64(s.End-s.Start), p.off, p.flags())
		last = s.End
	}
	t.memories, t.areas, t.pages = append(t.memories, memory), append(t.areas, string(areas)), append(t.pages, string(pages))
	t.back = append(t.back, empty(areasOf(memory)), empty(piecesOf(memory)))
	return nil
}

// PutMapped gives processes that were loaded with mapped what they had mapped.
func (m *Memory) PutMapped(mapped *Mapped) error {
	if len(mapped.areas) != len(mapped.memories) || len(mapped.pages) != len(mapped.memories) {
		return fmt.Errorf("what is mapped in %d and %d of %d processes", len(mapped.areas), len(mapped.pages), len(mapped.memories))
	}
	for i, memory := range mapped.memories {
		if memory == nil {
			return fmt.Errorf("mapped in no process")
		}
		areas, err := parseSegments(mapped.areas[i], areaNumbers, mapped.parseArea)
		if err == nil {
			err = setSegments(areasOf(memory), areas)
		}
		if err != nil {
			return fmt.Errorf("what a process has mapped: %w", err)
		}
		pieces, err := parseSegments(mapped.pages[i], pieceNumbers, func(n []uint64) (piece, error) {
			p := piece{file: m.mf, off: n[0]}
			return p, p.setFlags(n[1])
		})
		if err == nil {
			err = setSegments(piecesOf(memory), pieces)
		}
		if err != nil {
			return fmt.Errorf("memory of a process: %w", err)
		}
	}
	return nil
}

// parseArea reads the fields of an area.
func (mapped *Mapped) parseArea(n []uint64) (a area, err error) {
	if n[2] >= 1<<31 || n[3] >= 1<<32 || n[5] >= 1<<8 {
		return a, fmt.Errorf("its policies are %d, %d and %d", n[2], n[3], n[5])
	}
	a = area{off: n[0], mlockMode: memmap.MLockMode(n[2]), numaPolicy: linux.NumaPolicy(uint32(n[3])), numaNodemask: n[4],
		nameMut: memmap.NameMut(n[5]), lastFault: uintptr(n[6])}
	if err := a.setFlags(n[1]); err != nil {
		return a, err
	}
	if a.mappable, err = referred(mapped.objects, n[7]); err != nil {
		return a, err
	}
	if a.id, err = referred(mapped.identities, n[8]); err != nil {
		return a, err
	}
	a.name, err = referred(mapped.names, n[9])
	return a, err
}

// referred returns what is in list at a place that places.of returned.
func referred[T any](list []T, place uint64) (x T, err error) {
	if place > uint64(len(list)) {
		return x, fmt.Errorf("it refers to %d of %d", place, len(list))
	}
	if place > 0 {
		x = list[place-1]
	}
	return x, nil
}

// parseSegments reads segments of so many numbers each, of which parse gets those behind
// distance and length.
func parseSegments[T any](text string, numbers int, parse func([]uint64) (T, error)) ([]segment[T], error) {
	var segments []segment[T]
	end := hostarch.Addr(0)
	n := make([]uint64, numbers)
	for b := []byte(text); len(b) > 0; {
		for i := range n {
			size := 0
			if n[i], size = binary.Uvarint(b); size <= 0 {
				return nil, fmt.Errorf("it breaks off behind %#x", uint64(end))
			}
			b = b[size:]
		}
		start, ok := end.AddLength(n[0])
		var ar hostarch.AddrRange
		if ok {
			ar, ok = start.ToRange(n[1])
		}
		if !ok || n[1] == 0 || !ar.IsPageAligned() {
			return nil, fmt.Errorf("%#x bytes %#x behind %#x", n[1], n[0], uint64(end))
		}
		value, err := parse(n[2:])
		if err != nil {
			return nil, fmt.Errorf("at %#x: %w", uint64(start), err)
		}
		segments = append(segments, segment[T]{ar.Start, ar.End, value})
		end = ar.End
	}
	return segments, nil
}

// segment is what gVisor's generated sets (pkg/segment) export and import; area and piece
// are the fields of its vma and pma. TestCanaryMapped compares them.
type segment[T any] struct {
	Start, End hostarch.Addr
	Value      T
}

type area struct {
	mappable       memmap.Mappable
	off            uint64
	realPerms      hostarch.AccessType
	effectivePerms hostarch.AccessType
	maxPerms       hostarch.AccessType
	private        bool
	growsDown      bool
	isStack        bool
	dontfork       bool
	mlockMode      memmap.MLockMode
	numaPolicy     linux.NumaPolicy
	numaNodemask   uint64
	id             memmap.MappingIdentity
	name           string
	nameMut        memmap.NameMut
	lastFault      uintptr
}

type piece struct {
	file             memmap.File
	off              uint64
	translatePerms   hostarch.AccessType
	effectivePerms   hostarch.AccessType
	maxPerms         hostarch.AccessType
	needCOW          bool
	private          bool
	huge             bool
	internalMappings safemem.BlockSeq // made anew when it is needed
}

// flags returns what is true or false of an area as bits.
func (a *area) flags() uint64 { return bitsOf(a.switches()) }

func (a *area) setFlags(bits uint64) error { return setBits(a.switches(), bits) }

func (a *area) switches() []*bool {
	return []*bool{
		&a.realPerms.Read, &a.realPerms.Write, &a.realPerms.Execute,
		&a.effectivePerms.Read, &a.effectivePerms.Write, &a.effectivePerms.Execute,
		&a.maxPerms.Read, &a.maxPerms.Write, &a.maxPerms.Execute,
		&a.private, &a.growsDown, &a.isStack, &a.dontfork,
	}
}

func (p *piece) flags() uint64 { return bitsOf(p.switches()) }

func (p *piece) setFlags(bits uint64) error { return setBits(p.switches(), bits) }

func (p *piece) switches() []*bool {
	return []*bool{
		&p.translatePerms.Read, &p.translatePerms.Write, &p.translatePerms.Execute,
		&p.effectivePerms.Read, &p.effectivePerms.Write, &p.effectivePerms.Execute,
		&p.maxPerms.Read, &p.maxPerms.Write, &p.maxPerms.Execute,
		&p.needCOW, &p.private, &p.huge,
	}
}

func bitsOf(switches []*bool) (bits uint64) {
	for i, on := range switches {
		if *on {
			bits |= 1 << i
		}
	}
	return bits
}

func setBits(switches []*bool, bits uint64) error {
	if bits >= 1<<len(switches) {
		return fmt.Errorf("flags %#x", bits)
	}
	for i, on := range switches {
		*on = bits&(1<<i) != 0
	}
	return nil
}

// areasOf and piecesOf return the sets that gVisor has the mappings and the pages of a
// process in.
func areasOf(memory *mm.MemoryManager) reflect.Value {
	return setAt(reflect.ValueOf(memory).Elem().FieldByName("vmas"))
}

func piecesOf(memory *mm.MemoryManager) reflect.Value {
	return setAt(reflect.ValueOf(memory).Elem().FieldByName("pmas"))
}

// setAt returns a pointer to set by which its methods can be called.
func setAt(set reflect.Value) reflect.Value {
	return reflect.NewAt(set.Type(), unsafe.Pointer(set.UnsafeAddr()))
}

// segmentsOf returns what is in set, in ascending order.
func segmentsOf[T any](set reflect.Value) []segment[T] {
	all := set.MethodByName("ExportSlice").Call(nil)[0]
	return unsafe.Slice((*segment[T])(all.UnsafePointer()), all.Len())
}

// setSegments puts segments into set, which must be empty.
func setSegments[T any](set reflect.Value, segments []segment[T]) error {
	put := set.MethodByName("ImportSlice")
	all := reflect.NewAt(put.Type().In(0), unsafe.Pointer(&segments)).Elem()
	err, _ := put.Call([]reflect.Value{all})[0].Interface().(error)
	return err
}

// empty empties set. What is in its tree refers to its root, so restore has to put
// everything where it was.
func empty(set reflect.Value) (restore func()) {
	was := reflect.New(set.Type().Elem()).Elem()
	was.Set(set.Elem())
	set.Elem().SetZero()
	return func() { set.Elem().Set(was) }
}

// What follows is gVisor's contract of a type that can be saved.

// StateTypeName implements state.Type.
func (*Mapped) StateTypeName() string { return "ramet.dev/ramet/internal/sentry/cow.Mapped" }

// StateFields implements state.Type.
func (*Mapped) StateFields() []string {
	return []string{"memories", "areas", "pages", "objects", "identities", "names"}
}

// fields are in the order of StateFields.
func (mapped *Mapped) fields() []any {
	return []any{&mapped.memories, &mapped.areas, &mapped.pages, &mapped.objects, &mapped.identities, &mapped.names}
}

// StateSave implements state.SaverLoader.
func (mapped *Mapped) StateSave(sink state.Sink) { saved.Save(sink, mapped.fields()) }

// StateLoad implements state.SaverLoader.
func (mapped *Mapped) StateLoad(_ gocontext.Context, src state.Source) {
	saved.Load(src, mapped.fields())
}

func init() { state.Register((*Mapped)(nil)) }
