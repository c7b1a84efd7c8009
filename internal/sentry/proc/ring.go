package proc

import (
	"cmp"
	"errors"
	"io"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	gotime "time"

	"ramet.dev/ramet/internal/engine/snapfile"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/sentry/gate"
)

const (
	// blockSize is the unit in which output is kept and dropped, in bytes.
	blockSize = 64 << 10
	// firstBlock is the size of a ring's first block: most commands write less.
	firstBlock = 4 << 10
	// leastRead is how much room a block must have to be read into, in bytes.
	leastRead = 1 << 10
	// maxMarks bounds the chunks in a block. A block that has so many is full.
	maxMarks = 1 << 10
	// joinWithin is how close together in time chunks of one stream are joined.
	joinWithin = gotime.Millisecond
	// totalOutput bounds what all rings of a sandbox keep together, in bytes.
	// Each keeps two blocks besides.
	totalOutput = 32 << 20
)

// errNoRoom is returned by fill while a reader that must not miss output is behind.
var errNoRoom = errors.New("output is not read")

// ring keeps the end of the output of one process. A sequence number is the number
// of bytes of both streams that came before.
//
// Bytes in a block never change, so a freeze need not copy them while the guest
// stands still.
type ring struct {
	total *atomic.Int64 // bytes in the rings of the sandbox

	mu      sync.Mutex
	most    int      // blocks
	blocks  []*block // oldest first, without gaps
	next    int64    // sequence number of the next byte
	spare   []byte
	readers []*reader
	writers []*gate.Notifier // rung when there may be room again
	ended   bool             // the process has: more output is that of processes that it left behind
	closed  bool             // nothing is kept any more
}

type block struct {
	start  int64
	data   []byte // its capacity is the block's size
	marks  []snapfile.Mark
	frozen bool // a freeze refers to it: it must not be used again
}

func (b *block) end() int64 { return b.start + int64(len(b.data)) }

// newRing returns a ring that keeps at least the last keep bytes.
func newRing(total *atomic.Int64, keep int64) *ring {
	return &ring{total: total, most: int((keep+blockSize-1)/blockSize) + 1}
}

// discarded has buffers for output that is read and not kept: rings of forgotten processes
// have none of their own.
var discarded = sync.Pool{New: func() any { return new([blockSize]byte) }}

// fill calls read, which must not block, and adds what it reads to the end of r.
func (r *ring) fill(stream wire.Stream, read func([]byte) (int, error)) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		buf := discarded.Get().(*[blockSize]byte)
		defer discarded.Put(buf)
		return read(buf[:])
	}
	b := r.tail()
	if b == nil {
		return 0, errNoRoom
	}
	n, err := read(b.data[len(b.data):cap(b.data)])
	if n <= 0 {
		return n, err
	}
	now := gotime.Now().UnixNano()
	if k := len(b.marks); k == 0 || b.marks[k-1].Stream != byte(stream) || now-b.marks[k-1].Time > int64(joinWithin) {
		b.marks = append(b.marks, snapfile.Mark{Seq: r.next, Time: now, Stream: byte(stream)})
	}
	b.data = b.data[:len(b.data)+n]
	r.next += int64(n)
	for _, rd := range r.readers {
		rd.wake.Notify()
	}
	return n, err
}

// tail returns the block to add to, or nil if there is no room.
func (r *ring) tail() *block {
	size := firstBlock
	if k := len(r.blocks); k > 0 {
		b := r.blocks[k-1]
		if cap(b.data)-len(b.data) >= leastRead && len(b.marks) < maxMarks {
			return b
		}
		size = blockSize
	}
	for len(r.blocks) >= r.most || len(r.blocks) > 1 && r.total.Load() > totalOutput {
		if !r.drop() {
			return nil
		}
	}
	data := r.spare
	r.spare = nil
	if data == nil {
		data = make([]byte, 0, size)
	}
	b := &block{start: r.next, data: data}
	r.total.Add(int64(cap(data)))
	r.blocks = append(r.blocks, b)
	return b
}

// drop forgets the oldest block, unless a reader needs it.
func (r *ring) drop() bool {
	b := r.blocks[0]
	for _, rd := range r.readers {
		if rd.whole && rd.pos < b.end() {
			return false
		}
		// What is kept for a reader that may go back is given up when memory is short.
		if rd.held > 0 && r.total.Load() <= totalOutput && (len(r.blocks) <= rd.held || rd.pos < r.blocks[rd.held].start) {
			return false
		}
	}
	r.blocks = slices.Delete(r.blocks, 0, 1)
	r.total.Add(-int64(cap(b.data)))
	if !b.frozen && cap(b.data) == blockSize {
		r.spare = b.data[:0]
	}
	return true
}

// first returns the sequence number of the oldest byte that is kept.
func (r *ring) first() int64 {
	if len(r.blocks) == 0 {
		return r.next
	}
	return r.blocks[0].start
}

// bounds returns the sequence numbers of the oldest byte that is kept and of the
// next one.
func (r *ring) bounds() (first, next int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.first(), r.next
}

// end says that the output is complete. Readers that exist end there; output that is added
// from now on is for readers that come later.
func (r *ring) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return
	}
	r.ended = true
	for _, rd := range r.readers {
		rd.until = r.next
		rd.wake.Notify()
	}
}

// close forgets the output, and drops all that is added from now on.
func (r *ring) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range r.blocks {
		r.total.Add(-int64(cap(b.data)))
	}
	r.blocks, r.spare, r.ended, r.closed = nil, nil, true, true
	for _, rd := range r.readers {
		rd.until = min(rd.until, r.next)
	}
	r.wakeAll()
}

func (r *ring) wakeAll() {
	for _, rd := range r.readers {
		rd.wake.Notify()
	}
	for _, w := range r.writers {
		w.Notify()
	}
}

// addWriter has a rung when there may be room again.
func (r *ring) addWriter(a *gate.Notifier) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writers = append(r.writers, a)
}

func (r *ring) removeWriter(a *gate.Notifier) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writers = slices.DeleteFunc(r.writers, func(x *gate.Notifier) bool { return x == a })
}

// freeze returns what is kept. It refers to the ring's memory.
func (r *ring) freeze() snapfile.Output {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := snapfile.Output{Next: r.next}
	for _, b := range r.blocks {
		if len(b.data) == 0 {
			continue // the last block may be empty
		}
		b.frozen = true
		out.Blocks = append(out.Blocks, snapfile.OutputBlock{Start: b.start, Data: b.data[:len(b.data):len(b.data)], Marks: b.marks[:len(b.marks):len(b.marks)]})
	}
	return out
}

// thaw fills an empty ring with a copy of what another ring kept.
func (r *ring) thaw(out *snapfile.Output) {
	r.next = out.Next
	for _, ob := range out.Blocks {
		b := &block{start: ob.Start, data: slices.Clone(ob.Data), marks: slices.Clone(ob.Marks)}
		r.total.Add(int64(cap(b.data)))
		r.blocks = append(r.blocks, b)
	}
}

// reader reads a ring from a sequence number on. It must be closed.
type reader struct {
	r     *ring
	pos   int64 // guarded by r.mu
	until int64 // likewise; where it ends, math.MaxInt64 while that is not known
	whole bool  // the ring must wait for it rather than drop what it has not read
	held  int   // blocks that it has read and may go back to; guarded by r.mu
	wake  *gate.Notifier
	buf   []byte
	taken int64 // length of the chunk that was returned last
}

// newReader returns a reader from the byte from on, or from the oldest that is
// kept.
func (r *ring) newReader(from int64, whole bool) *reader {
	rd := &reader{r: r, pos: from, until: math.MaxInt64, whole: whole, wake: gate.NewNotifier()}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		rd.until = r.next
	}
	r.readers = append(r.readers, rd)
	return rd
}

func (rd *reader) close() {
	r := rd.r
	r.mu.Lock()
	defer r.mu.Unlock()
	r.readers = slices.DeleteFunc(r.readers, func(x *reader) bool { return x == rd })
	r.wakeAll()
}

// hold has the ring keep so many blocks that the reader has read already. There must be
// room for some more.
func (rd *reader) hold(blocks int) {
	rd.r.mu.Lock()
	defer rd.r.mu.Unlock()
	rd.held = blocks
}

// goBack has the reader go on from the byte from, and reports whether that is kept.
func (rd *reader) goBack(from int64) bool {
	rd.r.mu.Lock()
	defer rd.r.mu.Unlock()
	if from < rd.r.first() || from > rd.pos+rd.taken {
		return false
	}
	rd.pos, rd.taken = from, 0
	return true
}

// errPending is returned by try if the process may still write something.
var errPending = errors.New("nothing is there yet")

// next waits for the next chunk, or for the end, which is io.EOF. Its data are
// valid until the next call. When stop is closed it returns errPending.
func (rd *reader) next(stop <-chan struct{}) (wire.Chunk, error) {
	for {
		c, err := rd.try()
		if err != errPending {
			return c, err
		}
		select {
		case <-rd.wake.C:
		case <-stop:
			return wire.Chunk{}, errPending
		}
	}
}

// try returns the next chunk, io.EOF at the end, or errPending.
func (rd *reader) try() (wire.Chunk, error) {
	r := rd.r
	r.mu.Lock()
	defer r.mu.Unlock()
	if rd.taken > 0 {
		rd.pos += rd.taken
		rd.taken = 0
		if rd.whole {
			for _, w := range r.writers {
				w.Notify()
			}
		}
	}
	if first := min(r.first(), rd.until); rd.pos < first {
		lost := wire.Chunk{Seq: rd.pos, Lost: first - rd.pos}
		rd.pos = first
		return lost, nil
	}
	if rd.pos >= rd.until {
		return wire.Chunk{}, io.EOF
	}
	if rd.pos >= r.next {
		return wire.Chunk{}, errPending
	}
	i, found := slices.BinarySearchFunc(r.blocks, rd.pos, func(b *block, seq int64) int { return cmp.Compare(b.start, seq) })
	if !found {
		i--
	}
	b := r.blocks[i]
	k, found := slices.BinarySearchFunc(b.marks, rd.pos, func(m snapfile.Mark, seq int64) int { return cmp.Compare(m.Seq, seq) })
	if !found {
		k--
	}
	end := min(b.end(), rd.until)
	if k+1 < len(b.marks) {
		end = min(end, b.marks[k+1].Seq)
	}
	data := b.data[rd.pos-b.start : end-b.start]
	if !rd.whole { // else the block stays until the next call
		rd.buf = append(rd.buf[:0], data...)
		data = rd.buf
	}
	rd.taken = int64(len(data))
	return wire.Chunk{Stream: wire.Stream(b.marks[k].Stream), Seq: rd.pos, Time: b.marks[k].Time, Data: data}, nil
}

// position returns the sequence number of the next byte to be read.
func (rd *reader) position() int64 {
	rd.r.mu.Lock()
	defer rd.r.mu.Unlock()
	return rd.pos + rd.taken
}
