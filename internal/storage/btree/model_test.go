package btree

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"ramet.dev/ramet/internal/storage/pages"
	"ramet.dev/ramet/internal/storage/pages/pagestest"
)

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }

// treePages calls fn for every node of a tree in a store.
func treePages(t testing.TB, s *pages.Store, root pages.Page, fn func(pages.Page)) {
	t.Helper()
	if err := OpenTree(s, root).Check(fn); err != nil {
		t.Fatal(err)
	}
}

// modelExtent is pages of data, all filled with one number.
type modelExtent struct {
	p    pages.Page
	n    int
	born uint32
	fill uint64
}

// modelState is what a tree has at one moment.
type modelState struct {
	root    pages.Page
	keys    map[string]string
	extents map[pages.Page]modelExtent
}

type modelPin struct {
	modelState
	segs []pages.Segment
	base pages.Page
}

// modelStore is a store with a tree, next to what they should be.
type modelStore struct {
	t     testing.TB
	r     *rand.Rand
	s     *pages.Store
	tree  *Tree
	state modelState
	pins  map[string]modelPin
	held  map[string]bool // pins that children need
	ids   int
	style int // of keys
	next  int // key of a sequence
}

func newModel(t testing.TB, r *rand.Rand, base pages.Page, inherited []pages.Segment, from modelState) *modelStore {
	s := pagestest.Store(t, base, inherited)
	m := &modelStore{t: t, r: r, s: s, tree: OpenTree(s, from.root), pins: map[string]modelPin{}, held: map[string]bool{}, style: r.IntN(5)}
	m.state = modelState{from.root, map[string]string{}, map[pages.Page]modelExtent{}}
	maps.Copy(m.state.keys, from.keys)
	maps.Copy(m.state.extents, from.extents)
	return m
}

func (m *modelStore) key() []byte {
	switch m.style {
	case 0: // sequence, with some of before
		m.next++
		if m.r.IntN(3) > 0 {
			return binary.BigEndian.AppendUint32(nil, uint32(m.next))
		}
		return binary.BigEndian.AppendUint32(nil, uint32(m.r.IntN(m.next+1)))
	case 1: // long and alike
		return []byte(strings.Repeat("x", m.r.IntN(3)*290) + fmt.Sprint(m.r.IntN(300)))
	case 2: // short, with many zeros
		k := make([]byte, 1+m.r.IntN(8))
		for i := range k {
			k[i] = byte(m.r.IntN(2) * m.r.IntN(256))
		}
		return k
	case 3: // descending
		m.next++
		return binary.BigEndian.AppendUint32(nil, ^uint32(m.next-m.r.IntN(20)*m.r.IntN(20)))
	default: // files in directories
		return fmt.Appendf(nil, "%04d/%d", m.r.IntN(20), m.r.IntN(400))
	}
}

func (m *modelStore) val() []byte {
	n := 16
	switch m.r.IntN(10) {
	case 0:
		n = m.r.IntN(maxValue + 1)
	case 1:
		n = m.r.IntN(100)
	case 2:
		n = 0
	}
	v := make([]byte, n)
	for i := range v {
		v[i] = byte(m.r.Uint32())
	}
	return v
}

func (m *modelStore) step() {
	switch op := m.r.IntN(100); {
	case op < 45:
		m.put(m.key(), m.val())
	case op < 50:
		m.copyEntry()
	case op < 72:
		m.delete(m.key())
	case op < 80:
		m.lookUp(m.key())
	case op < 90:
		m.alloc()
	case op < 97:
		m.freeSome()
	default:
		m.pinOrRelease()
	}
	m.state.root = m.tree.Root()
}

func (m *modelStore) put(k, v []byte) {
	if err := m.tree.Put(k, v); err != nil {
		m.t.Fatalf("put %q: %v", k, err)
	}
	m.state.keys[string(k)] = string(v)
}

// copyEntry puts a value that lies in the tree.
func (m *modelStore) copyEntry() {
	k, v, ok, err := m.tree.Floor(m.key())
	if err != nil {
		m.t.Fatal(err)
	}
	if ok {
		want := string(v)
		to := m.key()
		if m.r.IntN(2) == 0 {
			to = append(bytes.Clone(k[:min(len(k), maxKey-1)]), 'c')
		}
		if err := m.tree.Put(to, v); err != nil {
			m.t.Fatal(err)
		}
		m.state.keys[string(to)] = want
	}
}

func (m *modelStore) delete(k []byte) {
	if m.r.IntN(20) == 0 { // many neighbours
		var keys []string
		err := m.tree.Scan(k, func(k, _ []byte) bool {
			keys = append(keys, string(k))
			return len(keys) < 100
		})
		if err != nil {
			m.t.Fatal(err)
		}
		for _, k := range keys {
			m.deleteOne([]byte(k))
		}
	}
	m.deleteOne(k)
}

func (m *modelStore) deleteOne(k []byte) {
	ok, err := m.tree.Delete(k)
	if _, want := m.state.keys[string(k)]; err != nil || ok != want {
		m.t.Fatalf("delete %q: %v, %v, want %v", k, ok, err, want)
	}
	delete(m.state.keys, string(k))
}

func (m *modelStore) lookUp(k []byte) {
	v, ok, err := m.tree.Get(k)
	if want, exists := m.state.keys[string(k)]; err != nil || ok != exists || string(v) != want {
		m.t.Fatalf("get %q: %q, %v, %v", k, v, ok, err)
	}
	fk, fv, ok, err := m.tree.Floor(k)
	want, exists := "", false
	for have := range m.state.keys {
		if have <= string(k) && (!exists || have > want) {
			want, exists = have, true
		}
	}
	if err != nil || ok != exists || ok && (string(fk) != want || string(fv) != m.state.keys[want]) {
		m.t.Fatalf("floor %q: %q, %v, %v, want %q", k, fk, ok, err, want)
	}
}

func (m *modelStore) alloc() {
	p, n := pagestest.Alloc(m.t, m.s, 1+m.r.IntN(1+m.r.IntN(60)))
	e := modelExtent{p, n, m.s.Epoch(), m.r.Uint64()}
	b, err := m.s.Bytes(p, n)
	if err != nil {
		m.t.Fatal(err)
	}
	for i := 0; i < len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], e.fill)
	}
	m.state.extents[p] = e
}

// freeSome frees an extent, or cuts it.
func (m *modelStore) freeSome() {
	if len(m.state.extents) == 0 {
		return
	}
	ps := slices.Sorted(maps.Keys(m.state.extents))
	e := m.state.extents[ps[m.r.IntN(len(ps))]]
	from := m.r.IntN(e.n)
	n := 1 + m.r.IntN(e.n-from)
	if m.r.IntN(2) == 0 {
		from, n = 0, e.n
	}
	delete(m.state.extents, e.p)
	m.s.Free(e.p+pages.Page(from), n, e.born)
	if from > 0 {
		m.state.extents[e.p] = modelExtent{e.p, from, e.born, e.fill}
	}
	if end := from + n; end < e.n {
		p := e.p + pages.Page(end)
		m.state.extents[p] = modelExtent{p, e.n - end, e.born, e.fill}
	}
}

func (m *modelStore) pinOrRelease() {
	if m.r.IntN(2) == 0 && len(m.pins) < 6 {
		m.pin()
		return
	}
	ids := slices.DeleteFunc(slices.Sorted(maps.Keys(m.pins)), func(id string) bool { return m.held[id] })
	if len(ids) == 0 {
		return
	}
	id := ids[m.r.IntN(len(ids))]
	m.s.Release(id)
	delete(m.pins, id)
}

func (m *modelStore) pin() string {
	m.ids++
	id := fmt.Sprint("pin ", m.ids)
	if err := m.s.Pin(id); err != nil {
		m.t.Fatal(err)
	}
	m.pins[id] = modelPin{
		modelState{m.tree.Root(), maps.Clone(m.state.keys), maps.Clone(m.state.extents)},
		m.s.Segments(), m.s.End(),
	}
	return id
}

// treeReader is what Tree and View have in common.
type treeReader interface {
	Get(key []byte) ([]byte, bool, error)
	Floor(key []byte) (k, v []byte, ok bool, err error)
	Scan(from []byte, fn func(k, v []byte) bool) error
}

// checkReader compares all that can be read with what should be there.
func (m *modelStore) checkReader(r treeReader, want map[string]string) {
	m.t.Helper()
	keys := slices.Sorted(maps.Keys(want))
	i := 0
	err := r.Scan(nil, func(k, v []byte) bool {
		if i >= len(keys) || string(k) != keys[i] || string(v) != want[keys[i]] {
			m.t.Fatalf("scan: entry %d is %q", i, k)
		}
		i++
		return true
	})
	if err != nil || i != len(keys) {
		m.t.Fatalf("scan: %d keys of %d, %v", i, len(keys), err)
	}
	for range 20 {
		k := m.key()
		at, exists := slices.BinarySearch(keys, string(k))
		v, ok, err := r.Get(k)
		if err != nil || ok != exists || string(v) != want[string(k)] {
			m.t.Fatalf("get %q: %v, %v", k, ok, err)
		}
		n, first := 0, ""
		if err = r.Scan(k, func(k, _ []byte) bool { n, first = n+1, string(k); return false }); err != nil || n > 1 || (n == 1) != (at < len(keys)) || n == 1 && first != keys[at] {
			m.t.Fatalf("scan from %q: %d, %q, %v", k, n, first, err)
		}
		if exists {
			at++
		}
		fk, fv, ok, err := r.Floor(k)
		if err != nil || ok != (at > 0) || ok && (string(fk) != keys[at-1] || string(fv) != want[keys[at-1]]) {
			m.t.Fatalf("floor %q: %q, %v, %v", k, fk, ok, err)
		}
	}
}

// check looks at everything: the tree, the free space, each pin through a view.
func (m *modelStore) check() {
	m.t.Helper()
	m.checkReader(m.tree, m.state.keys)
	pagestest.Check(m.t, m.s)
	inUse := map[pages.Page]bool{}
	use := func(p pages.Page) {
		if m.s.Own(p) {
			inUse[p] = true
		}
	}
	live := 0
	treePages(m.t, m.s, m.tree.Root(), func(p pages.Page) { use(p); live++ })
	if n := len(m.state.keys); live > 20+n {
		m.t.Fatalf("%d nodes for %d keys", live, n)
	}
	states := []modelState{m.state}
	for _, p := range m.pins {
		states = append(states, p.modelState)
		m.checkPin(p)
		treePages(m.t, m.s, p.root, use)
	}
	for _, st := range states {
		for _, e := range st.extents {
			for i := range e.n {
				use(e.p + pages.Page(i))
			}
		}
	}
	if int64(len(inUse)) != m.s.Used() {
		m.t.Fatalf("%d pages are needed, %d used", len(inUse), m.s.Used())
	}
	for _, e := range m.state.extents {
		b, err := m.s.Bytes(e.p, e.n)
		if err != nil {
			m.t.Fatal(err)
		}
		m.checkExtent(e, b)
	}
}

func (m *modelStore) checkExtent(e modelExtent, b []byte) {
	m.t.Helper()
	for i := 0; i < len(b); i += 8 {
		if binary.LittleEndian.Uint64(b[i:]) != e.fill {
			m.t.Fatalf("page %d of extent %+v was changed", i/pages.PageSize, e)
		}
	}
}

func (m *modelStore) checkPin(p modelPin) {
	m.t.Helper()
	v := OpenView(p.segs, p.root)
	m.checkReader(v, p.keys)
	for _, e := range p.extents {
		b := make([]byte, e.n*pages.PageSize)
		if err := v.ReadAt(e.p, 0, b); err != nil {
			m.t.Fatal(err)
		}
		m.checkExtent(e, b)
	}
}

// noData is for trees without pages of data.
func noData(_, _ []byte) DataPages { return DataPages{} }

// checkDiff compares DiffViews of two pins with their maps.
func checkDiff(t testing.TB, a, b modelPin) {
	t.Helper()
	last, n := "", 0
	err := Diff(OpenView(a.segs, a.root), OpenView(b.segs, b.root), noData, func(key, av, bv []byte) error {
		k := string(key)
		wa, inA := a.keys[k]
		wb, inB := b.keys[k]
		if k <= last || (av != nil) != inA || (bv != nil) != inB || string(av) != wa || string(bv) != wb || inA == inB && wa == wb {
			t.Fatalf("diff after %q: %q, %q, %q", last, k, av, bv)
		}
		last = k
		n++
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want := 0
	for k, v := range a.keys {
		if w, ok := b.keys[k]; !ok || v != w {
			want++
		}
	}
	for k := range b.keys {
		if _, ok := a.keys[k]; !ok {
			want++
		}
	}
	if n != want {
		t.Fatalf("%d differences, want %d", n, want)
	}
}

// run makes steps, and now and then a child of a pin, which does the same.
func (m *modelStore) run(steps, depth int) {
	for i := range steps {
		m.step()
		if i%(steps/4+1) == steps/8 {
			m.check()
		}
		if depth > 0 && i%(steps/2+1) == steps/3 {
			m.fork(steps/2, depth-1)
		}
	}
	m.check()
}

func (m *modelStore) fork(steps, depth int) {
	id := m.pin()
	m.held[id] = true
	mine := m.pins[id]
	kids := []*modelStore{}
	for range 2 {
		kid := newModel(m.t, m.r, mine.base, mine.segs, mine.modelState)
		kid.style = m.style
		kid.check()
		kid.run(steps, depth)
		kids = append(kids, kid)
	}
	for range steps {
		m.step()
	}
	for _, kid := range kids {
		kid.check()
	}
	pins := []modelPin{mine, m.pins[m.pin()], kids[0].pins[kids[0].pin()], kids[1].pins[kids[1].pin()]}
	for _, a := range pins {
		for _, b := range pins {
			checkDiff(m.t, a, b)
		}
	}
	delete(m.held, id)
}

func runModel(t testing.TB, seed uint64, steps int) {
	m := newModel(t, newRand(seed), 1+pages.Page(seed%5)*37, nil, modelState{})
	m.run(steps, 2)
	for id := range m.pins {
		m.s.Release(id)
		delete(m.pins, id)
	}
	m.check()
	for k := range maps.Clone(m.state.keys) {
		m.deleteOne([]byte(k))
	}
	for _, e := range m.state.extents {
		m.s.Free(e.p, e.n, e.born)
	}
	clear(m.state.extents)
	m.check()
	if m.s.Used() != 0 || m.tree.Root() != 0 {
		t.Fatalf("%d pages used, root %d", m.s.Used(), m.tree.Root())
	}
}

// TestModel makes few steps: FuzzModel makes up to 3000.
func TestModel(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { runModel(t, seed, 150) })
	}
}

func FuzzModel(f *testing.F) {
	f.Add(uint64(1), uint16(300))
	f.Fuzz(func(t *testing.T, seed uint64, steps uint16) { runModel(t, seed, int(steps%3000)) })
}

func TestKeysInOrderFillNodes(t *testing.T) {
	for name, key := range map[string]func(i int) string{
		"ascending":  func(i int) string { return fmt.Sprintf("%06d", i) },
		"descending": func(i int) string { return fmt.Sprintf("!%06d", 999999-i) },
		"in between": func(i int) string { return fmt.Sprintf("%d/%06d", i%3, i) },
	} {
		s := pagestest.Store(t, 1, nil)
		tree := OpenTree(s, 0)
		const n = 30000
		bytes := 0
		for _, k := range []string{"0/~", "1/~", "9999999"} { // so that no end is the end of all
			if err := tree.Put([]byte(k), nil); err != nil {
				t.Fatal(err)
			}
		}
		for i := range n {
			k, v := []byte(key(i)), make([]byte, 20)
			bytes += cellCost(k, v)
			if err := tree.Put(k, v); err != nil {
				t.Fatal(err)
			}
		}
		if got := int(s.Used()) * nodeCapacity; got > bytes*6/5 {
			t.Errorf("%s: nodes of %d bytes for %d bytes", name, got, bytes)
		}
	}
}

// TestModelWithoutSpace runs out of pages all the time: what fails changes nothing.
func TestModelWithoutSpace(t *testing.T) {
	refused := 0
	for seed := range uint64(5) {
		m := newModel(t, newRand(seed), 1, nil, modelState{})
		m.s.Bound(200) // two clusters of nodes
		for range 4000 {
			k, v := m.key(), m.val()
			switch m.r.IntN(10) {
			case 0, 1, 2:
				if ok, err := m.tree.Delete(k); err == nil && ok {
					delete(m.state.keys, string(k))
				} else if err != nil && !errors.Is(err, pages.ErrNoSpace) {
					t.Fatal(err)
				}
			case 3:
				m.state.root = m.tree.Root()
				if m.r.IntN(10) == 0 {
					m.pinOrRelease()
				}
			default:
				if err := m.tree.Put(k, v); err == nil {
					m.state.keys[string(k)] = string(v)
				} else if errors.Is(err, pages.ErrNoSpace) {
					refused++
				} else {
					t.Fatal(err)
				}
			}
			if m.s.End() > 200 {
				t.Fatal("more pages than there are")
			}
		}
		m.check()
	}
	if refused < 1000 {
		t.Errorf("%d changes were refused", refused)
	}
}
