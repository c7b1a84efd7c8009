package guest

import (
	"bytes"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/cpuid"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/state"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/snapfile"
	"ramet.dev/ramet/internal/sentry/cow"
)

// TestOtherProcessor loads a kernel that has shown its guest features that no
// processor has which can run this.
func TestOtherProcessor(t *testing.T) {
	cpuid.Initialize()
	ctx := context.Background()
	lacking, names := moreFeatures(t)
	var saved bytes.Buffer
	if _, err := state.Save(ctx, &saved, &lacking); err != nil {
		t.Fatal(err)
	}
	k := &kernel.Kernel{}
	err := loadError(k.LoadFrom(ctx, bytes.NewReader(saved.Bytes()), nil, nil, nil, nil, nil, nil), nil, saved.Bytes())
	if api.CodeOf(err) != api.CodeUnsupported || !strings.HasSuffix(err.Error(), ": "+names) {
		t.Errorf("it is refused with code %q: %v", api.CodeOf(err), err)
	}
	damaged := saved.Bytes()[:saved.Len()/2]
	k = &kernel.Kernel{}
	err = loadError(k.LoadFrom(ctx, bytes.NewReader(damaged), nil, nil, nil, nil, nil, nil), nil, damaged)
	if api.CodeOf(err) != api.CodeCorrupt {
		t.Errorf("a damaged state is refused with code %q: %v", api.CodeOf(err), err)
	}
	err = loadError(err, unix.ENOMEM, damaged)
	if api.CodeOf(err) != api.CodeLimit || strings.Contains(err.Error(), "load kernel state") {
		t.Errorf("without a process it is refused with code %q: %v", api.CodeOf(err), err)
	}
}

func TestCheckMappings(t *testing.T) {
	table := func(pieces int) cow.Table {
		var table cow.Table
		for i := range pieces {
			at := uint64(i) * snapfile.PageSize
			table = append(table, snapfile.Extent{Range: snapfile.Range{Start: at, End: at + snapfile.PageSize}, Gen: uint32(i % 2)})
		}
		return table
	}
	room := maxMappings - ownMappings - 1 // for pieces: the gap at the start is one
	if err := checkMappings(table(room)); err != nil {
		t.Errorf("%d pieces: %v", room, err)
	}
	if err := checkMappings(table(room + 1)); api.CodeOf(err) != api.CodeLimit {
		t.Errorf("%d pieces: %v", room+1, err)
	}
}
