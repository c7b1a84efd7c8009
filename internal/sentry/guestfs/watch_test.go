package guestfs

import (
	"fmt"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
)

// TestNotes: of the changes of a path the last one is told, or each kind in its turn.
func TestNotes(t *testing.T) {
	changes := []string{"created a", "modified a", "modified a", "created b", "attributes a", "deleted a", "created a"}
	for every, want := range map[bool]string{
		false: "created a, created b",
		true:  "created a, modified a, created b, attributes a, deleted a, created a",
	} {
		w := &Watcher{every: every, pending: map[string]*api.FileEvent{}}
		for _, c := range changes {
			kind, name, _ := strings.Cut(c, " ")
			w.note(name, kind, false)
		}
		var told []string
		for _, e := range w.Take().Changes {
			told = append(told, fmt.Sprint(e.Kind, " ", e.Path))
		}
		if got := strings.Join(told, ", "); got != want {
			t.Errorf("every %v: %s, want %s", every, got, want)
		}
		if w.Pending() || w.waiting != 0 || len(w.pending) != 0 {
			t.Errorf("every %v: %d bytes of %d paths wait after all was taken", every, w.waiting, len(w.pending))
		}
	}
}
