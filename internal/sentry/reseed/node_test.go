package reseed

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"gvisor.dev/gvisor/pkg/hostarch"
)

func (m *fakeMemory) write(at hostarch.Addr, p []byte) int {
	if at < m.at || at >= m.at+hostarch.Addr(len(m.data)) {
		return 0
	}
	return copy(m.data[at-m.at:], p)
}

// heap is memory in which objects of V8 are made, from its beginning to its end.
type heap struct {
	fakeMemory
	next hostarch.Addr
}

const heapAt = 0x10_0000

func newHeap() *heap {
	return &heap{fakeMemory: fakeMemory{at: heapAt, data: make([]byte, 64<<10)}, next: heapAt}
}

func (h *heap) set(at hostarch.Addr, words ...word) {
	for i, w := range words {
		binary.LittleEndian.PutUint64(h.data[int(at-heapAt)+8*i:], uint64(w))
	}
}

// put makes something of words, and returns where it is.
func (h *heap) put(words ...word) hostarch.Addr {
	at := h.next
	h.set(at, words...)
	h.next += hostarch.Addr(8 * len(words))
	return at
}

// object makes an object: a map comes before the words.
func (h *heap) object(words ...word) word {
	return word(h.put(append([]word{heapAt + 1}, words...)...)) + 1
}

func (h *heap) name(text string) word {
	words := []word{small(len(text)) | 0x1234}
	for padded := []byte(text + "\xff\xff\xff\xff\xff\xff\xff"); len(padded) >= 8; padded = padded[8:] {
		words = append(words, word(binary.LittleEndian.Uint64(padded)))
	}
	return h.object(words...)
}

// array makes a typed array of zeros, and returns where its bytes are and their store.
func (h *heap) array(size int, slot int) (object word, at, store hostarch.Addr) {
	at = h.put(make([]word, size/8)...)
	store = h.put(word(at), word(size), word(size))
	extension := h.put(word(store), 0, 0, 0)
	buffer := h.object(heapAt+1, heapAt+1, heapAt+1, word(size), word(size), word(at), word(extension), 2, 0, 0, 0)
	words := []word{heapAt + 1, heapAt + 1, 0, 0, 0, word(size), 0, word(at), 0, 0, 0}
	words[slot-1] = buffer
	return h.object(words...), at, store
}

// module makes the context of internal/crypto/random, or of another that looks like it.
type module struct {
	names         []string
	head          int // words before the names
	table         bool
	uuids, ints   hostarch.Addr // where their bytes are
	uuidStore     hostarch.Addr
	context, uuid word
}

func moduleNames() []string {
	names := []string{"process", "randomFillSync", "a name that is longer than all that are looked for", "randomCache", "randomCacheOffset"}
	for i := range 30 {
		names = append(names, fmt.Sprint("other", i))
	}
	return append(names, "kBatchSize", "uuidData", "uuidNotBuffered", "uuidBatch", "hexBytesCache")
}

func (d *module) make(h *heap) {
	h.object() // the map of all
	undefined := h.object(notANumber, heapAt+1)
	ints, at, _ := h.array(intBytes, 3)
	d.ints = at
	d.uuid, d.uuids, d.uuidStore = h.array(uuidBytes, 4)
	var names, entries []word
	for i, text := range d.names {
		names = append(names, h.name(text))
		entries = append(entries, names[i], small(i))
	}
	info := make([]word, d.head-1)
	info[1], info[2] = small(6), small(len(names))
	if d.table {
		slices.Reverse(entries) // of no order, but each name before its number
		for i := 0; i < len(entries); i += 2 {
			entries[i], entries[i+1] = entries[i+1], entries[i]
		}
		info = append(info, h.object(append([]word{small(len(entries) + 1), small(40)}, entries...)...))
		// The length is of what follows it.
	} else {
		info = append(info, names...)
	}
	scope := h.object(append(info, small(211), small(83), small(1), small(2), small(3), small(4), small(5), small(6))...)
	slots := []word{small(len(names) + ownSlots), scope, heapAt + 1}
	for _, text := range d.names {
		value := undefined
		switch text {
		case "randomCache":
			value = ints
		case "randomCacheOffset":
			value = small(30)
		case "kBatchSize":
			value = small(uuidBatchSize)
		case "uuidData":
			value = d.uuid
		case "uuidBatch":
			value = small(5)
		}
		slots = append(slots, value)
	}
	d.context = h.object(slots...)
}

// renewed reports which arrays have other bytes than zeros.
func (d *module) renewed(h *heap) (uuids, ints bool) {
	is := func(at hostarch.Addr, size int) bool {
		return !bytes.Equal(h.data[at-heapAt:][:size], make([]byte, size))
	}
	return is(d.uuids, uuidBytes), is(d.ints, intBytes)
}

func (h *heap) renew() error {
	return renewNode(h, []hostarch.AddrRange{{Start: heapAt, End: heapAt + hostarch.Addr(len(h.data))}})
}

// TestRenewNode has the module as different versions of V8 have it.
func TestRenewNode(t *testing.T) {
	for _, d := range []module{{head: 4}, {head: 6}, {head: 4, table: true}, {head: 6, table: true}} {
		h := newHeap()
		d.names = moduleNames()
		d.make(h)
		before := bytes.Clone(h.data)
		err := h.renew()
		if uuids, ints := d.renewed(h); err != nil || !uuids || !ints {
			t.Errorf("%d words before the names, in a table %v: UUIDs renewed %v, numbers %v, error %v", d.head, d.table, uuids, ints, err)
		}
		for at, size := range map[hostarch.Addr]int{d.uuids: uuidBytes, d.ints: intBytes} {
			copy(h.data[at-heapAt:][:size], make([]byte, size))
		}
		if !bytes.Equal(h.data, before) {
			t.Error("other memory was written to")
		}
	}
}

// TestRenewNodeUndrawn has a module whose UUIDs were never asked for.
func TestRenewNodeUndrawn(t *testing.T) {
	h, d := newHeap(), module{names: moduleNames(), head: 4}
	d.make(h)
	h.set(d.uuid.at(), heapAt+1, notANumber)
	err := h.renew()
	if uuids, ints := d.renewed(h); err != nil || uuids || !ints {
		t.Errorf("UUIDs renewed %v, numbers %v, error %v", uuids, ints, err)
	}
}

// TestRenewNodeMoved has an array that a collection has moved.
func TestRenewNodeMoved(t *testing.T) {
	h, d := newHeap(), module{names: moduleNames(), head: 4}
	d.make(h)
	moved := h.object((&nodeProcess{m: h}).words(d.uuid.at()+8, 11)...)
	h.set(d.uuid.at(), word(moved.at()), 0xbad0, 0xbad0, 0xbad0, 0xbad0, 0xbad0)
	if err := h.renew(); err != nil {
		t.Fatal(err)
	}
	if uuids, _ := d.renewed(h); !uuids {
		t.Error("the UUIDs are the same")
	}
}

// TestRenewNodeFreed has a context that was left behind: what its arrays had is free, and
// may be a key of the program's now.
func TestRenewNodeFreed(t *testing.T) {
	h, d := newHeap(), module{names: moduleNames(), head: 4}
	d.make(h)
	h.set(d.uuidStore, 0x7777) // free(3) has its list there
	if err := h.renew(); err != nil {
		t.Fatal(err)
	}
	if uuids, ints := d.renewed(h); uuids || !ints {
		t.Errorf("UUIDs renewed %v, numbers %v", uuids, ints)
	}
}

// TestRenewNodeOthers has programs with variables of the same values, one of whose arrays
// may be a key.
func TestRenewNodeOthers(t *testing.T) {
	for i, name := range moduleNames() {
		if !slices.Contains([]string{"randomCache", "randomCacheOffset", "kBatchSize", "uuidData", "uuidNotBuffered", "uuidBatch"}, name) {
			continue
		}
		for _, table := range []bool{false, true} {
			h, d := newHeap(), module{names: moduleNames(), head: 4, table: table}
			d.make(h)
			at := bytes.Index(h.data, []byte(name+"\xff")) // of its text
			if at < 0 {
				at = bytes.Index(h.data, []byte(name))
			}
			h.data[at]++
			err := h.renew()
			if uuids, ints := d.renewed(h); uuids || ints || err != nil {
				t.Errorf("variable %d is not %s, and UUIDs were renewed %v, numbers %v, error %v", i, name, uuids, ints, err)
			}
		}
	}
}

// TestRenewNodeMany has memory that looks like the cache everywhere.
func TestRenewNodeMany(t *testing.T) {
	h := &heap{fakeMemory: fakeMemory{at: heapAt, data: make([]byte, 1<<20)}, next: heapAt}
	for range len(h.data) / 32 {
		h.put(small(uuidBatchSize), heapAt+1, heapAt+1, small(7))
	}
	if err := h.renew(); err != errManyCandidates {
		t.Errorf("error %v", err)
	}
}

// meteredMemory counts how often it is read, and is empty from a number on.
type meteredMemory struct {
	writable
	reads, most int
}

func (m *meteredMemory) read(at hostarch.Addr, p []byte) int {
	if m.reads++; m.reads > m.most {
		return 0
	}
	return m.writable.read(at, p)
}

// TestRenewNodeBounded has memory where each place that looks like the cache leads to
// scopes with the right number of variables, all of which have a name: some 10^8 reads.
func TestRenewNodeBounded(t *testing.T) {
	h := &heap{fakeMemory: fakeMemory{at: heapAt, data: make([]byte, 512<<10)}, next: heapAt}
	h.object() // the map of all
	name := h.name("some name")
	const variables = uuidBatchSize - ownSlots // kBatchSize is the number of slots, too
	info := []word{0, 0, small(variables)}
	for range variables + 8 {
		info = append(info, name)
	}
	scope := h.object(info...)
	for h.next+32 <= heapAt+hostarch.Addr(len(h.data)) {
		h.put(small(uuidBatchSize), scope, scope, small(7))
	}
	const most = 4 * mostObjects
	m := &meteredMemory{writable: h, most: most}
	err := renewNode(m, []hostarch.AddrRange{{Start: heapAt, End: heapAt + hostarch.Addr(len(h.data))}})
	if err != errManyCandidates || m.reads > most {
		t.Errorf("%d reads, error %v", m.reads, err)
	}
}

// FuzzRenewNode has any memory: it is read within bounds, and written to nowhere else.
func FuzzRenewNode(f *testing.F) {
	h, d := newHeap(), module{names: moduleNames(), head: 6, table: true}
	d.make(h)
	f.Add(bytes.Clone(h.data[:h.next-heapAt]))
	f.Fuzz(func(t *testing.T, data []byte) {
		h := &heap{fakeMemory: fakeMemory{at: heapAt, data: data}}
		_ = h.renew()
		if len(h.data) != len(data) {
			t.Error("memory has another size")
		}
	})
}
