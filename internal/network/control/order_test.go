package control

import (
	"errors"
	"testing"

	"ramet.dev/ramet/api"
)

// TestChangesThatComeLate are not made in place of those that were told after them.
func TestChangesThatComeLate(t *testing.T) {
	var o order
	early, late := nextChange(), nextChange()
	if late <= early {
		t.Fatalf("the numbers are %d and %d", early, late)
	}
	made := ""
	change := func(key string, number int64, what string) error {
		return o.apply(key, number, func() error { made += what; return nil })
	}
	if err := change("one", late, "late "); err != nil {
		t.Error(err)
	}
	if err := change("one", early, "early "); api.CodeOf(err) != api.CodeConflict {
		t.Errorf("a change that was overtaken: %v", err)
	}
	// One that failed counts as well, and other keys are for themselves.
	failed := errors.New("failed")
	if err := o.apply("one", nextChange(), func() error { return failed }); !errors.Is(err, failed) {
		t.Error(err)
	}
	if err := change("two", early, "other "); err != nil {
		t.Error(err)
	}
	o.forget("one")
	if err := change("one", early, "again"); err != nil || made != "late other again" {
		t.Errorf("%v; made were %q", err, made)
	}
}
