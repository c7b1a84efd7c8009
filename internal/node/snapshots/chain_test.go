package snapshots

import (
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/engine/snapfile"
	"ramet.dev/ramet/internal/node/freezes"
	"ramet.dev/ramet/internal/node/memfiles"
	"ramet.dev/ramet/internal/node/snapdir"
	"ramet.dev/ramet/internal/node/timer"
	"ramet.dev/ramet/internal/storage/store"
)

// setOf returns a set of its own, whose snapshots are of the engine "test".
func setOf(t *testing.T) *Set {
	t.Helper()
	records, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "registry.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := records.Close(); err != nil {
			t.Error(err)
		}
	})
	memFiles, log := memfiles.New(), slog.New(slog.DiscardHandler)
	return New(Config{
		Store: records, MemFiles: memFiles, Log: log, Engines: oneEngine{}, Alarms: timer.New(timer.System{}),
		Freezes:  freezes.New(memFiles, records, log, time.Minute, func(*launch.Sentry) bool { return false }),
		Keeps:    func(string, string) bool { return false },
		Gone:     func(*Record) []store.Change { return nil },
		Dropped:  func(*Record) {},
		Panicked: func(string, any) error { return api.Errorf(api.CodeInternal, "a defect") },
	})
}

func extent(start, end int, gen uint32) snapfile.Extent {
	return snapfile.Extent{Range: snapfile.Range{Start: uint64(start) * snapfile.PageSize, End: uint64(end) * snapfile.PageSize}, Gen: gen}
}

// TestLongChainsAreFolded has a snapshot refer to more others than it may.
func TestLongChainsAreFolded(t *testing.T) {
	set := setOf(t)
	snap := &snapfile.Snapshot{}
	first, at := "", 0
	for i := range snapdir.MaxNeeds + 1 {
		id := api.NewID(api.KindSnapshot)
		set.Load(Record{Snapshot: api.Snapshot{ID: id, State: api.SnapshotReady}})
		snap.Generations = append(snap.Generations, id+"/memory")
		n := 1
		if i == 0 {
			first, n = id, 1000
		}
		snap.Table = append(snap.Table, extent(at, at+n, uint32(i)))
		at += n
	}
	count := func(s *snapfile.Snapshot) (n int) {
		may := set.referring(&Snapshot{ID: api.NewID(api.KindSnapshot)}, s, nil)
		for id := range set.byID {
			if may(id) {
				n++
			}
		}
		if !may(first) {
			t.Error("what has most of it is copied")
		}
		return n
	}
	if n := count(snap); n != snapdir.MaxNeeds/2 {
		t.Errorf("it refers to %d snapshots", n)
	}
	snap.Table = snap.Table[:snapdir.MaxNeeds]
	if n := count(snap); n != snapdir.MaxNeeds {
		t.Errorf("a shorter chain refers to %d snapshots", n)
	}
	if err := set.Get(first).become(api.SnapshotDeleted, ""); err != nil {
		t.Fatal(err)
	}
	if set.referring(&Snapshot{}, snap, nil)(first) {
		t.Error("it refers to a snapshot that is deleted")
	}
}

// TestStateIsOfWhatTheSentrySaid writes a snapshot whose state is of more memory than
// was checked when it was frozen, and one that brings about a panic.
func TestStateIsOfWhatTheSentrySaid(t *testing.T) {
	set := setOf(t)
	file, err := launch.NewFile("snapshot")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (&snapfile.Snapshot{Generations: []string{"snap_stranger/memory"}}).WriteTo(file); err != nil {
		t.Fatal(err)
	}
	if file, err = launch.Seal(file); err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	f, s := &freezes.Freeze{State: file}, set.Load(Record{Snapshot: api.Snapshot{ID: api.NewID(api.KindSnapshot)}})
	plan := func(*snapfile.Snapshot) (*snapdir.Contents, func(string) bool) { panic("not expected") }
	if _, err := s.lay(t.Context(), 0, f, plan); api.CodeOf(err) != api.CodeCorrupt || !strings.Contains(err.Error(), "other memory than it said") {
		t.Errorf("memory of a stranger: %v", err)
	}
	f.Generations = []string{"missing"}
	set.memFiles = nil
	if _, err := s.lay(t.Context(), 0, f, plan); api.CodeOf(err) != api.CodeInternal {
		t.Errorf("a panic: %v", err)
	}
}

// TestRecordsOfRemovedSnapshotsStayAway removes a snapshot between the moment in which it is
// marked as deleted and the one in which its record is to say so: two requests, of which the
// second collects what the first has marked.
func TestRecordsOfRemovedSnapshotsStayAway(t *testing.T) {
	set := setOf(t)
	s := set.Load(Record{Snapshot: api.Snapshot{ID: api.NewID(api.KindSnapshot), State: api.SnapshotReady}})
	if err := set.store.Apply(t.Context(), s.Stored()); err != nil {
		t.Fatal(err)
	}
	if err := s.become(api.SnapshotDeleted, ""); err != nil {
		t.Fatal(err)
	}
	set.Collect()
	s.markDeleted()
	if err := set.store.Each(t.Context(), store.Snapshots, func(id string, doc []byte) error {
		t.Errorf("there is a record of %s: %s", id, doc)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// oneEngine knows every engine by the name test.
type oneEngine struct{}

func (oneEngine) Knows(name string) bool { return name == "test" }

func (oneEngine) Keep() error { return nil }
