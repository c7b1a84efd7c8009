package snapshots

import (
	"context"
	"slices"
	"sync"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/node/freezes"
	"ramet.dev/ramet/internal/node/fsview"
	"ramet.dev/ramet/internal/node/reach"
	"ramet.dev/ramet/internal/node/selfcontrol"
	"ramet.dev/ramet/internal/node/snapdir"
	"ramet.dev/ramet/internal/service/access"
	"ramet.dev/ramet/internal/service/audit"
	"ramet.dev/ramet/internal/storage/store"
)

// Record is what is stored of a snapshot.
type Record struct {
	Snapshot  api.Snapshot       `json:"snapshot"`
	Ancestors []string           `json:"ancestors,omitempty"` // the frozen sandbox is the last
	History   []fsview.ForkPoint `json:"history,omitempty"`   // the snapshot itself is the last
	Source    api.Sandbox        `json:"source"`              // the frozen sandbox as it was then
	// Reach is that of the frozen sandbox.
	Reach     reach.Kept         `json:"network,omitzero"`
	Digest    string             `json:"digest,omitempty"`    // sha256 of the state on disk
	Control   *selfcontrol.Grant `json:"control,omitempty"`   // the grant of what is made from it
	Asked     uint64             `json:"asked,omitempty"`     // the sandbox's self-request for it; 0 for none
	Label     string             `json:"label,omitempty"`     // what the sandbox calls it
	Private   string             `json:"private,omitempty"`   // the sandbox that alone returns to it; nobody sees it
	Processor []string           `json:"processor,omitempty"` // features of the processor where it was made
	// Architecture is that of the machine where it was made; snapshots of earlier versions do not name it.
	Architecture string `json:"architecture,omitempty"`
	// Version counts how often its files were written anew, Parts are the files besides
	// the state, and Needs the snapshots to whose files it refers.
	Version int                     `json:"version,omitempty"`
	Parts   map[string]snapdir.Part `json:"parts,omitempty"`
	Needs   []string                `json:"needs,omitempty"`
	Origin  *Origin                 `json:"origin,omitempty"` // nil unless it came from elsewhere
}

// Tenant returns whose the snapshot is.
func (r *Record) Tenant() string { return access.OfRecord(r.Snapshot.Tenant) }

// Lineage returns the ids of what the snapshot descends from, itself the last.
func (r *Record) Lineage() []string { return append(slices.Clone(r.Ancestors), r.Snapshot.ID) }

// root returns the tree that the snapshot belongs to: the sandbox that was created.
func (r *Record) root() string { return r.Ancestors[0] }

// Snapshot is a freeze with a record.
type Snapshot struct {
	ID  string
	set *Set

	mu sync.Mutex
	// rec is the stored record, but for the state. Once the snapshot is in the set, only
	// the fields that follow from its files change.
	rec Record
	// freeze is the freeze that sandboxes are restored from, with a reference. A snapshot on
	// disk opens it, or its state, when it is first needed.
	freeze *freezes.Freeze
	// stamp is that of the state on disk when it was compared with its digest.
	stamp snapdir.Stamp

	condition // guarded by Set.mu
}

// View returns the snapshot as users see it.
func (s *Snapshot) View() api.Snapshot {
	rec := s.Record()
	v := rec.Snapshot
	v.Label = rec.Label
	return v
}

// Record returns what is to be stored of s.
func (s *Snapshot) Record() Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.record()
}

// record is Record. The caller holds s.mu.
func (s *Snapshot) record() Record {
	rec := s.rec
	s.set.mu.Lock()
	defer s.set.mu.Unlock()
	rec.Snapshot.State, rec.Snapshot.Reason = s.state, s.reason
	return rec
}

// Ancestors returns the ids of what s descends from, the frozen sandbox the last. They
// never change, so it does not wait while s is being opened. Nor do Control and Label.
func (s *Snapshot) Ancestors() []string { return s.rec.Ancestors }

// Control returns the grant of what is made from s.
func (s *Snapshot) Control() *selfcontrol.Grant { return s.rec.Control }

// Label returns what the sandbox calls s that asked for it.
func (s *Snapshot) Label() string { return s.rec.Label }

// State returns the state that s is in.
func (s *Snapshot) State() api.SnapshotState {
	s.set.mu.Lock()
	defer s.set.mu.Unlock()
	return s.state
}

// become changes the state, as condition.become does.
func (s *Snapshot) become(to api.SnapshotState, reason string) error {
	s.set.mu.Lock()
	defer s.set.mu.Unlock()
	return s.condition.become(s.ID, to, reason)
}

// Tenant implements visibility.Thing.
func (s *Snapshot) Tenant() string { return s.rec.Tenant() } // which never changes

// SeenBy implements visibility.Thing.
func (s *Snapshot) SeenBy(c access.Caller) bool {
	if s.rec.Private != "" { // nothing of what is read here ever changes
		return false
	}
	return c.Sees(s.rec.Tenant(), s.rec.Ancestors) || c.Tree == s.ID && c.Sees(s.rec.Tenant(), []string{s.ID})
}

// Note adds the details of s to the entry of the audit.
func (s *Snapshot) Note(ctx context.Context) {
	rec := s.Record()
	audit.Of(ctx).Set(func(d *api.AuditDetails) {
		d.Snapshot, d.Digest, d.Image = s.ID, rec.Digest, rec.Snapshot.Image
	})
}

// Frozen returns the freeze that a snapshot in memory, or one that is uploading, is
// restored from, without a reference, or nil.
func (s *Snapshot) Frozen() *freezes.Freeze {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.freeze
}

// ReadyRecord returns the change that stores s as ready, before Ready.
func (s *Snapshot) ReadyRecord() store.Change {
	rec := s.Record()
	rec.Snapshot.State, rec.Snapshot.Reason = api.SnapshotReady, ""
	return store.Change{Table: store.Snapshots, ID: s.ID, Doc: rec}
}

// Stored returns the change that stores s as it is.
func (s *Snapshot) Stored() store.Change {
	return store.Change{Table: store.Snapshots, ID: s.ID, Doc: s.Record()}
}

// Keep makes s, which is frozen in f, ready: it is written to disk unless it is to stay in
// memory, and record stores the change that says so.
func (s *Snapshot) Keep(ctx context.Context, f *freezes.Freeze, from Chain, record func(store.Change) error) error {
	if s.rec.Snapshot.OnDisk {
		if err := s.Write(ctx, f, from); err != nil {
			return err
		}
	}
	if err := record(s.ReadyRecord()); err != nil {
		return err
	}
	if s.rec.Snapshot.OnDisk { // its directory is removed at the next start if the record is lost
		if err := s.set.store.Sync(ctx); err != nil {
			return err
		}
	}
	s.Ready() // not before: from here on others may refer to it, and it cannot be given up
	return nil
}

// Ready makes s ready, which is restored from its files from now on if it has any.
func (s *Snapshot) Ready() {
	s.mu.Lock()
	err := s.become(api.SnapshotReady, "")
	var f *freezes.Freeze
	if err == nil && s.rec.Snapshot.OnDisk {
		f, s.freeze = s.freeze, nil
	}
	s.mu.Unlock()
	if err != nil {
		s.set.log.Error("make a snapshot ready", "error", err)
		return
	}
	s.set.freezes.Drop(f)
	s.set.Arm(s)
	s.set.retain(s)
}

// Fail changes the state of s, which could not be made, to failed. s gives up its memory
// and files, and its name when another snapshot wants that.
func (s *Snapshot) Fail(reason error) {
	s.mu.Lock()
	if err := s.become(api.SnapshotFailed, reason.Error()); err != nil {
		s.mu.Unlock()
		s.set.log.Error("note that a snapshot failed", "error", err)
		return
	}
	s.set.setNeeds(s, nil)
	f := s.freeze
	s.freeze = nil
	s.rec.empty()
	s.store("record that a snapshot failed")
	s.mu.Unlock()
	s.set.freezes.Drop(f)
	s.set.removeFiles(s.ID)
	s.set.Collect()
}

// empty clears the fields of r that say which files a snapshot has.
func (r *Record) empty() {
	r.Snapshot.SizeBytes, r.Snapshot.DependsOn, r.Parts, r.Needs = 0, nil, nil, nil
}

// store stores s, unless its record is being removed, and logs what fails. The caller holds
// s.mu, for which Remove waits: a record that is written here is removed after that.
func (s *Snapshot) store(doing string) {
	if s.set.Get(s.ID) != s {
		return
	}
	if err := s.set.store.Apply(context.Background(), store.Change{Table: store.Snapshots, ID: s.ID, Doc: s.record()}); err != nil {
		s.set.log.Error(doing, "id", s.ID, "error", err)
	}
}

// markDeleted gives up the memory of s, which is deleted, and records that. Its files are
// collected when nobody needs them.
func (s *Snapshot) markDeleted() {
	s.mu.Lock()
	f := s.freeze
	s.freeze = nil
	s.store("record that a snapshot is deleted")
	s.mu.Unlock()
	s.set.freezes.Drop(f)
	s.set.alarms.Clear(s.ID)
}

// Remove forgets s and gives up its memory and its files. It reports whether there was
// anything to forget.
func (s *Snapshot) Remove() bool {
	set := s.set
	set.mu.Lock()
	if set.byID[s.ID] != s {
		set.mu.Unlock()
		return false
	}
	delete(set.byID, s.ID)
	set.freeName(s)
	if s.state != api.SnapshotDeleted { // so that nobody opens it again
		if err := s.condition.become(s.ID, api.SnapshotDeleted, ""); err != nil {
			set.log.Error("remove a snapshot", "error", err)
		}
	}
	set.mu.Unlock()
	s.mu.Lock() // if its record is being written, it is removed after that
	f := s.freeze
	s.freeze = nil
	rec := s.rec
	s.mu.Unlock()
	set.freezes.Drop(f)
	changes := append(set.gone(&rec), store.Change{Table: store.Snapshots, ID: s.ID})
	if err := set.store.Apply(context.Background(), changes...); err != nil {
		set.log.Error("forget a snapshot", "id", s.ID, "error", err)
	}
	set.dropped(&rec)
	set.removeFiles(s.ID)
	return true
}
