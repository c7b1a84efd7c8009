package gateway

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ramet.dev/ramet/internal/network/policy"
)

// TestFlowsThatShareARate take turns: one that says little waits for a turn of each other. Flows that
// wait go on when the rate ends.
func TestFlowsThatShareARate(t *testing.T) {
	w := newWorld(t, nil)
	const size = 8 << 20
	w.serve("192.0.2.9:1", func(c *net.TCPConn) { _, _ = c.Write(make([]byte, size)); _ = c.CloseWrite() })
	w.serve("192.0.2.9:2", echoes)
	doc := rules(t, "192.0.2.9:1-2")
	doc.Limits.RateMbit = 16 // two megabytes per second
	s := w.newSentry("one", doc)
	f := newFlood(t)
	guests := []*guest{s.open("192.0.2.9:1"), s.open("192.0.2.9:1")}
	f.read(guests...)
	f.passes(s.open("192.0.2.9:2"))
	f.wait()
	doc.Limits.RateMbit = 0
	if err := w.Replace(Registration{ID: "one", Policy: policy.Spec{Document: doc}}); err != nil {
		t.Fatal(err)
	}
	f.rest(size, guests...)
}

// flood is two flows that share a rate of two megabytes per second.
type flood struct {
	t     *testing.T
	began time.Time
	got   atomic.Int64 // bytes of both
	wg    sync.WaitGroup
}

// floodPart is how much of each flow is read at the rate.
const floodPart = 1 << 20

func newFlood(t *testing.T) *flood { return &flood{t: t, began: time.Now()} }

// read reads the first part of each flow.
func (f *flood) read(guests ...*guest) {
	for _, g := range guests {
		f.wg.Go(func() {
			b := make([]byte, 4096)
			for left := floodPart; left > 0; {
				n, err := g.Read(b[:min(left, len(b))])
				if err != nil {
					f.t.Error(err)
					return
				}
				left -= n
				f.got.Add(int64(n))
			}
		})
	}
}

// passes has one that says little wait for a turn of each flow, and not for all that they have to say. What
// they got meanwhile is compared, and not the time, in which the machine may do something else.
func (f *flood) passes(little *guest) {
	for range 3 {
		before := f.got.Load()
		if err := little.trip("little"); err != nil {
			f.t.Error(err)
		}
		if got := f.got.Load() - before; got > floodPart {
			f.t.Errorf("a few bytes waited until others had got %d", got)
		}
	}
}

// wait waits for the first parts.
func (f *flood) wait() {
	f.wg.Wait()
	// What the burst leaves takes 0.9 s. If each had the rate for itself, it would take half.
	if took := time.Since(f.began); took < 600*time.Millisecond {
		f.t.Errorf("%d bytes together took %v", f.got.Load(), took)
	}
}

// rest reads what is left of flows of size bytes, which have no limit any more.
func (f *flood) rest(size int64, guests ...*guest) {
	began := time.Now()
	for _, g := range guests {
		f.wg.Go(func() {
			if n, err := io.Copy(io.Discard, g); err != nil || n != size-floodPart {
				f.t.Errorf("%d bytes, %v", n, err)
			}
		})
	}
	f.wg.Wait()
	if took := time.Since(began); took > 6*time.Second { // seven at the rate
		f.t.Errorf("without a limit the rest took %v", took)
	}
}
