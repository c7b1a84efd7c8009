package snapshots

import (
	"runtime"
	"slices"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
)

// TestSnapshotOfAnotherProcessor has a snapshot that was made where the processor could
// more.
func TestSnapshotOfAnotherProcessor(t *testing.T) {
	here := ProcessorFeatures()
	if every := map[string]string{"amd64": "sse2", "arm64": "asimd"}[runtime.GOARCH]; !slices.Contains(here, every) {
		t.Fatalf("every processor of this architecture has %s, and this one %v", every, here)
	}
	s := setOf(t).Load(Record{Snapshot: api.Snapshot{State: api.SnapshotReady, Engine: "test"}, Architecture: runtime.GOARCH, Processor: append([]string{"telepathy"}, here...)})
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

// TestSnapshotOfAnotherArchitecture has a snapshot whose files are missing: it is refused before they are opened.
func TestSnapshotOfAnotherArchitecture(t *testing.T) {
	s := setOf(t).Load(Record{Snapshot: api.Snapshot{State: api.SnapshotReady, Engine: "another"}, Architecture: "riscv64", Processor: []string{"v"}})
	_, err := s.Open(t.Context())
	if api.CodeOf(err) != api.CodeUnsupported || !strings.Contains(err.Error(), "riscv64, this machine is "+runtime.GOARCH) {
		t.Errorf("it is refused with code %q: %v", api.CodeOf(err), err)
	}
	for _, c := range []struct {
		made, here string
		refused    bool
	}{{"amd64", "amd64", false}, {"arm64", "arm64", false}, {"arm64", "amd64", true}, {"", "amd64", false}, {"", "arm64", true}} {
		if err := checkArchitecture(c.made, c.here); (err != nil) != c.refused {
			t.Errorf("made on %q, restored on %s: %v", c.made, c.here, err)
		}
	}
}
