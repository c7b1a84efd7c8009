package node

import (
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/snapfile"
	"ramet.dev/ramet/internal/node/snapdir"
)

func extent(start, end int, gen uint32) snapfile.Extent {
	return snapfile.Extent{Range: snapfile.Range{Start: uint64(start) * snapfile.PageSize, End: uint64(end) * snapfile.PageSize}, Gen: gen}
}

// TestLongChainsAreFolded has a snapshot refer to more others than it may.
func TestLongChainsAreFolded(t *testing.T) {
	m := &Node{snaps: map[string]*snapshot{}}
	snap := &snapfile.Snapshot{}
	first, at := "", 0
	for i := range snapdir.MaxNeeds + 1 {
		id := api.NewID(api.KindSnapshot)
		m.snaps[id] = &snapshot{id: id, chained: chained{settled: true}}
		snap.Generations = append(snap.Generations, id+"/memory")
		n := 1
		if i == 0 {
			first, n = id, 1000
		}
		snap.Table = append(snap.Table, extent(at, at+n, uint32(i)))
		at += n
	}
	count := func(s *snapfile.Snapshot) (n int) {
		may := m.referring(&snapshot{id: api.NewID(api.KindSnapshot)}, s, nil)
		for id := range m.snaps {
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
	m.snaps[first].deleted = true
	if m.referring(&snapshot{}, snap, nil)(first) {
		t.Error("it refers to a snapshot that is deleted")
	}
}
