package reach

import (
	"reflect"
	"testing"
	"time"
)

// TestDone keeps what was added while the rest was done.
func TestDone(t *testing.T) {
	old, later := Undone{Sandbox: "a", Until: time.Unix(1, 0)}, Undone{Sandbox: "a", Until: time.Unix(2, 0)}
	p := Pending{Releases: []string{"x"}, Undone: []Undone{old}}
	done := p
	p.Releases, p.Undone = append(p.Releases, "y"), append(p.Undone, later)
	p.Done(&done)
	if want := (Pending{Releases: []string{"y"}, Undone: []Undone{later}}); !reflect.DeepEqual(p, want) || !p.Open() {
		t.Errorf("left are %+v", p)
	}
	done = p
	if p.Done(&done); p.Open() {
		t.Errorf("left are %+v", p)
	}
}
