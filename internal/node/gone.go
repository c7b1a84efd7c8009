package node

import (
	"encoding/json"

	"ramet.dev/ramet/internal/storage/store"
)

// goneRecord is what is kept of a sandbox or a snapshot that is gone, as long as something
// lives that descends from it: what people called it.
type goneRecord struct {
	Name  string `json:"name,omitempty"`
	Label string `json:"label,omitempty"`
}

// noteGone is called when the last of line is gone. It keeps the name of that if something
// lives that descends from it, forgets those names of line that nothing needs any more, and
// returns the changes to be stored.
func (m *Node) noteGone(line []string, called goneRecord) (changes []store.Change) {
	needed := m.needed(line)
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, id := range line {
		_, kept := m.goneNames[id]
		switch {
		case i == len(line)-1 && needed[id] && called != goneRecord{}:
			m.goneNames[id] = called
			changes = append(changes, store.Change{Table: store.Gone, ID: id, Doc: called})
		case kept && !needed[id]:
			delete(m.goneNames, id)
			changes = append(changes, store.Change{Table: store.Gone, ID: id})
		}
	}
	return changes
}

// needed returns those of ids from which something descends that lives.
func (m *Node) needed(ids []string) map[string]bool {
	of, needed := map[string]bool{}, map[string]bool{}
	for _, id := range ids {
		of[id] = true
	}
	note := func(line []string) {
		for _, id := range line {
			if of[id] {
				needed[id] = true
			}
		}
	}
	for _, b := range m.all() {
		note(b.lineage())
	}
	for _, s := range m.snapshots.All() {
		note(s.Ancestors())
	}
	return needed
}

// readGone reads the names of what is gone, and drops those that nothing needs.
func (r *recovery) readGone() error {
	err := r.m.store.Each(r.ctx, store.Gone, func(id string, doc []byte) error {
		var g goneRecord
		if err := json.Unmarshal(doc, &g); err != nil {
			return corrupt("name of what is gone", id, err)
		}
		r.m.goneNames[id] = g
		return nil
	})
	ids := make([]string, 0, len(r.m.goneNames))
	for id := range r.m.goneNames {
		ids = append(ids, id)
	}
	needed := r.m.needed(ids)
	for _, id := range ids {
		if !needed[id] {
			delete(r.m.goneNames, id)
			r.changes = append(r.changes, store.Change{Table: store.Gone, ID: id})
		}
	}
	return err
}
