package gateway

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"ramet.dev/ramet/internal/network/policy"
)

// TestFlowsThatShareARate take turns: one that says little waits for a turn of each other. Flows that
// wait go on when the rate ends.
func TestFlowsThatShareARate(t *testing.T) {
	w := newWorld(t, nil)
	const size, part = 8 << 20, 512 << 10
	w.serve("192.0.2.9:1", func(c *net.TCPConn) { _, _ = c.Write(make([]byte, size)); _ = c.CloseWrite() })
	w.serve("192.0.2.9:2", echoes)
	doc := rules(t, "192.0.2.9:1-2")
	doc.Limits.RateMbit = 16 // two megabytes per second
	s := w.newSentry("one", doc)
	began := time.Now()
	var wg sync.WaitGroup
	var guests []*guest
	for range 2 {
		g := s.open("192.0.2.9:1")
		guests = append(guests, g)
		wg.Go(func() {
			if _, err := io.ReadFull(g, make([]byte, part)); err != nil {
				t.Error(err)
			}
		})
	}
	little := s.open("192.0.2.9:2")
	for range 3 {
		asked := time.Now()
		if err := little.trip("little"); err != nil {
			t.Error(err)
		}
		if took := time.Since(asked); took > 400*time.Millisecond {
			t.Errorf("a few bytes took %v", took)
		}
	}
	wg.Wait()
	if took := time.Since(began); took < 300*time.Millisecond { // what the burst leaves takes 393
		t.Errorf("a megabyte took %v", took)
	}
	doc.Limits.RateMbit = 0
	if err := w.Replace(Registration{ID: "one", Policy: policy.Spec{Document: doc}}); err != nil {
		t.Fatal(err)
	}
	for _, g := range guests {
		wg.Go(func() {
			if n, err := io.Copy(io.Discard, g); err != nil || n != size-part {
				t.Errorf("%d bytes, %v", n, err)
			}
		})
	}
	began = time.Now()
	wg.Wait()
	if took := time.Since(began); took > 3*time.Second { // seven seconds at the rate
		t.Errorf("without a limit the rest took %v", took)
	}
}
