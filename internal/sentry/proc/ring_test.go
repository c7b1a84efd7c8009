package proc

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"gvisor.dev/gvisor/pkg/sentry/vfs"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/sentry/gate"
)

// write adds text to r, as a pipe with it would.
func write(t testing.TB, r *ring, stream wire.Stream, text string) {
	t.Helper()
	for text != "" {
		n, err := r.fill(stream, func(buf []byte) (int, error) { return copy(buf, text), nil })
		if err != nil {
			t.Fatal(err)
		}
		text = text[n:]
	}
}

// readAll returns what r has from a sequence number on, each change of stream as
// "seq:" and each gap as "[lost]". A space ends each.
func readAll(r *ring, from int64) string {
	rd := r.newReader(from, false)
	defer rd.close()
	var b strings.Builder
	var last wire.Stream
	for {
		c, err := rd.try()
		if err != nil {
			return b.String() + " "
		}
		if c.Lost > 0 {
			fmt.Fprintf(&b, "[%d lost at %d] ", c.Lost, c.Seq)
			continue
		}
		if c.Stream != last {
			if last != 0 {
				b.WriteByte(' ')
			}
			fmt.Fprintf(&b, "%d:", c.Seq)
			last = c.Stream
		}
		b.Write(c.Data)
	}
}

func TestRingKeepsOrder(t *testing.T) {
	r := newRing(new(atomic.Int64), blockSize)
	write(t, r, wire.Stdout, "one ")
	write(t, r, wire.Stderr, "two ")
	write(t, r, wire.Stdout, "three")
	for from, want := range map[int64]string{0: "0:one  4:two  8:three ", 2: "2:e  4:two  8:three ", 9: "9:hree ", 13: " "} {
		if got := readAll(r, from); got != want {
			t.Errorf("from %d: %q, not %q", from, got, want)
		}
	}
}

// TestRingWraps writes more than a ring keeps, and reads from every place.
func TestRingWraps(t *testing.T) {
	const keep = 2 * blockSize
	var total atomic.Int64
	r := newRing(&total, keep)
	rng := rand.New(rand.NewPCG(1, 2))
	var all []byte
	for len(all) < 10*blockSize {
		piece := make([]byte, 1+rng.IntN(3000))
		for i := range piece {
			piece[i] = byte(rng.Uint32())
		}
		write(t, r, wire.Stream(1+rng.IntN(2)), string(piece))
		all = append(all, piece...)
	}
	first, next := r.bounds()
	if next != int64(len(all)) || next-first < keep || next-first > keep+2*blockSize {
		t.Fatalf("of %d bytes it keeps %d to %d", len(all), first, next)
	}
	if n := total.Load(); n < next-first || n > keep+2*blockSize {
		t.Errorf("it counts %d bytes", n)
	}
	for range 200 {
		from := rng.Int64N(next + 1)
		rd := r.newReader(from, false)
		at := from
		for {
			c, err := rd.try()
			if err != nil {
				break
			}
			if c.Seq != at {
				t.Fatalf("from %d: chunk at %d, not %d", from, c.Seq, at)
			}
			if c.Lost > 0 && (from >= first || at+c.Lost != first) {
				t.Fatalf("from %d: %d bytes lost at %d", from, c.Lost, at)
			}
			if c.Lost == 0 && !bytes.Equal(c.Data, all[at:at+int64(len(c.Data))]) {
				t.Fatalf("from %d: wrong bytes at %d", from, at)
			}
			at += c.Lost + int64(len(c.Data))
		}
		rd.close()
		if at != next {
			t.Fatalf("from %d: ends at %d of %d", from, at, next)
		}
	}
	r.close()
	if n := total.Load(); n != 0 {
		t.Errorf("%d bytes are still counted", n)
	}
	write(t, r, wire.Stdout, "nobody wants this")
	if n := total.Load(); n != 0 {
		t.Errorf("a closed ring counts %d bytes", n)
	}
}

// TestRingOfSingleBytes alternates streams, which must not cost unbounded memory.
func TestRingOfSingleBytes(t *testing.T) {
	r := newRing(new(atomic.Int64), 4*blockSize)
	for i := range 100_000 {
		write(t, r, wire.Stream(1+i%2), "x")
	}
	marks := 0
	for _, b := range r.blocks {
		marks += len(b.marks)
	}
	if marks > 5*maxMarks {
		t.Errorf("%d chunks are kept", marks)
	}
	if first, next := r.bounds(); next != 100_000 || first >= next {
		t.Errorf("it keeps %d to %d", first, next)
	}
}

// TestRingWaits lets a reader that must not miss anything be slow.
func TestRingWaits(t *testing.T) {
	r := newRing(new(atomic.Int64), blockSize)
	pump := gate.NewNotifier()
	r.addWriter(pump)
	rd := r.newReader(0, true)
	const size = 20 * blockSize
	var wg sync.WaitGroup
	waited := 0
	wg.Go(func() {
		for sent := 0; sent < size; {
			n, err := r.fill(wire.Stdout, func(buf []byte) (int, error) {
				n := min(len(buf), size-sent)
				for i := range buf[:n] {
					buf[i] = byte((sent + i) % 251)
				}
				return n, nil
			})
			if err == errNoRoom {
				waited++
				<-pump.C
			}
			sent += n
		}
		r.end()
	})
	got := 0
	for {
		c, err := rd.next(nil)
		if err == io.EOF {
			break
		}
		for i, b := range c.Data {
			if b != byte((got+i)%251) {
				t.Fatalf("byte %d is wrong", got+i)
			}
		}
		got += len(c.Data)
	}
	wg.Wait()
	if got != size || waited == 0 {
		t.Errorf("%d of %d bytes arrived; the writer waited %d times", got, size, waited)
	}
	rd.close()
}

// TestRingIsFrozen goes on writing after a freeze, which must not notice.
func TestRingIsFrozen(t *testing.T) {
	r := newRing(new(atomic.Int64), blockSize)
	write(t, r, wire.Stdout, strings.Repeat("before", 30_000))
	out := r.freeze()
	first, next := r.bounds()
	write(t, r, wire.Stderr, strings.Repeat("after!", 60_000))
	if out.Next != next || out.Blocks[0].Start != first {
		t.Fatalf("the freeze has %d to %d, not %d to %d", out.Blocks[0].Start, out.Next, first, next)
	}
	child := newRing(new(atomic.Int64), blockSize)
	child.thaw(&out)
	write(t, child, wire.Stderr, "child")
	want := fmt.Sprintf("%d:%s %d:child ", first, strings.Repeat("before", 30_000)[first:], next)
	if got := readAll(child, first); got != want {
		t.Errorf("the child has %d bytes, not %d", len(got), len(want))
	}
}

// TestRingIsFrozenBetweenBlocks freezes a ring whose last block is still empty: there
// was nothing to read when it was made.
func TestRingIsFrozenBetweenBlocks(t *testing.T) {
	r := newRing(new(atomic.Int64), blockSize)
	text := strings.Repeat("x", firstBlock)
	write(t, r, wire.Stdout, text)
	if n, err := r.fill(wire.Stdout, func([]byte) (int, error) { return 0, io.ErrNoProgress }); n != 0 || err != io.ErrNoProgress || len(r.blocks) != 2 {
		t.Fatalf("%d, %v, and %d blocks", n, err, len(r.blocks))
	}
	out := r.freeze()
	child := newRing(new(atomic.Int64), blockSize)
	child.thaw(&out)
	for side, r := range map[string]*ring{"child": child, "parent": r} {
		write(t, r, wire.Stderr, side)
		if got, want := readAll(r, 0), fmt.Sprintf("0:%s %d:%s ", text, firstBlock, side); got != want {
			t.Errorf("%s: %q", side, got)
		}
	}
}

// TestRingsShareABound fills many rings.
func TestRingsShareABound(t *testing.T) {
	var total atomic.Int64
	var rings []*ring
	for range 100 {
		r := newRing(&total, 1<<20)
		write(t, r, wire.Stdout, strings.Repeat("x", 2<<20))
		rings = append(rings, r)
	}
	if n := total.Load(); n > totalOutput+int64(len(rings))*2*blockSize {
		t.Errorf("%d bytes are kept", n)
	}
	if first, next := rings[99].bounds(); next-first < 1 {
		t.Errorf("the last one keeps %d bytes", next-first)
	}
}

// TestTableForgets has more processes than a table keeps.
func TestTableForgets(t *testing.T) {
	tab := NewTable(nil, gate.New(idleKernel{}))
	add := func(pid int32, ended int64) {
		if err := tab.makeRoom(); err != nil {
			t.Fatal(err)
		}
		p := &process{pid: pid, keep: blockSize, ended: ended}
		p.ready(tab)
		write(t, p.out, wire.Stdout, "x")
		tab.add(p)
	}
	add(2, 0)
	for pid := range int32(maxProcesses + 50) {
		add(100+pid, 1)
	}
	all := tab.all()
	if len(all) != maxProcesses || all[0].pid != 2 || all[1].pid != 100+51 {
		t.Errorf("it keeps %d, first %d and %d", len(all), all[0].pid, all[1].pid)
	}
	if n := tab.kept.Load(); n != maxProcesses*firstBlock {
		t.Errorf("%d bytes are kept", n)
	}
	add(all[1].pid, 0) // the number is used again
	if p, err := tab.find(int(all[1].pid)); err != nil || p.ended != 0 {
		t.Errorf("found %+v, %v", p, err)
	}
	for _, p := range tab.all() {
		p.ended = 0
	}
	if err := tab.makeRoom(); len(tab.all()) == maxProcesses && err != errTableFull {
		t.Errorf("room for one more than run: %v", err)
	}
}

// TestTableKeepsPlaces has many begin to start processes at the same time.
func TestTableKeepsPlaces(t *testing.T) {
	tab := NewTable(nil, gate.New(idleKernel{}))
	for range maxProcesses {
		if err := tab.makeRoom(); err != nil {
			t.Fatal(err)
		}
	}
	if err := tab.makeRoom(); err != errTableFull {
		t.Errorf("room for one more than may run: %v", err)
	}
	tab.giveUpRoom()
	if err := tab.makeRoom(); err != nil {
		t.Error(err)
	}
	for pid := range int32(maxProcesses) {
		p := &process{pid: pid}
		p.ready(tab)
		tab.add(p)
	}
	if err := tab.makeRoom(); len(tab.all()) != maxProcesses || err != errTableFull {
		t.Errorf("with %d processes: %v", len(tab.all()), err)
	}
}

// TestTableBoundsTheForgotten has commands end that leave others behind, which hold
// their output open.
func TestTableBoundsTheForgotten(t *testing.T) {
	tab := NewTable(nil, gate.New(idleKernel{}))
	var all []*process
	for pid := range int32(maxProcesses) {
		if err := tab.makeRoom(); err != nil {
			t.Fatal(err)
		}
		p := &process{pid: pid, keep: blockSize, stdout: new(vfs.FileDescription)}
		p.ready(tab)
		tab.add(p)
		write(t, p.out, wire.Stdout, strings.Repeat("x", blockSize))
		p.ended = 1
		tab.forget(p)
		write(t, p.out, wire.Stdout, "nobody wants this")
		if n := tab.kept.Load(); n != 0 || p.out.spare != nil {
			t.Fatalf("of a forgotten process %d bytes are kept, and %d to be used again", n, len(p.out.spare))
		}
		all = append(all, p)
	}
	if err := tab.makeRoom(); err != errManyLeft || api.CodeOf(err) != api.CodeLimit {
		t.Errorf("room for one more: %v", err)
	}
	tab.closed(all[5], &all[5].stdout)
	if err := tab.makeRoom(); err != nil {
		t.Error(err)
	}
}

// TestRingEndsWithItsProcess: what others write, which a process left behind, is no
// part of what its readers get, but of what those get who come later.
func TestRingEndsWithItsProcess(t *testing.T) {
	r := newRing(new(atomic.Int64), blockSize)
	rd := r.newReader(0, true)
	write(t, r, wire.Stdout, "mine")
	r.end()
	write(t, r, wire.Stdout, " theirs")
	c, err := rd.try()
	if string(c.Data) != "mine" || err != nil {
		t.Errorf("%q, %v", c.Data, err)
	}
	if c, err := rd.try(); err != io.EOF {
		t.Errorf("%q, %v", c.Data, err)
	}
	rd.close()
	later := r.newReader(2, false)
	write(t, r, wire.Stdout, " forever")
	if c, err := later.try(); string(c.Data) != "ne theirs" || err != nil {
		t.Errorf("%q, %v", c.Data, err)
	}
	if c, err := later.try(); err != io.EOF {
		t.Errorf("%q, %v", c.Data, err)
	}
	if got := readAll(r, 0); got != "0:mine theirs forever " {
		t.Errorf("%q", got)
	}
}

// TestThawEnded asks for the output of processes as a child inherits them, before anything attends to them: what has
// ended has an end, and what runs has none.
func TestThawEnded(t *testing.T) {
	parent := NewTable(nil, gate.New(idleKernel{}))
	for pid, ended := range []int64{0, 1} {
		p := &process{pid: int32(pid), ended: ended, keep: 1}
		p.ready(parent)
		write(t, p.out, wire.Stdout, "text")
		parent.list = append(parent.list, p)
	}
	child := NewTable(nil, gate.New(idleKernel{}))
	for _, p := range parent.list {
		child.list = append(child.list, &process{pid: p.pid, ended: p.ended, keep: p.keep})
	}
	if err := child.Thaw(nil, parent.gate, parent.Freeze()); err != nil {
		t.Fatal(err)
	}
	for pid, want := range []error{errPending, io.EOF} {
		rd := child.list[pid].out.newReader(4, false)
		if _, err := rd.try(); err != want {
			t.Errorf("process %d: %v, not %v", pid, err, want)
		}
		rd.close()
	}
}
