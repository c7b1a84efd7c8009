package daemon

import (
	"errors"
	"testing"

	"ramet.dev/ramet/internal/paths"
	"ramet.dev/ramet/internal/sandbox"
)

func TestOneDaemonForEachDataDir(t *testing.T) {
	data := t.TempDir()
	var both []paths.Paths
	for range 2 {
		p, err := paths.New(t.TempDir(), data)
		if err != nil {
			t.Fatal(err)
		}
		both = append(both, p)
	}
	lock, err := lockData(both[0])
	if err != nil {
		t.Fatal(err)
	}
	if second, err := lockData(both[1]); sandbox.CodeOf(err) != sandbox.CodeConflict {
		t.Errorf("a second daemon: %v, %v, want a conflict", second, err)
	}
	if err := release(lock); err != nil {
		t.Fatal(err)
	}
	again, err := lockData(both[1])
	if err := errors.Join(err, release(again)); err != nil {
		t.Errorf("after the first has ended: %v", err)
	}
}
