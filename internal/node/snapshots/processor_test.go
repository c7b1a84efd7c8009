package snapshots

import (
	"slices"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
)

// TestSnapshotOfAnotherProcessor has a snapshot that was made where the processor could
// more.
func TestSnapshotOfAnotherProcessor(t *testing.T) {
	here := ProcessorFeatures()
	if !slices.Contains(here, "sse2") {
		t.Fatalf("an x86-64 processor has SSE2, and this one %v", here)
	}
	s := setOf(t).Load(Record{Snapshot: api.Snapshot{State: api.SnapshotReady, Engine: "test"}, Processor: append([]string{"telepathy"}, here...)})
	_, err := s.Open(t.Context())
	if api.CodeOf(err) != api.CodeUnsupported || !strings.HasSuffix(err.Error(), ": telepathy") {
		t.Errorf("it is refused with code %q: %v", api.CodeOf(err), err)
	}
	for _, seen := range [][]string{nil, here, here[1:]} {
		if err := checkProcessor(seen, here); err != nil {
			t.Error(err)
		}
	}
}
