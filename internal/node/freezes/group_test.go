package freezes

import (
	"context"
	"errors"
	"testing"

	"ramet.dev/ramet/internal/engine/wire"
)

// TestGroupSharesFreezes has forks come and go around one freeze: who comes before it
// begins shares it, who comes later does not, and nobody's reference is lost.
func TestGroupSharesFreezes(t *testing.T) {
	var j Group
	a, first := j.join()
	if !first {
		t.Error("the first fork is not to freeze")
	}
	b, also := j.join()
	if b != a || also {
		t.Errorf("the second fork does not share: first %t", also)
	}
	if j.leave(b) || a.waiting != 1 {
		t.Errorf("one of two left before the freeze, and %d wait", a.waiting)
	}
	j.next = nil // as freezeShared does when it begins
	late, first := j.join()
	if late == a || !first {
		t.Error("a fork shares a freeze that began before its call")
	}
	close(a.done)
	if !j.leave(a) {
		t.Error("who leaves after the freeze has no reference")
	}
	late.err = errors.New("not frozen")
	close(late.done)
	if j.leave(late) {
		t.Error("there is a reference on a freeze that failed")
	}
}

// TestSharingSurvivesAPanic has a freeze that others wait for panic: who waits keeps the
// sandbox from being destroyed.
func TestSharingSurvivesAPanic(t *testing.T) {
	var g Group
	p, _ := g.join()
	defect := errors.New("a defect")
	func() {
		defer func() {
			if recover() == nil {
				t.Error("it did not panic")
			}
		}()
		g.freezeShared(context.Background(), nil, p, defect, func(context.Context) (*Freeze, *wire.Frozen, error) { panic("on purpose") })
	}()
	select {
	case <-p.done:
	default:
		t.Fatal("who waits for it waits for ever")
	}
	if !errors.Is(p.err, defect) {
		t.Errorf("they are told %v", p.err)
	}
}
