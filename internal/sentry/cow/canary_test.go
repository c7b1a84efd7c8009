package cow

import (
	"bytes"
	gocontext "context"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	"gvisor.dev/gvisor/pkg/sentry/mm"
	"gvisor.dev/gvisor/pkg/sentry/pgalloc"
	"gvisor.dev/gvisor/pkg/sentry/usage"

	"ramet.dev/ramet/internal/engine/snapfile"
)

// This file pins the internals of gVisor that copy-on-write memory relies on.
// Its tests fail when an upgrade changes one, and say what to look at. When all
// have been looked at, change pinned.

// pinned is the version that the other tests here were last read against.
const pinned = "v0.0.0-20260905035102-160fafc42237"

func TestCanaryVersion(t *testing.T) {
	if v := gvisorVersion(t); v != pinned {
		t.Errorf("gVisor is %s, and what this package and packages guest, brief and fpstate know of its insides is of %s.\n"+
			"Read the tests in this file, in package guest's canary_test.go and in package brief, and the comment of package fpstate, which is of systrap's "+
			"signal handler (sighandler.built-in.amd64.bin); compare them with the new sources, run them and the "+
			"suites in test, change manager's stateVersion if saved states differ, and only then change pinned.", v, pinned)
	}
}

func gvisorVersion(t *testing.T) string {
	t.Helper()
	const module = "gvisor.dev/gvisor"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == module {
				return m.Version
			}
		}
	}
	b, err := os.ReadFile("../../../go.mod") // test binaries may lack module information
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(regexp.QuoteMeta(module) + ` (\S+)`).FindSubmatch(b)
	if m == nil {
		t.Fatalf("go.mod does not require %s", module)
	}
	return string(m[1])
}

// at returns the type of a field of a field. A "*" follows a pointer and a "[]"
// an array or slice.
func at(root reflect.Type, path string) (reflect.Type, error) {
	typ := root
	for _, name := range strings.Split(path, ".") {
		switch name {
		case "*", "[]":
			if k := typ.Kind(); name == "*" && k != reflect.Pointer || name == "[]" && k != reflect.Array && k != reflect.Slice {
				return nil, fmt.Errorf("%v is no %s", typ, name)
			}
			typ = typ.Elem()
		default:
			if typ.Kind() != reflect.Struct {
				return nil, fmt.Errorf("%v has no fields", typ)
			}
			f, ok := typ.FieldByName(name)
			if !ok {
				return nil, fmt.Errorf("%v has no field %s", typ, name)
			}
			typ = f.Type
		}
	}
	return typ, nil
}

// tree are the fields of a generated B-tree (pkg/segment) that visit
// walks, below a path, with keys of that kind.
func tree(path string, key reflect.Kind) map[string]reflect.Kind {
	return map[string]reflect.Kind{
		path + ".root.nrSegments":             reflect.Int,
		path + ".root.hasChildren":            reflect.Bool,
		path + ".root.keys.[].Start":          key,
		path + ".root.keys.[].End":            key,
		path + ".root.values.[]":              reflect.Struct,
		path + ".root.children.[].*.keys":     reflect.Array,
		path + ".root.children.[].*.values":   reflect.Array,
		path + ".root.children.[].*.children": reflect.Array,
	}
}

// reached are the fields that this package reaches by reflection.
var reached = []struct {
	root   reflect.Type
	used   string
	fields []map[string]reflect.Kind
}{
	{reflect.TypeFor[mm.MemoryManager](), "visitPieces finds a process's pages, visitAreas its mappings", []map[string]reflect.Kind{
		tree("pmas", reflect.Uintptr), tree("vmas", reflect.Uintptr), {"activeMu": reflect.Struct, "mappingMu": reflect.Struct},
	}},
	{reflect.TypeFor[pgalloc.MemoryFile](), "bookCommitted keeps a save from touching frozen pages", []map[string]reflect.Kind{
		tree("memAcct", reflect.Uint64), {"knownCommittedBytes": reflect.Uint64, "haveWaste": reflect.Bool, "mu": reflect.Struct},
	}},
}

// TestCanaryFieldsAreAllNamed compares reached with the sources.
func TestCanaryFieldsAreAllNamed(t *testing.T) {
	named := map[string]bool{}
	for _, r := range reached {
		for _, fields := range r.fields {
			for path := range fields {
				for _, name := range strings.Split(path, ".") {
					named[name] = true
				}
			}
		}
	}
	sources, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, source := range sources {
		if strings.HasSuffix(source, "_test.go") {
			continue
		}
		b, err := os.ReadFile(source)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`FieldByName\("?(\w+)"?\)`).FindAllSubmatch(b, -1) {
			if found++; !named[string(m[1])] {
				t.Errorf("%s reaches for a field %s of gVisor's, which TestCanaryFields does not look for", source, m[1])
			}
		}
	}
	if found == 0 {
		t.Error("no field was found in the sources: the test proves nothing")
	}
}

func TestCanaryFields(t *testing.T) {
	for _, c := range reached {
		for _, fields := range c.fields {
			for path, kind := range fields {
				typ, err := at(c.root, path)
				if err == nil && typ.Kind() != kind {
					err = fmt.Errorf("it is a %v, not a %v", typ.Kind(), kind)
				}
				if err != nil {
					t.Errorf("%v.%s: %v.\n%s through it: see how gVisor keeps this now.", c.root, path, err, c.used)
				}
			}
		}
	}
	for name, root := range map[string]reflect.Type{
		"mu": reflect.TypeFor[pgalloc.MemoryFile](), "activeMu": reflect.TypeFor[mm.MemoryManager](), "mappingMu": reflect.TypeFor[mm.MemoryManager](),
	} {
		mu, err := at(root, name)
		if err != nil {
			t.Fatal(err)
		}
		for _, method := range []string{"Lock", "Unlock"} {
			if m, ok := reflect.PointerTo(mu).MethodByName(method); !ok || m.Type.NumIn() != 1 || m.Type.NumOut() != 0 {
				t.Errorf("%v.%s has no method %s(): lockerAt locks it by that", root, name, method)
			}
		}
	}
	for _, c := range []struct {
		root reflect.Type
		set  string
		ours reflect.Type
	}{
		{reflect.TypeFor[mm.MemoryManager](), "pmas", reflect.TypeFor[piece]()},
		{reflect.TypeFor[mm.MemoryManager](), "vmas", reflect.TypeFor[area]()},
		{reflect.TypeFor[pgalloc.MemoryFile](), "memAcct", reflect.TypeFor[account]()},
	} {
		key, err := at(c.root, c.set+".root.keys.[]")
		if err != nil || key.Size() != 16 {
			t.Errorf("a key of %v.%s is a %v (%v): visit takes it for two numbers", c.root, c.set, key, err)
		}
		value, err := at(c.root, c.set+".root.values.[]")
		if err != nil {
			t.Fatal(err)
		}
		sameFields(t, c.ours, value)
	}
}

// TestCanaryPinFreezes checks what Pin relies on: that a process copies a page that copyOnWrite has
// marked, and that has more than one reference, before it writes.
func TestCanaryPinFreezes(t *testing.T) {
	const n = 64
	mem := newMemory(t)
	p := newProcess(t, mem)
	addr := p.mmap(n)
	for i := range hostarch.Addr(n) {
		p.write(addr+i*page, fmt.Sprint("old ", i))
	}
	copyInSmallPieces(p.mm)
	private := normalize(copyOnWrite(nil, p.mm))
	if private.Bytes() < n*page {
		t.Fatalf("copyOnWrite finds %d bytes of %d that were written", private.Bytes(), n*page)
	}
	if sr, shared := firstShared(mem, private); shared {
		t.Fatalf("%v is shared before anything was pinned", sr)
	}
	if again := normalize(copyOnWrite(nil, p.mm)); !slices.Equal(again, private) {
		t.Errorf("a second freeze finds %v, not %v", again, private)
	}
	for _, r := range private {
		mem.mf.IncRef(r, 0) // the pin
	}

	p.write(addr, "new")
	if got := p.read(addr, 8) + "/" + p.read(addr+page, 8); got != "new 0/old 1" {
		t.Errorf("after the fork the source reads %q", got)
	}
	fresh := normalize(copyOnWrite(nil, p.mm))
	copied := uint64(0)
	for _, r := range fresh {
		private.minus(r, func(part memmap.FileRange) { copied += part.Length() })
	}
	if copied == 0 {
		t.Error("a write to a pinned page was not to a copy: children would see it")
	}
	const most = 16 * page
	if copied > most {
		t.Errorf("one written byte copied %d bytes, more than %d: see copyInSmallPieces and getPMAsInternalLocked", copied, most)
	}
	if got := readFrozen(t, mem, private[0], "old 0"); got != "old 0" {
		t.Errorf("the pinned page became %q", got)
	}
}

// TestCanaryMappingsSideBySide moves memory as one that was mapped piece by
// piece. Linux and gVisor make one mapping of the pieces if they are alike. What
// copyInSmallPieces has seen is not like what is mapped later, and mremap(2)
// refuses more than one mapping: the README says so.
func TestCanaryMappingsSideBySide(t *testing.T) {
	const n = 4
	mem := newMemory(t)
	p := newProcess(t, mem)
	beside := func(addr hostarch.Addr) hostarch.Addr {
		addr, err := p.mm.MMap(p.ctx, memmap.MMapOpts{Addr: addr - n*page, Length: n * page, Fixed: true, Unmap: true,
			Private: true, Perms: hostarch.ReadWrite, MaxPerms: hostarch.AnyAccess})
		if err != nil {
			t.Fatal(err)
		}
		p.write(addr, "beside")
		return addr
	}
	grow := func(addr hostarch.Addr, from, to uint64) (hostarch.Addr, error) {
		return p.mm.MRemap(p.ctx, addr, from*page, to*page, mm.MRemapOpts{Move: mm.MRemapMayMove})
	}
	before, err := grow(beside(p.mmap(n)), 2*n, 16*n)
	if err != nil {
		t.Fatalf("two mappings that are alike cannot be moved: %v", err)
	}
	copyInSmallPieces(p.mm)
	if _, err := grow(beside(before), 17*n, 18*n); !linuxerr.Equals(linuxerr.EFAULT, err) {
		t.Errorf("mappings from before and after a fork: %v, not EFAULT.\nIf they are moved now, the limit in the README is gone.", err)
	}
	// What was mapped at once stays one mapping, however it grows after a fork:
	// that is how realloc(3) uses it.
	for size := uint64(16 * n); size < 128*n; size *= 2 {
		if before, err = grow(before, size, 2*size); err != nil {
			t.Fatalf("a mapping from before the fork cannot grow to %d pages: %v", 2*size, err)
		}
	}
	if got := p.read(before, 6); got != "beside" {
		t.Errorf("the mapping has %q", got)
	}
}

// readFrozen returns the string of want's length at the start of a page of r, of
// which one begins with want if nothing changed it.
func readFrozen(t *testing.T, mem *Memory, r memmap.FileRange, want string) string {
	t.Helper()
	b := make([]byte, r.Length())
	if _, err := mem.file.ReadAt(b, int64(r.Start)); err != nil {
		t.Fatal(err)
	}
	found := ""
	for off := 0; off < len(b); off += page {
		found = string(b[off : off+len(want)])
		if found == want {
			return found
		}
	}
	return found
}

func firstShared(mem *Memory, rs Ranges) (memmap.FileRange, bool) {
	for _, r := range rs {
		if sr, ok := mem.mf.FirstSharedRange(r); ok {
			return sr, true
		}
	}
	return memmap.FileRange{}, false
}

// allocate allocates pages and writes to the first half of them.
func allocate(t *testing.T, mem *Memory, n uint64, text string) memmap.FileRange {
	t.Helper()
	// Segments with different owners stay apart in the account.
	fr, err := mem.mf.Allocate(n*page, pgalloc.AllocOpts{Kind: usage.Anonymous, MemCgID: 1})
	if err != nil {
		t.Fatal(err)
	}
	blocks, err := mem.mf.MapInternal(memmap.FileRange{Start: fr.Start, End: fr.Start + n/2*page}, hostarch.ReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	for b := blocks.Head(); ; b = blocks.Head() {
		s := b.ToSlice()
		for off := 0; off < len(s); off += page {
			copy(s[off:], text)
		}
		if blocks = blocks.Tail(); blocks.IsEmpty() {
			return fr
		}
	}
}

// save saves mem's memory file as a kernel does.
func save(t *testing.T, mem *Memory, w *Writer) []byte {
	t.Helper()
	var meta bytes.Buffer
	done := make(chan error, 1)
	pages, err := pgalloc.StartAsyncPagesFileSave(w, func(err error) { done <- err })
	if err != nil {
		t.Fatal(err)
	}
	if err := mem.mf.SaveTo(gocontext.Background(), &meta, &pgalloc.SaveOpts{PagesFile: pages}); err != nil {
		t.Fatal(err)
	}
	pages.MemoryFilesDone()
	if err := <-done; err != nil {
		t.Fatalf("save: %v.\nIf it complains of vectored writes, MaxRanges() of 1 no longer means AddWrite only.", err)
	}
	return meta.Bytes()
}

func load(t *testing.T, mem *Memory, meta []byte, r *Reader) {
	t.Helper()
	done := make(chan error, 1)
	pages, err := pgalloc.StartAsyncPagesFileLoad(r, func(err error) { done <- err }, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := mem.mf.LoadFrom(gocontext.Background(), bytes.NewReader(meta), &pgalloc.LoadOpts{PagesFile: pages}); err != nil {
		t.Fatal(err)
	}
	pages.MemoryFilesDone()
	if err := <-done; err != nil {
		t.Fatalf("load: %v", err)
	}
}

// textAt returns what the kernel reads at the start of a page.
func textAt(t *testing.T, mem *Memory, off uint64, n int) string {
	t.Helper()
	blocks, err := mem.mf.MapInternal(memmap.FileRange{Start: off, End: off + page}, hostarch.Read)
	if err != nil {
		t.Fatal(err)
	}
	return string(blocks.Head().ToSlice()[:n])
}

// TestCanarySaveAndLoad sends a memory file with frozen, shared and forgotten
// pages through a save and a load: frozen pages must not be written but mapped
// from their generation, references must be saved, and Settle must leave one on
// what was inherited and none on what nobody has.
func TestCanarySaveAndLoad(t *testing.T) {
	parent := newMemory(t)
	shared := allocate(t, parent, 8, "shared")
	frozen := allocate(t, parent, 8, "frozen")
	dead := allocate(t, parent, 8, "dead--")
	for _, r := range []memmap.FileRange{frozen, frozen, dead} {
		parent.mf.IncRef(r, 0) // two pins that hold the first, one the other
	}
	parent.mf.DecRef(dead) // no process has it any more
	drop := normalize([]memmap.FileRange{frozen, dead})
	before := blocksOf(t, parent)
	parent.bookCommitted(drop)
	file := newFile(t, nil)
	w := NewWriter(&Pinned{drop: drop}, file, 0, nil, func() {})
	meta := save(t, parent, w)
	if after := blocksOf(t, parent); after > before {
		t.Errorf("the save made the memory grow from %d to %d bytes: it touched frozen pages, see bookCommitted", before, after)
	}
	for _, r := range w.Copies() {
		if !memmap.FileRange(r).IsSupersetOf(shared) && !shared.IsSupersetOf(memmap.FileRange(r)) {
			t.Errorf("%v was written, which is not in %v: AddWrite gets file ranges only if NeedRegisterSourceFD is true", r, shared)
		}
	}
	if w.End() == 0 {
		t.Fatal("nothing was written: AddWrite was not called")
	}
	content := make([]byte, w.End())
	if _, err := file.ReadAt(content, 0); err != nil {
		t.Fatal(err)
	}

	child := newMemory(t)
	child.Inherit(Table{{Range: rangeOf(frozen)}}, []Generation{{Name: "parent", File: parent.file}})
	load(t, child, meta, NewReader(child, w.Copies(), content))
	if got := textAt(t, child, shared.Start, 6); got != "shared" {
		t.Errorf("the child's copied page has %q", got)
	}
	if got := textAt(t, child, frozen.Start, 6); got != "frozen" {
		t.Errorf("the child's frozen page has %q: AddRead did not map it from its generation", got)
	}
	if own := blocksOf(t, child); own > shared.Length() {
		t.Errorf("the child has %d bytes of its own, more than the %d that are not frozen", own, shared.Length())
	}

	child.Settle([]snapfile.Held{{Range: rangeOf(frozen), Refs: 2}, {Range: rangeOf(dead), Refs: 1}})
	if sr, ok := child.mf.FirstSharedRange(shared); ok {
		t.Errorf("%v has a reference too many", sr)
	}
	// One is the process's, one stays so that it copies before it writes. The
	// parent's second pin must be gone.
	if sr, _ := child.mf.FirstSharedRange(frozen); sr != frozen {
		t.Errorf("only %v of %v is still frozen", sr, frozen)
	}
	child.mf.DecRef(frozen)
	if sr, ok := child.mf.FirstSharedRange(frozen); ok {
		t.Errorf("%v is held by a pin of the parent's", sr)
	}
	again, err := child.mf.Allocate(dead.Length(), pgalloc.AllocOpts{Kind: usage.Anonymous})
	if err != nil {
		t.Fatal(err)
	}
	if got := textAt(t, child, again.Start, 1); got != "\x00" {
		t.Errorf("new memory has %q", got)
	}
}

// TestCanaryAccounting books frozen pages as in use, frees them and checks that
// the account is even: gVisor panics if it gets below nothing.
func TestCanaryAccounting(t *testing.T) {
	mem := newMemory(t)
	_, before := usage.MemoryAccounting.Copy()
	all := []memmap.FileRange{allocate(t, mem, 8, "a"), allocate(t, mem, 4, "b"), allocate(t, mem, 2, "c")}
	mem.bookCommitted(normalize(slices.Clone(all)))
	mem.bookCommitted(normalize(slices.Clone(all))) // a second freeze
	if _, booked := usage.MemoryAccounting.Copy(); booked-before != 14*page {
		t.Errorf("%d bytes are booked, not %d", booked-before, 14*page)
	}
	save(t, mem, NewWriter(&Pinned{}, newFile(t, nil), 0, nil, func() {})) // restructures the account
	for _, r := range all {
		mem.mf.DecRef(r)
	}
	// A save waits until freed pages are back.
	save(t, mem, NewWriter(&Pinned{}, newFile(t, nil), 0, nil, func() {}))
	if _, after := usage.MemoryAccounting.Copy(); after != before {
		t.Errorf("%d bytes are booked for nothing", after-before)
	}
}

// TestFindCommitted checks that pages in use are found whoever has them: what is
// not found is searched for during the pause.
func TestFindCommitted(t *testing.T) {
	mem := newMemory(t)
	_, before := usage.MemoryAccounting.Copy()
	allocate(t, mem, 64, "used") // by control group 1, half of it
	if err := mem.FindCommitted(); err != nil {
		t.Fatal(err)
	}
	if _, found := usage.MemoryAccounting.Copy(); found-before != 32*page {
		t.Errorf("%d bytes are found in use, not %d", found-before, 32*page)
	}
	if ids := mem.owners(); len(ids) != 1 {
		t.Errorf("the owners of the memory are %v", ids)
	}
}

func blocksOf(t *testing.T, mem *Memory) uint64 {
	t.Helper()
	n, err := mem.mf.TotalUsage()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func rangeOf(r memmap.FileRange) snapfile.Range { return snapfile.Range(r) }
