package node

import (
	"slices"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
)

// TestSnapshotOfAnotherProcessor has a snapshot that was made where the processor could
// more.
func TestSnapshotOfAnotherProcessor(t *testing.T) {
	here := processorFeatures()
	if !slices.Contains(here, "sse2") {
		t.Fatalf("an x86-64 processor has SSE2, and this one %v", here)
	}
	m, _ := nodeOf(t, nil)
	s := &snapshot{rec: snapRecord{Snapshot: api.Snapshot{State: api.SnapshotReady, Engine: m.engine()}, Processor: append([]string{"telepathy"}, here...)}}
	_, err := m.source(asOwner, s)
	if api.CodeOf(err) != api.CodeUnsupported || !strings.HasSuffix(err.Error(), ": telepathy") {
		t.Errorf("it is refused with code %q: %v", api.CodeOf(err), err)
	}
	for _, seen := range [][]string{nil, here, here[1:]} {
		if err := checkProcessor(seen, here); err != nil {
			t.Error(err)
		}
	}
}
