package reseed

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"path"
	"slices"
	"strings"

	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/mm"
	"gvisor.dev/gvisor/pkg/usermem"
)

// Node draws 128 UUIDs at once for crypto.randomUUID, and 1024 numbers for
// crypto.randomInt: what is left of them would be the same in each copy of the process.
// Both are arrays that variables of its module internal/crypto/random refer to. The
// variables are in a context of V8, whose scope says their names. The context is found by
// the value of kBatchSize and of the variables that follow, and known by the names of all:
//
//	context                                 scope
//	  map                                     map
//	  slots                                   flags
//	  slot 0: the scope ──────────────────►   parameters
//	  slot 1: the context around it           variables, 2 fewer than slots
//	  …                                       …
//	  randomCache: 6144 bytes                 names of the variables in the order of their
//	  …                                       slots, or from 75 on a table: name, variable
//	  kBatchSize: 128
//	  uuidData: 2048 bytes, or undefined
//	  uuidNotBuffered
//	  uuidBatch: 0 to 127
//
// It has been like this from Node 16 to 26.
const (
	uuidBatchSize = 128
	uuidBytes     = 16 * uuidBatchSize
	intBytes      = 6 * 1024

	// ownSlots are slots of a context that are no variables.
	ownSlots = 2
	// mostVariables bounds a context that is looked at; the module has 75.
	mostVariables = 256
	// mostCandidates bounds how many places are looked at closely. A program of Node has
	// some hundreds.
	mostCandidates = 1 << 14
	// mostObjects bounds how many objects are read for all places together. A program can
	// make memory in which each place leads to thousands, and nothing else runs meanwhile.
	mostObjects = 1 << 20
	// scanned is how much memory is read at once, in bytes.
	scanned = 256 << 10
)

// The words of V8: numbers are in the upper half, pointers have the last bit set.
type word uint64

func wordOf(b []byte, i int) word { return word(binary.LittleEndian.Uint64(b[8*i:])) }

func small(n int) word         { return word(n) << 32 }
func (w word) isSmall() bool   { return uint32(w) == 0 && w>>32 < 1<<31 }
func (w word) number() int     { return int(w >> 32) }
func (w word) isPointer() bool { return w&3 == 1 && w > hostarch.PageSize }
func (w word) at() hostarch.Addr {
	return hostarch.Addr(w - 1)
}

// writable is memory that may be written to.
type writable interface {
	memory
	write(at hostarch.Addr, p []byte) int
}

var (
	errManyCandidates = errors.New("too many places look like the cache of randomUUID")
	errNoArray        = errors.New("the caches of randomUUID and randomInt are not where they should be")
)

// IsNode reports whether an executable of that path is Node.
func IsNode(executable string) bool { return strings.HasPrefix(path.Base(executable), "node") }

// RenewNode replaces what a process of Node has drawn ahead by random bytes. ranges are
// those of its memory that are in use. Call it while the process does not run.
func RenewNode(ctx context.Context, m *mm.MemoryManager, ranges []hostarch.AddrRange) error {
	if !m.IncUsers() {
		return nil // it has ended
	}
	defer m.DecUsers(ctx)
	return renewNode(processMemory{ctx, m}, ranges)
}

// processMemory is the memory of a process that does not run.
type processMemory struct {
	ctx context.Context
	m   *mm.MemoryManager
}

func (p processMemory) read(at hostarch.Addr, b []byte) int {
	n, _ := p.m.CopyIn(p.ctx, at, b, usermem.IOOpts{}) // what is not mapped is not read
	return n
}

func (p processMemory) write(at hostarch.Addr, b []byte) int {
	n, _ := p.m.CopyOut(p.ctx, at, b, usermem.IOOpts{})
	return n
}

func renewNode(m writable, ranges []hostarch.AddrRange) error {
	n := &nodeProcess{m: m, buf: make([]byte, scanned)}
	for _, r := range ranges {
		for at := r.Start; at < r.End; at += scanned {
			if err := n.scan(at, n.buf[:min(scanned, r.End-at)]); err != nil {
				return err
			}
		}
	}
	if n.lost && n.renewed == 0 {
		return errNoArray
	}
	return nil
}

// nodeProcess is renewNode under way.
type nodeProcess struct {
	m          writable
	buf        []byte
	candidates int
	objects    int // that were read
	renewed    int
	// lost: the arrays of a context were not found. It may be one that was left behind by
	// a collection.
	lost bool
}

// scan looks at the memory at an address, which it reads to buf.
func (n *nodeProcess) scan(at hostarch.Addr, buf []byte) error {
	buf = buf[:n.m.read(at, buf)]
	for i := 0; i+8 <= len(buf); i += 8 {
		if wordOf(buf[i:], 0) != small(uuidBatchSize) {
			continue
		}
		// A heap may have millions of numbers 128: what follows is mostly in buf.
		if i+nearBytes <= len(buf) && !isNear(buf[i:]) {
			continue
		}
		c, ok := n.contextWith(at + hostarch.Addr(i))
		if ok {
			n.renew(c)
		}
		if n.candidates > mostCandidates || n.objects > mostObjects {
			return errManyCandidates
		}
	}
	return nil
}

// randomContext is the context of the module.
type randomContext struct {
	slots     hostarch.Addr
	variables map[string]int
}

// nearBytes is the size of kBatchSize and the three variables that follow.
const nearBytes = 8 * 4

// isNear reports whether b may begin with kBatchSize and the variables that follow.
func isNear(b []byte) bool {
	batch := wordOf(b, 3)
	return wordOf(b, 1).isPointer() && wordOf(b, 2).isPointer() && batch.isSmall() && batch.number() < uuidBatchSize
}

// contextWith returns the context of the module if its kBatchSize is at an address.
func (n *nodeProcess) contextWith(at hostarch.Addr) (c randomContext, ok bool) {
	if near := make([]byte, nearBytes); n.m.read(at, near) < nearBytes || !isNear(near) {
		return c, false
	}
	n.candidates++
	const most = mostVariables + ownSlots + 1
	start := at - min(at, 8*most)
	before := n.words(start, most)
	if len(before) < most { // it may be at the beginning of what is mapped
		start = at.RoundDown()
		before = n.words(start, int(at-start)/8)
	}
	// before[i] may be the number of slots.
	for i := len(before) - ownSlots - 1; i >= 0; i-- {
		count, scope := before[i], before[i+1]
		slot := len(before) - i - 1
		if !count.isSmall() || count.number() <= slot+3 || count.number() > most || !scope.isPointer() {
			continue
		}
		if variables := n.variables(scope, count.number()-ownSlots, slot-ownSlots); variables != nil {
			return randomContext{slots: start + hostarch.Addr(8*(i+1)), variables: variables}, true
		}
	}
	return c, false
}

// variables returns the places of the variables of a scope, if it has that many and those
// of the module are among them, with kBatchSize at a place.
func (n *nodeProcess) variables(scope word, count, batchSize int) map[string]int {
	// Before the names are up to four words that differ between versions.
	const head, most = 4, 8
	info := n.object(scope, most)
	if len(info) < most || !info[0].isPointer() || info[head-1] != small(count) {
		return nil
	}
	info = n.object(scope, most+count)
	for from := head; from < most && from+count <= len(info); from++ {
		names := map[string]int{}
		for i, w := range info[from : from+count] {
			if name := n.name(w); name != "" {
				names[name] = i
			}
		}
		if isModule(names, batchSize) {
			return names
		}
	}
	for from := head; from < min(most, len(info)); from++ {
		if names := n.table(info[from]); isModule(names, batchSize) {
			return names
		}
	}
	return nil
}

// isModule reports whether variables are those of internal/crypto/random, with kBatchSize at
// a place.
func isModule(variables map[string]int, batchSize int) bool {
	for i, name := range []string{"kBatchSize", "uuidData", "uuidNotBuffered", "uuidBatch"} {
		if place, ok := variables[name]; !ok || place != batchSize+i {
			return false
		}
	}
	_, cache := variables["randomCache"]
	_, offset := variables["randomCacheOffset"]
	return cache && offset
}

// table returns the entries of a hash table: names, each followed by a number.
func (n *nodeProcess) table(w word) map[string]int {
	if !w.isPointer() {
		return nil
	}
	const head = 2 // its map and its length
	words := n.object(w, head)
	if len(words) < head || !words[0].isPointer() || !words[1].isSmall() || words[1].number() > 4*mostVariables {
		return nil
	}
	words = n.object(w, head+words[1].number())
	names := map[string]int{}
	for i := head; i+1 < len(words); i++ {
		if !words[i+1].isSmall() {
			continue
		}
		if name := n.name(words[i]); name != "" {
			names[name] = words[i+1].number()
		}
	}
	return names
}

// name returns the string that a word points to, or "" if it is longer than any that is
// looked for.
func (n *nodeProcess) name(w word) string {
	const longest = 24
	const words = 2 + longest/8 // its map, its hash and its length, its text
	if !w.isPointer() {
		return ""
	}
	o := n.object(w, words)
	if len(o) < words || o[1].number() > longest {
		return ""
	}
	text := make([]byte, 0, longest)
	for _, w := range o[2:] {
		text = binary.LittleEndian.AppendUint64(text, uint64(w))
	}
	return string(text[:o[1].number()])
}

// renew replaces what the arrays of the module contain.
func (n *nodeProcess) renew(c randomContext) {
	for name, size := range map[string]int{"uuidData": uuidBytes, "randomCache": intBytes} {
		at, drawn, ok := n.array(c.slots+hostarch.Addr(8*(ownSlots+c.variables[name])), size)
		if ok && !drawn {
			continue
		}
		fresh := make([]byte, size)
		rand.Read(fresh) // never fails: crypto/rand ends the program instead
		if ok && n.m.write(at, fresh) == size {
			n.renewed++
		} else {
			n.lost = true
		}
	}
}

// array returns where the bytes of the typed array are that a slot refers to, of a size. It
// has none while the variable is undefined, which is an object with a number that is none.
// The array, its buffer and what the buffer has its bytes from say the same place.
func (n *nodeProcess) array(slot hostarch.Addr, size int) (at hostarch.Addr, drawn, ok bool) {
	w := n.words(slot, 1)
	if len(w) < 1 || !w[0].isPointer() {
		return 0, false, false
	}
	const most = 12 // words of an array or a buffer
	array := n.object(w[0], most)
	if len(array) > 1 && array[1] == notANumber {
		return 0, false, true
	}
	for _, i := range []int{3, 4} { // from V8 14 on
		if i >= len(array) || !array[i].isPointer() {
			continue
		}
		buffer := n.object(array[i], most)
		for j := 0; j+2 < len(buffer); j++ {
			at := buffer[j+1]
			if buffer[j] == word(size) && slices.Contains(array, at) && n.isStore(buffer[j+2], at, size) {
				return hostarch.Addr(at), true, true
			}
		}
	}
	return 0, false, false
}

// isStore reports whether an extension of a buffer, which is no object of V8, has the store
// of so many bytes at a place. Once they are freed it has not: free(3) writes to the
// beginning of both.
func (n *nodeProcess) isStore(extension, at word, size int) bool {
	if extension%8 != 0 || at%8 != 0 || at < hostarch.PageSize {
		return false
	}
	for _, w := range n.words(hostarch.Addr(extension), 4) {
		if w%8 != 0 || w < hostarch.PageSize {
			continue
		}
		if store := n.words(hostarch.Addr(w), 2); len(store) == 2 && store[0] == at && store[1] == word(size) {
			return true
		}
	}
	return false
}

// notANumber is what undefined is as a number.
const notANumber = 0x7ff8_0000_0000_0000

// object returns the first words of an object, so many or fewer. If it was moved in a
// collection that is under way, or was over when its old place had not been used again, its
// first word is where to, without the bit of a pointer. Beyond mostObjects there are none.
func (n *nodeProcess) object(w word, count int) []word {
	if n.objects++; n.objects > mostObjects {
		return nil
	}
	words := n.words(w.at(), count)
	if len(words) > 0 && words[0]%8 == 0 && words[0] > hostarch.PageSize {
		return n.words(hostarch.Addr(words[0]), count)
	}
	return words
}

// words returns so many words at an address, or fewer.
func (n *nodeProcess) words(at hostarch.Addr, count int) []word {
	b := make([]byte, 8*count)
	words := make([]word, n.m.read(at, b)/8)
	for i := range words {
		words[i] = wordOf(b, i)
	}
	return words
}
