package freezes

import (
	"context"
	"encoding/json"
	"os"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/node/memfiles"
	"ramet.dev/ramet/internal/storage/store"
)

// Recovery brings the freezes of an earlier daemon back. First all sentries are
// adopted, then sandboxes ask for the freezes that they were made from, and at last pins
// and records that nobody asked for are dropped.
type Recovery struct {
	t        *Table
	records  map[string]Record
	sentries map[string]*launch.Sentry // adopted, by key
	pins     map[string][]string       // to keep, by key
}

// Recover reads the records of freezes into an empty table.
func (t *Table) Recover(ctx context.Context) (*Recovery, error) {
	r := &Recovery{t: t, records: map[string]Record{}, sentries: map[string]*launch.Sentry{}, pins: map[string][]string{}}
	return r, t.store.Each(ctx, store.Freezes, func(id string, doc []byte) error {
		var rec Record
		if err := json.Unmarshal(doc, &rec); err != nil {
			return api.Errorf(api.CodeCorrupt, "record of freeze %s: %w", id, err)
		}
		r.records[id] = rec
		return nil
	})
}

// Adopted notes a sentry that runs on.
func (r *Recovery) Adopted(s *launch.Sentry) { r.sentries[s.Key()] = s }

// IsAdopted reports whether the sentry with the key was adopted.
func (r *Recovery) IsAdopted(key string) bool { return r.sentries[key] != nil }

// Check compares the memory files that the sentry of a sandbox says that it maps with
// what the sandbox was given, which was made from the freeze called id, or from none if
// that is empty.
func (r *Recovery) Check(id string, names []string, files []*os.File) error {
	rec, known := r.records[id]
	if !known && (id != "" || len(names) > 0) {
		return api.Errorf(api.CodeCorrupt, "the sentry maps %d memory files and has no record of them", len(names))
	}
	if !known || rec.Generations == nil {
		return nil
	}
	if len(names) != len(rec.Generations) {
		return api.Errorf(api.CodeCorrupt, "the sentry maps %d memory files, not %d as recorded", len(names), len(rec.Generations))
	}
	for i, name := range names {
		id, err := launch.IDOf(files[i])
		if err != nil {
			return err
		}
		if rec.Generations[i] != (memfiles.Record{Name: name, File: id}) {
			return api.Errorf(api.CodeCorrupt, "memory file %d of the sentry is not the one recorded as %q", i, rec.Generations[i].Name)
		}
	}
	return nil
}

// Origin returns the freeze called id, which a sandbox was made from that maps the
// generations, and a change to be stored if the record did not have those. It takes over
// a reference on each generation, and the caller owns one on the result.
func (r *Recovery) Origin(id string, generations []string) (f *Freeze, changes []store.Change) {
	f = r.freeze(id)
	r.t.Hold(f, 1)
	if f.Generations != nil {
		r.t.memFiles.Release(generations...)
		return f, nil
	}
	f.Generations = generations
	if r.records[id].Generations == nil {
		changes = append(changes, r.t.Stored(f))
	}
	return f, changes
}

// freeze returns the freeze called id with all that it depends on.
func (r *Recovery) freeze(id string) *Freeze {
	if f, ok := r.t.freezes[id]; ok {
		return f
	}
	rec := r.records[id]
	f := &Freeze{ID: id, source: r.sentries[rec.Source], Files: rec.Files, History: rec.History}
	for _, g := range rec.Generations {
		f.FileNames = append(f.FileNames, g.Name)
	}
	if f.source != nil {
		r.pins[rec.Source] = append(r.pins[rec.Source], id)
	}
	r.t.freezes[id] = f
	if rec.Parent != "" {
		f.parent = r.freeze(rec.Parent)
		f.parent.refs++
	}
	return f
}

// ReleasePins drops what the old daemon pinned and nobody asked for, and returns the
// changes that forget freezes that nobody asked for.
func (r *Recovery) ReleasePins(ctx context.Context) (changes []store.Change) {
	for key, s := range r.sentries {
		keep := append([]string{}, r.pins[key]...)
		if _, err := s.Call(ctx, &wire.Call{Op: wire.OpRelease, Release: &wire.Release{Keep: keep}}, nil); err != nil {
			r.t.log.Warn("release frozen memory", "sentry", key, "error", err)
		}
	}
	for id := range r.records {
		if r.t.freezes[id] == nil {
			changes = append(changes, store.Change{Table: store.Freezes, ID: id})
		}
	}
	return changes
}
