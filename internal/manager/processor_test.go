package manager

import (
	"slices"
	"strings"
	"testing"

	"ramet.dev/ramet/internal/sandbox"
)

// TestSnapshotOfAnotherProcessor has a snapshot that was made where the processor could
// more.
func TestSnapshotOfAnotherProcessor(t *testing.T) {
	here := processorFeatures()
	if !slices.Contains(here, "sse2") {
		t.Fatalf("an x86-64 processor has SSE2, and this one %v", here)
	}
	m, _ := managerOf(t, nil)
	s := &snapshot{rec: snapRecord{Snapshot: sandbox.Snapshot{State: sandbox.SnapshotReady, Engine: m.engine()}, Processor: append([]string{"telepathy"}, here...)}}
	_, err := m.source(asOwner, s)
	if sandbox.CodeOf(err) != sandbox.CodeUnsupported || !strings.HasSuffix(err.Error(), ": telepathy") {
		t.Errorf("it is refused with code %q: %v", sandbox.CodeOf(err), err)
	}
	for _, seen := range [][]string{nil, here, here[1:]} {
		if err := checkProcessor(seen, here); err != nil {
			t.Error(err)
		}
	}
}
