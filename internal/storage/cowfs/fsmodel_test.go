package cowfs

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"ramet.dev/ramet/internal/storage/erofs/erofstest"
	"ramet.dev/ramet/internal/storage/pages"
	"ramet.dev/ramet/internal/storage/pages/pagestest"
)

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }

// modelFile is what an inode should be.
type modelFile struct {
	attr    Attr
	blocks  map[uint64][]byte // of data, those that are not zero
	target  string
	xattrs  map[string]string
	entries map[string]Ino // of a directory
}

func (f *modelFile) clone() *modelFile {
	c := *f
	c.blocks, c.xattrs, c.entries = maps.Clone(f.blocks), maps.Clone(f.xattrs), maps.Clone(f.entries)
	return &c
}

// fsModel is a tree, next to what it should have. Links are not counted: an inode
// goes with its last name.
type fsModel struct {
	t     testing.TB
	r     *rand.Rand
	image []byte
	fs    *FS
	files map[Ino]*modelFile
	inos  []Ino // those with data, links, attributes: all that ever were
	pins  map[string]*pinnedModel
	ids   int
	full  int // how often there was no space
}

type pinnedModel struct {
	state State
	segs  []pages.Segment
	files map[Ino]*modelFile
}

func newFSModel(t testing.TB, r *rand.Rand, image []byte, limit int64) *fsModel {
	m := &fsModel{t: t, r: r, image: image, files: map[Ino]*modelFile{}, pins: map[string]*pinnedModel{}}
	m.open(1, nil, State{Limit: limit})
	if image == nil {
		m.fs.NewIno()
		m.add(m.fs.Root(), Attr{Mode: TypeDir | 0o755, Nlink: 2})
		m.ok(m.fs.SetAttr(m.fs.Root(), &m.files[m.fs.Root()].attr))
		return m
	}
	m.readImage(m.fs.Root())
	return m
}

func (m *fsModel) open(base pages.Page, segs []pages.Segment, state State) {
	m.t.Helper()
	var err error
	m.fs, err = Open(pagestest.Store(m.t, base, segs), m.image, state)
	m.ok(err)
}

func (m *fsModel) ok(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

func (m *fsModel) add(ino Ino, a Attr) *modelFile {
	f := &modelFile{attr: a, blocks: map[uint64][]byte{}, xattrs: map[string]string{}, entries: map[string]Ino{}}
	m.files[ino] = f
	m.inos = append(m.inos, ino)
	return f
}

// readImage takes what the image has as it is.
func (m *fsModel) readImage(ino Ino) {
	m.t.Helper()
	a, changed, err := m.fs.Attr(ino)
	if err != nil || changed {
		m.t.Fatalf("inode %d of the image: %v", ino, err)
	}
	f := m.add(ino, a)
	names, err := m.fs.Xattrs(ino)
	m.ok(err)
	for _, name := range names {
		val, _, err := m.fs.Xattr(ino, name)
		m.ok(err)
		f.xattrs[name] = string(val)
	}
	switch a.Mode & TypeMask {
	case TypeReg:
		m.store(f, 0, m.read(m.fs, ino, &a, 0, a.Size))
	case TypeLink:
		f.target, err = m.fs.Target(ino)
		m.ok(err)
	case TypeDir:
		m.ok(m.fs.Entries(ino, "", func(e Entry) bool {
			f.entries[e.Name] = e.Ino
			return true
		}))
		for _, c := range f.entries {
			if m.files[c] == nil {
				m.readImage(c)
			}
		}
	}
}

// store makes data be at off in the model.
func (m *fsModel) store(f *modelFile, off uint64, data []byte) {
	for len(data) > 0 {
		skip := off % pages.PageSize
		n := min(pages.PageSize-skip, uint64(len(data)))
		b := make([]byte, pages.PageSize)
		copy(b, f.blocks[off/pages.PageSize])
		copy(b[skip:], data[:n])
		f.blocks[off/pages.PageSize] = b
		off, data = off+n, data[n:]
	}
}

// load returns what the model has.
func (f *modelFile) load(off, n uint64) []byte {
	out := make([]byte, 0, n)
	for end := off + n; off < end; {
		skip := off % pages.PageSize
		size := min(pages.PageSize-skip, end-off)
		piece := make([]byte, size)
		if b := f.blocks[off/pages.PageSize]; b != nil {
			copy(piece, b[skip:])
		}
		out, off = append(out, piece...), off+size
	}
	return out
}

// zero makes a range zeros in the model.
func (f *modelFile) zero(off, end uint64) {
	for b := range f.blocks {
		from, to := max(b*pages.PageSize, off), min((b+1)*pages.PageSize, end)
		if from >= to {
			continue
		}
		if to-from == pages.PageSize {
			delete(f.blocks, b)
			continue
		}
		f.blocks[b] = bytes.Clone(f.blocks[b])
		clear(f.blocks[b][from-b*pages.PageSize : to-b*pages.PageSize])
	}
}

func (m *fsModel) read(fs *FS, ino Ino, a *Attr, off, n uint64) []byte {
	m.t.Helper()
	var out []byte
	m.ok(fs.Read(ino, a, off, n, func(mem []byte, size int) (int, error) {
		out = append(out, make([]byte, size)...)
		copy(out[len(out)-size:], mem)
		return size, nil
	}))
	return out
}

// noSpace says whether err is that there was none, which only a limit makes right.
func (m *fsModel) noSpace(err error) bool {
	m.t.Helper()
	if errors.Is(err, pages.ErrNoSpace) && m.fs.Space().Limit > 0 {
		m.full++
		return true
	}
	m.ok(err)
	return false
}

func (m *fsModel) pick(kind uint32) (Ino, *modelFile) {
	for range 20 {
		ino := m.inos[m.r.IntN(len(m.inos))]
		if f := m.files[ino]; f != nil && (kind == 0 || f.attr.Mode&TypeMask == kind) {
			return ino, f
		}
	}
	return 0, nil
}

// offset is one that often is where others are.
func (m *fsModel) offset() uint64 {
	switch m.r.IntN(8) {
	case 0:
		return m.r.Uint64N(1 << 44)
	case 1:
		return uint64(m.r.IntN(30)) * pages.PageSize
	default:
		return m.r.Uint64N(40 * pages.PageSize)
	}
}

func (m *fsModel) step() {
	m.t.Helper()
	ino, f := m.pick(TypeReg)
	switch op := m.r.IntN(100); {
	case op < 12:
		m.create()
	case op < 22:
		m.unlink()
	case op < 27:
		m.rename()
	case op < 35:
		m.xattr()
	case op < 38:
		if ino, f := m.pick(0); f != nil {
			f.attr.UID++
			m.ok(m.fs.SetAttr(ino, &f.attr))
		}
	case f == nil:
	case op < 65:
		m.write(ino, f)
	case op < 75:
		m.truncate(ino, f)
	case op < 85:
		m.punch(ino, f)
	case op < 90:
		m.reserve(ino, f)
	default:
		m.checkFile(m.fs, ino, f)
	}
}

func (m *fsModel) create() {
	dir, d := m.pick(TypeDir)
	if d == nil || len(m.files) > 150 || m.noSpace(m.fs.Room(0)) {
		return
	}
	name := strings.Repeat("long", m.r.IntN(2)*m.r.IntN(60)) + fmt.Sprint(m.r.IntN(40))
	if _, ok := d.entries[name]; ok {
		return
	}
	if m.r.IntN(5) == 0 { // another name
		if ino, f := m.pick(0); f != nil && !f.attr.IsDir() {
			f.attr.Nlink++
			m.ok(m.fs.SetAttr(ino, &f.attr))
			m.ok(m.fs.Insert(dir, Entry{Name: name, Ino: ino, Type: f.attr.DirentType()}))
			d.entries[name] = ino
		}
		return
	}
	kind := []uint32{TypeReg, TypeReg, TypeReg, TypeDir, TypeLink}[m.r.IntN(5)]
	ino := m.fs.NewIno()
	f := m.add(ino, Attr{Mode: kind | 0o600, Nlink: 1})
	m.ok(m.fs.SetAttr(ino, &f.attr))
	if kind == TypeLink {
		f.target = strings.Repeat("to/", 1+m.r.IntN(2)*m.r.IntN(1000))
		m.ok(m.fs.SetTarget(ino, f.target))
	}
	m.ok(m.fs.Insert(dir, Entry{Name: name, Ino: ino, Type: f.attr.DirentType()}))
	d.entries[name] = ino
}

// someEntry returns a name that may go: of no directory that has entries.
func (m *fsModel) someEntry() (dir Ino, name string, child Ino, ok bool) {
	dir, d := m.pick(TypeDir)
	if d == nil || len(d.entries) == 0 {
		return 0, "", 0, false
	}
	names := slices.Sorted(maps.Keys(d.entries))
	name = names[m.r.IntN(len(names))]
	child = d.entries[name]
	return dir, name, child, len(m.files[child].entries) == 0
}

func (m *fsModel) unlink() {
	if dir, name, child, ok := m.someEntry(); ok {
		m.unlinkOne(dir, name, child)
	}
}

func (m *fsModel) unlinkOne(dir Ino, name string, child Ino) {
	m.t.Helper()
	m.ok(m.fs.Delete(dir, Entry{Name: name, Ino: child}))
	delete(m.files[dir].entries, name)
	f := m.files[child]
	if f.attr.Nlink--; f.attr.Nlink == 0 || f.attr.IsDir() {
		m.ok(m.fs.Remove(child))
		delete(m.files, child)
		return
	}
	m.ok(m.fs.SetAttr(child, &f.attr))
}

func (m *fsModel) rename() {
	dir, name, child, ok := m.someEntry()
	to, d := m.pick(TypeDir)
	if !ok || d == nil || to == child || m.noSpace(m.fs.Room(0)) {
		return
	}
	f, other := m.files[child], fmt.Sprint("moved", m.r.IntN(20))
	if _, ok := d.entries[other]; ok {
		return
	}
	m.ok(m.fs.Insert(to, Entry{Name: other, Ino: child, Type: f.attr.DirentType()}))
	m.ok(m.fs.Delete(dir, Entry{Name: name, Ino: child}))
	d.entries[other] = child
	delete(m.files[dir].entries, name)
}

func (m *fsModel) xattr() {
	ino, f := m.pick(0)
	if f == nil {
		return
	}
	name := fmt.Sprint("user.", m.r.IntN(5), strings.Repeat("n", m.r.IntN(2)*m.r.IntN(248)))
	if m.r.IntN(3) == 0 {
		name = []string{"user.a", "user.b"}[m.r.IntN(2)] // which the image has
	}
	if m.r.IntN(3) == 0 {
		ok, err := m.fs.RemoveXattr(ino, name)
		if _, had := f.xattrs[name]; err != nil || ok != had {
			m.t.Fatalf("remove %s of %d: %v, %v", name, ino, ok, err)
		}
		delete(f.xattrs, name)
		return
	}
	val := strings.Repeat(fmt.Sprint(m.r.IntN(10)), m.r.IntN(3)*m.r.IntN(3000))
	if !m.noSpace(m.fs.Room(len(name) + len(val))) {
		m.ok(m.fs.SetXattr(ino, name, []byte(val)))
		f.xattrs[name] = val
	}
}

func (m *fsModel) write(ino Ino, f *modelFile) {
	m.t.Helper()
	off := m.offset()
	data := make([]byte, 1+m.r.IntN(6*pages.PageSize))
	for i := range data {
		data[i] = byte(m.r.Uint32())
	}
	p, err := m.fs.Prepare(ino, &f.attr, off, uint64(len(data)))
	if m.noSpace(err) {
		return
	}
	if p.Ready < uint64(len(data)) {
		if m.full++; m.fs.Space().Limit == 0 {
			m.t.Fatalf("%d of %d bytes are ready", p.Ready, len(data))
		}
		data = data[:p.Ready]
	}
	m.ok(m.fs.write(ino, &f.attr, off, data))
	f.attr.Size = max(f.attr.Size, off+uint64(len(data)))
	m.ok(m.fs.SetAttr(ino, &f.attr))
	m.store(f, off, data)
}

func (m *fsModel) truncate(ino Ino, f *modelFile) {
	m.t.Helper()
	size := m.offset()
	if m.r.IntN(3) == 0 {
		size = m.r.Uint64N(f.attr.Size + 1)
	}
	if m.noSpace(m.fs.Truncate(ino, &f.attr, size)) {
		return
	}
	f.zero(size, 1<<62)
}

func (m *fsModel) punch(ino Ino, f *modelFile) {
	m.t.Helper()
	off, n := m.offset(), 1+m.r.Uint64N(10*pages.PageSize)
	if m.noSpace(m.fs.Punch(ino, &f.attr, off, n)) {
		// Of the blocks at the ends one may be done.
		m.ok(m.fs.SetAttr(ino, &f.attr))
		for _, at := range []uint64{off, off + n - 1} {
			b := at / pages.PageSize * pages.PageSize
			m.store(f, b, m.read(m.fs, ino, &f.attr, b, pages.PageSize))
		}
		return
	}
	f.zero(off, off+n)
}

func (m *fsModel) reserve(ino Ino, f *modelFile) {
	m.t.Helper()
	m.noSpace(m.fs.Reserve(ino, &f.attr, m.offset(), 1+m.r.Uint64N(20*pages.PageSize)))
	m.ok(m.fs.SetAttr(ino, &f.attr))
}

func (m *fsModel) cloneFiles() map[Ino]*modelFile {
	files := map[Ino]*modelFile{}
	for ino, f := range m.files {
		files[ino] = f.clone()
	}
	return files
}

func (m *fsModel) pin() string {
	m.t.Helper()
	m.ids++
	id := fmt.Sprint("pin ", m.ids)
	state, segs, err := m.fs.Pin(id)
	m.ok(err)
	if len(segs) == 0 { // nothing was ever changed
		m.fs.Release(id)
		return ""
	}
	m.pins[id] = &pinnedModel{state, segs, m.cloneFiles()}
	return id
}

// child goes on from a pin with a store of its own.
func (p *pinnedModel) child(m *fsModel) *fsModel {
	c := &fsModel{t: m.t, r: m.r, image: m.image, files: map[Ino]*modelFile{}, pins: map[string]*pinnedModel{}}
	for ino, f := range p.files {
		c.files[ino] = f.clone()
		c.inos = append(c.inos, ino)
	}
	slices.Sort(c.inos)
	c.open(p.segs[len(p.segs)-1].End, p.segs, p.state)
	return c
}

func (m *fsModel) run(steps, depth int) {
	m.t.Helper()
	for i := range steps {
		m.step()
		if m.r.IntN(60) == 0 && len(m.pins) < 4 {
			m.pin()
		}
		if ids := slices.Sorted(maps.Keys(m.pins)); len(ids) > 0 && m.r.IntN(80) == 0 {
			id := ids[m.r.IntN(len(ids))]
			m.fs.Release(id)
			delete(m.pins, id)
		}
		if depth > 0 && i == steps/2 {
			if id := m.pin(); id != "" {
				c := m.pins[id].child(m)
				c.check()
				c.run(steps, depth-1)
				m.full += c.full
			}
		}
	}
	m.check()
}

// removeAll removes all files, and the pins. Nothing may be left then.
func (m *fsModel) removeAll() {
	m.t.Helper()
	for id := range m.pins {
		m.fs.Release(id)
	}
	clear(m.pins)
	for range len(m.files) + 100 { // directories are empty sooner or later
		for _, dir := range slices.Sorted(maps.Keys(m.files)) {
			f := m.files[dir]
			if f == nil || !f.attr.IsDir() {
				continue
			}
			for _, name := range slices.Sorted(maps.Keys(f.entries)) {
				if child := f.entries[name]; len(m.files[child].entries) == 0 {
					m.unlinkOne(dir, name, child)
				}
			}
		}
	}
	m.check()
	if m.image != nil {
		return // there are keys for what is hidden
	}
	m.ok(m.fs.Remove(m.fs.Root()))
	if s := m.fs.Space(); s.Used != 0 || m.fs.tree.Root() != 0 || m.fs.store.Used() != 0 {
		m.t.Fatalf("%+v, root %d, and the store has %d pages", s, m.fs.tree.Root(), m.fs.store.Used())
	}
}

func runFSModel(t testing.TB, seed uint64, steps int) *fsModel {
	r := newRand(seed)
	var image []byte
	limit := int64(0)
	if seed%2 == 0 {
		image = erofstest.Image(t)
	}
	if seed%3 == 0 {
		limit = 200 + int64(r.IntN(300))
	}
	m := newFSModel(t, r, image, limit)
	m.run(steps, 2)
	m.removeAll()
	return m
}

// TestFSModel makes random changes to files, with pins, and children that go on
// from them.
func TestFSModel(t *testing.T) {
	full := 0
	for seed := range uint64(7) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { full += runFSModel(t, seed, 400).full })
	}
	if full < 20 {
		t.Errorf("there was no space %d times", full)
	}
}

func FuzzFSModel(f *testing.F) {
	f.Add(uint64(1), uint16(200))
	f.Fuzz(func(t *testing.T, seed uint64, steps uint16) { runFSModel(t, seed, int(steps%1000)) })
}
