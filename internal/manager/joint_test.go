package manager

import (
	"errors"
	"testing"
)

// TestJointSharing has forks come and go around one freeze: who comes before it
// begins shares it, who comes later does not, and nobody's reference is lost.
func TestJointSharing(t *testing.T) {
	var j joint
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
