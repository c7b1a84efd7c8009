package codectx

import (
	"errors"
	"runtime"
	"slices"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/interp"
	"ramet.dev/ramet/internal/engine/wire"
)

func TestTurnsAreTakenInOrder(t *testing.T) {
	var q turns
	if err := q.take(nil); err != nil {
		t.Fatal(err)
	}
	order := make(chan int, maxWaiting)
	var gone []chan struct{}
	ended := make(chan error, maxWaiting)
	for i := range maxWaiting {
		gone = append(gone, make(chan struct{}))
		before := q.count()
		go func() {
			err := q.take(gone[i])
			if err == nil {
				order <- i
				q.give()
			}
			ended <- err
		}()
		for q.count() == before {
			runtime.Gosched() // it is about to wait
		}
	}
	if err := q.take(nil); api.CodeOf(err) != api.CodeLimit {
		t.Errorf("one more may wait: %v", err)
	}
	close(gone[1])
	if err := <-ended; api.CodeOf(err) != api.CodeCanceled {
		t.Errorf("the one who went away: %v", err)
	}
	q.give()
	for range maxWaiting - 1 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	close(order)
	var got []int
	for i := range order {
		got = append(got, i)
	}
	if len(got) != maxWaiting-1 || !slices.IsSorted(got) || slices.Contains(got, 1) {
		t.Errorf("order is %v", got)
	}
	if err := q.take(nil); err != nil || q.count() != 0 {
		t.Errorf("the turn is not free: %v", err)
	}
}

// TestRunDropsWholeResults: what is too much is dropped from its beginning, and
// smaller results still come.
func TestRunDropsWholeResults(t *testing.T) {
	size := map[interp.Kind]int{}
	var ends []interp.Kind
	r := newRun(RunIO{Part: func(p interp.Part) error {
		size[p.Kind] += len(p.Data)
		if p.Last {
			ends = append(ends, p.Kind)
		}
		return nil
	}})
	result := func(parts, each int) {
		for i := range parts {
			left := (parts - 1 - i) * each
			r.part(interp.Part{Kind: interp.KindResult, Data: make([]byte, each), Left: left, Last: left == 0})
		}
	}
	result(2, maxResults/4)
	result(3, maxResults/4) // does not fit
	result(1, maxResults/4)
	r.part(interp.Part{Kind: interp.KindDone, Data: []byte("done"), Last: true})
	if size[interp.KindResult] != 3*maxResults/4 || size[interp.KindDone] != 4 || !r.truncated || len(ends) != 3 {
		t.Errorf("passed on %v with ends %s, truncated %t", size, string(kindBytes(ends)), r.truncated)
	}
}

func kindBytes(kinds []interp.Kind) (all []byte) {
	for _, k := range kinds {
		all = append(all, byte(k))
	}
	return all
}

// TestRunWithoutCaller: after an error nothing more is passed on.
func TestRunWithoutCaller(t *testing.T) {
	calls := 0
	gone := errors.New("gone")
	r := newRun(RunIO{
		Output: func(wire.Stream, []byte) error { calls++; return gone },
		Part:   func(interp.Part) error { calls++; return nil },
	})
	r.output(wire.Stdout, []byte("x"))
	r.output(wire.Stderr, []byte("x"))
	r.part(interp.Part{Kind: interp.KindDone, Last: true})
	(*run)(nil).output(wire.Stdout, []byte("x")) // of nobody
	if calls != 1 {
		t.Errorf("%d calls", calls)
	}
}

// TestInterruptIsForWhoHasTheTurn: what is left of one is not for who comes later,
// unless the turn was had to prepare what he runs.
func TestInterruptIsForWhoHasTheTurn(t *testing.T) {
	var q turns
	taken := func() bool {
		select {
		case <-q.interrupts():
			return true
		default:
			return false
		}
	}
	turn := func(interrupted bool, handOn func(), waits, left bool) {
		t.Helper()
		if err := q.take(nil); err != nil {
			t.Fatal(err)
		}
		if interrupted && !q.interrupt() {
			t.Error("nobody has the turn")
		}
		had := make(chan error, 1)
		if waits {
			go func() { had <- q.take(nil) }()
			for q.count() == 0 {
				runtime.Gosched()
			}
		}
		handOn()
		if waits {
			if err := <-had; err != nil {
				t.Error(err)
			}
			defer q.give()
		}
		if taken() != left {
			t.Errorf("interrupted %t, somebody waits %t: an interrupt is left: %t", interrupted, waits, !left)
		}
	}
	if q.interrupt() || taken() {
		t.Error("nobody has the turn, and was interrupted")
	}
	for _, waits := range []bool{false, true} {
		turn(false, q.give, waits, false)
		turn(true, q.give, waits, false)
		turn(true, q.pass, waits, waits)
	}
}
