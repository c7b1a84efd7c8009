package snapshots

import (
	"context"
	"encoding/json"
	"slices"

	"ramet.dev/ramet/internal/node/snapdir"
)

// Origin is where a snapshot came from that another machine has made.
type Origin struct {
	// Digest is that of the artefact, and Config its configuration, by which it is packed
	// again with the same digest.
	Digest string          `json:"digest"`
	Config json.RawMessage `json:"config"`
}

// Arrivals adds snapshots from elsewhere to a set.
type Arrivals struct{ *Set }

// Begin adds a snapshot that is not complete. It is restored and referred to after End.
func (t Arrivals) Begin(rec Record) (*Snapshot, error) { return t.Add(nil, rec) }

// Share returns the name of a generation on disk that has the pages with a digest, of a
// snapshot of the tenant of s, or "". s may refer to it from then on. A generation of
// another tenant is not shared: whoever knows the digest of pages does not have them by
// that.
func (t Arrivals) Share(ctx context.Context, s *Snapshot, digest string, size int64) (generation string) {
	for _, x := range t.All() {
		if x == s || x.Tenant() != s.Tenant() || !x.View().OnDisk {
			continue
		}
		for file, p := range x.Record().Parts {
			if p.Digest != digest || p.Size != size || !t.refersTo(s, x.ID) {
				continue
			}
			x.mu.Lock()
			f, err := x.openPart(ctx, file)
			x.mu.Unlock()
			if err == nil {
				f.Close()
				return x.ID + "/" + file
			}
		}
	}
	return ""
}

// refersTo notes that s refers to files of another snapshot, and reports whether it may.
func (t Arrivals) refersTo(s *Snapshot, id string) bool {
	t.mu.Lock()
	known := slices.Contains(s.needs, id) || len(s.needs) < snapdir.MaxNeeds
	t.mu.Unlock()
	return known && len(t.mayNeed(s, id)) > 0
}

// End makes s ready, whose files were written.
func (t Arrivals) End(ctx context.Context, s *Snapshot, w *snapdir.Written) error {
	s.mu.Lock()
	t.describe(w, &s.rec)
	s.mu.Unlock()
	t.setNeeds(s, w.Needs)
	if err := t.store.Apply(ctx, s.ReadyRecord()); err != nil {
		return err
	}
	if err := t.store.Sync(ctx); err != nil { // its directory is removed at the next start if the record is lost
		return err
	}
	s.Ready()
	return nil
}

// Part returns what is recorded of the file behind a generation of a snapshot on disk. ok is
// false if no digest was kept.
func (t Arrivals) Part(generation string) (p snapdir.Part, ok bool) {
	id, file, onDisk := snapdir.Owner(generation)
	if !onDisk {
		return snapdir.Part{}, false
	}
	s := t.Get(id)
	if s == nil {
		return snapdir.Part{}, false
	}
	p, ok = s.Record().Parts[file]
	return p, ok
}

// Trusts returns the certificate of the authority that the programs of the frozen sandbox
// trust. Those of a snapshot from elsewhere trust none of this machine.
func (r *Record) Trusts() []byte {
	if r.Origin != nil {
		return nil
	}
	return r.Reach.Certificate
}
