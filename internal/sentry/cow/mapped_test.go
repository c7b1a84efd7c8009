package cow

import (
	"bytes"
	gocontext "context"
	"math/rand/v2"
	"reflect"
	"testing"

	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/kernel/shm"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	"gvisor.dev/gvisor/pkg/sentry/mm"
	"gvisor.dev/gvisor/pkg/state"
)

// TestCanaryMapped compares the fields that are read and written here with gVisor's.
func TestCanaryMapped(t *testing.T) {
	memory := &mm.MemoryManager{}
	for _, c := range []struct {
		set  reflect.Value
		ours reflect.Type
	}{{areasOf(memory), reflect.TypeFor[segment[area]]()}, {piecesOf(memory), reflect.TypeFor[segment[piece]]()}} {
		export, import_ := c.set.MethodByName("ExportSlice"), c.set.MethodByName("ImportSlice")
		if !export.IsValid() || !import_.IsValid() {
			t.Fatalf("%v has no methods ExportSlice and ImportSlice any more", c.set.Type())
		}
		theirs := export.Type().Out(0)
		if theirs.Kind() != reflect.Slice || import_.Type().In(0) != theirs || import_.Type().Out(0) != reflect.TypeFor[error]() {
			t.Fatalf("%v exports %v and imports by %v", c.set.Type(), theirs, import_.Type())
		}
		sameFields(t, c.ours, theirs.Elem())
	}
}

func sameFields(t *testing.T, ours, theirs reflect.Type) {
	t.Helper()
	if ours.Size() != theirs.Size() || ours.NumField() != theirs.NumField() {
		t.Fatalf("%v has %d fields in %d bytes, %v %d in %d", theirs, theirs.NumField(), theirs.Size(), ours, ours.NumField(), ours.Size())
	}
	for i := range ours.NumField() {
		o, g := ours.Field(i), theirs.Field(i)
		if o.Name != g.Name || o.Offset != g.Offset {
			t.Errorf("field %s of %v at %d is %s at %d here", g.Name, theirs, g.Offset, o.Name, o.Offset)
		}
		if o.Name == "Value" {
			sameFields(t, o.Type, g.Type)
		} else if o.Type != g.Type {
			t.Errorf("field %s of %v is a %v, not a %v", g.Name, theirs, g.Type, o.Type)
		}
	}
}

// TestMappedComesBack takes out of processes what they have mapped, puts it back, and
// gives it to others.
func TestMappedComesBack(t *testing.T) {
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 0))
		mem := newMemory(t)
		shared := []*shm.Shm{{}, {}}
		var all, others []*mm.MemoryManager
		for range 1 + r.IntN(3) {
			p := newProcess(t, mem)
			fillRandomly(r, p, shared)
			all, others = append(all, p.mm), append(others, newProcess(t, mem).mm)
		}
		areas, pieces := exported(all)
		mapped, restore, err := mem.takeMapped(newProcess(t, mem).ctx, all)
		if err != nil {
			t.Fatal(err)
		}
		if a, p := exported(all); count(a)+count(p) != 0 {
			t.Fatalf("%d areas and %d pieces are left", count(a), count(p))
		}
		restore()
		if a, p := exported(all); !reflect.DeepEqual(a, areas) || !reflect.DeepEqual(p, pieces) {
			t.Fatalf("seed %d: other things are put back than were taken", seed)
		}
		if len(mapped.objects) > len(shared) || len(mapped.names) > 2 {
			t.Errorf("%d objects and names %q are kept", len(mapped.objects), mapped.names)
		}
		mapped.memories = others
		if err := mem.PutMapped(mapped); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for _, of := range pieces {
			for i := range of {
				of[i].Value.internalMappings = piece{}.internalMappings
			}
		}
		if a, p := exported(others); !reflect.DeepEqual(a, areas) || !reflect.DeepEqual(p, pieces) {
			t.Fatalf("seed %d: %+v and %+v come back as %+v and %+v", seed, areas, pieces, a, p)
		}
		if err := mem.PutMapped(mapped); err == nil && count(areas) > 0 {
			t.Error("what is mapped goes where there is something")
		}
		for _, m := range others { // which hold no references on what they were given
			empty(areasOf(m))
			empty(piecesOf(m))
		}
	}
}

// fillRandomly maps and touches what a process may have mapped, and sets every field of it.
func fillRandomly(r *rand.Rand, p *process, shared []*shm.Shm) {
	for range r.IntN(20) {
		at := p.mmap(uint64(1 + r.IntN(40)))
		p.write(at, "touched")
	}
	set := areasOf(p.mm)
	areas := segmentsOf[area](set)
	for i := range areas {
		a := &areas[i].Value
		for _, on := range a.switches() {
			*on = r.IntN(2) == 0
		}
		a.lastFault, a.numaNodemask = uintptr(r.Uint64()), r.Uint64()
		a.mlockMode, a.nameMut = memmap.MLockMode(r.IntN(3)), memmap.NameMut(r.IntN(3))
		a.numaPolicy = -1
		a.name = []string{"", "[heap]", "two words"}[r.IntN(3)]
		if r.IntN(2) == 0 {
			s := shared[r.IntN(len(shared))]
			a.mappable, a.id, a.off = s, s, uint64(r.IntN(9))*page
		}
	}
	empty(set)
	if err := setSegments(set, areas); err != nil {
		p.t.Fatal(err)
	}
	set = piecesOf(p.mm)
	pieces := segmentsOf[piece](set)
	for i := range pieces {
		for _, on := range pieces[i].Value.switches() {
			*on = r.IntN(2) == 0
		}
	}
	empty(set)
	if err := setSegments(set, pieces); err != nil {
		p.t.Fatal(err)
	}
}

func exported(all []*mm.MemoryManager) (areas [][]segment[area], pieces [][]segment[piece]) {
	for _, m := range all {
		areas, pieces = append(areas, segmentsOf[area](areasOf(m))), append(pieces, segmentsOf[piece](piecesOf(m)))
	}
	return areas, pieces
}

func count[T any](lists [][]segment[T]) (n int) {
	for _, l := range lists {
		n += len(l)
	}
	return n
}

// TestMappedIsSaved checks the methods that are written by hand here and generated in
// gVisor.
func TestMappedIsSaved(t *testing.T) {
	mapped := &Mapped{areas: []string{"a"}, pages: []string{"p", ""}, names: []string{"n"}}
	if typ := reflect.TypeFor[Mapped](); mapped.StateTypeName() != typ.PkgPath()+"."+typ.Name() {
		t.Errorf("it is saved as %q", mapped.StateTypeName())
	}
	typ := reflect.TypeFor[Mapped]()
	if len(mapped.fields()) != typ.NumField() || len(mapped.StateFields()) != typ.NumField() {
		t.Fatalf("%d of %d fields are saved", len(mapped.fields()), typ.NumField())
	}
	for i, name := range mapped.StateFields() {
		if typ.Field(i).Name != name {
			t.Errorf("field %d is saved as %s", i, name)
		}
	}
	var buf bytes.Buffer
	if _, err := state.Save(gocontext.Background(), &buf, mapped); err != nil {
		t.Fatal(err)
	}
	var back Mapped
	if _, err := state.Load(gocontext.Background(), &buf, &back); err != nil || !reflect.DeepEqual(&back, mapped) {
		t.Errorf("%+v, %v comes back", back, err)
	}
}

// TestDamagedMapped gives processes what no save has written.
func TestDamagedMapped(t *testing.T) {
	mem := newMemory(t)
	one := []*mm.MemoryManager{newProcess(t, mem).mm}
	piece := string([]byte{0x80, 0x20, 0x80, 0x20, 0, 0}) // 4096 bytes at 4096
	area := piece + "\x00\x00\x00\x00\x00\x00\x00\x00"
	for what, m := range map[string]Mapped{
		"no areas":           {memories: one, pages: []string{""}},
		"no pieces":          {memories: one, areas: []string{""}},
		"no process":         {memories: []*mm.MemoryManager{nil}, areas: []string{""}, pages: []string{""}},
		"half an area":       {memories: one, areas: []string{area[:9]}, pages: []string{""}},
		"an empty area":      {memories: one, areas: []string{"\x80\x20\x00" + area[4:]}, pages: []string{""}},
		"an odd place":       {memories: one, areas: []string{"\x81\x20" + area[2:]}, pages: []string{""}},
		"unknown flags":      {memories: one, areas: []string{area[:5] + "\x80\x80\x01" + area[6:]}, pages: []string{""}},
		"a missing object":   {memories: one, areas: []string{area[:len(area)-3] + "\x01\x00\x00"}, pages: []string{""}},
		"a missing name":     {memories: one, areas: []string{area[:len(area)-1] + "\x01"}, pages: []string{""}},
		"unknown permission": {memories: one, areas: []string{""}, pages: []string{piece[:5] + "\x80\x20"}},
		"half a piece":       {memories: one, areas: []string{""}, pages: []string{piece[:5]}},
		"around the end": {memories: one, areas: []string{""},
			pages: []string{"\x80\xe0\xff\xff\xff\xff\xff\xff\xff\x01\x80\x40\x00\x00"}},
	} {
		if err := mem.PutMapped(&m); err == nil {
			t.Errorf("%s: no error", what)
		}
		empty(areasOf(one[0]))
		empty(piecesOf(one[0]))
	}
	if err := mem.PutMapped(&Mapped{memories: one, areas: []string{area}, pages: []string{piece}}); err != nil {
		t.Errorf("the undamaged one: %v", err)
	}
	empty(areasOf(one[0]))
	empty(piecesOf(one[0]))
}

func FuzzMapped(f *testing.F) {
	f.Add([]byte("\x80\x20\x80\x20\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, saved []byte) {
		mapped := &Mapped{names: []string{"x"}}
		areas, err := parseSegments(string(saved), areaNumbers, mapped.parseArea)
		if err != nil {
			return
		}
		end := hostarch.Addr(0)
		for _, a := range areas {
			if a.Start < end || a.End <= a.Start {
				t.Fatalf("%v behind %#x", a, uint64(end))
			}
			end = a.End
		}
	})
}
