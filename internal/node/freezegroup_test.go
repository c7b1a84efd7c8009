package node

import (
	"context"
	"errors"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/wire"
)

// TestJointSharing has forks come and go around one freeze: who comes before it
// begins shares it, who comes later does not, and nobody's reference is lost.
func TestJointSharing(t *testing.T) {
	var j freezeGroup
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

// TestJointSharingSurvivesAPanic has a freeze that others wait for panic: who waits
// keeps the sandbox from being destroyed.
func TestJointSharingSurvivesAPanic(t *testing.T) {
	m, b := nodeOf(t, func(*wire.Call) (any, error) { return struct{}{}, nil })
	m.memFiles = nil // so that it panics
	s, _ := b.freezeGroup.join()
	func() {
		defer func() {
			if recover() == nil {
				t.Error("it did not panic")
			}
		}()
		m.freezeShared(context.Background(), b, s)
	}()
	select {
	case <-s.done:
	default:
		t.Fatal("who waits for it waits for ever")
	}
	if api.CodeOf(s.err) != api.CodeInternal {
		t.Errorf("they are told %v", s.err)
	}
}
