package inode

import (
	"testing"

	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
)

// space counts how often something is taken from it.
type space struct{ taken int }

func (s *space) Invalidate(hostarch.AddrRange, memmap.InvalidateOpts) { s.taken++ }

// TestFreezeTellsFilesOnce does to a file what a freeze does for each process that has
// it mapped.
func TestFreezeTellsFilesOnce(t *testing.T) {
	i, user := &Inode{}, &space{}
	ctx, at := context.Background(), hostarch.AddrRange{Start: 0x10000, End: 0x12000}
	if err := i.AddMapping(ctx, user, at, 0, false); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := i.InvalidateUnsavable(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if user.taken != 0 {
		t.Errorf("%d times something was taken where nothing was mapped", user.taken)
	}
	for range 2 {
		i.translated.Store(true) // as Translate does
		for range 3 {
			i.invalidateAll()
		}
	}
	if user.taken != 2 {
		t.Errorf("what was mapped twice was taken %d times", user.taken)
	}
	if i.RemoveMapping(ctx, user, at, 0, false); !i.mappings.IsEmpty() {
		t.Error("a mapping is left")
	}
}
