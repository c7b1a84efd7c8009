package timeline

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"ramet.dev/ramet/api"
)

// Log is the steps of one sandbox. Its zero value has none. It is safe for concurrent use.
type Log struct {
	adding sync.Mutex // held while a step is added, and taken before mu

	mu  sync.Mutex
	rec record
}

// record is the stored form of a Log.
type record struct {
	Steps []api.Step `json:"steps"`
	// Next is the number of the next step, and At the step that the sandbox is at or came
	// from. Later steps than At are dropped with the next one.
	Next int `json:"next"`
	At   int `json:"at"`
	// Written is the path of the first write from outside that no step has yet. Writes is the number of
	// these writes, of which the store knows the first only.
	Written string `json:"written,omitempty"`
	Writes  int    `json:"writes,omitempty"`
}

// Load fills the log from its stored form.
func (l *Log) Load(doc []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return json.Unmarshal(doc, &l.rec)
}

// Has reports whether a snapshot is that of a step.
func (l *Log) Has(snapshot string) bool {
	return slices.ContainsFunc(l.read().Steps, func(s api.Step) bool { return s.Snapshot == snapshot })
}

func (l *Log) read() record {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rec
}

// add adds a step behind the current one, keeps the last of them, and returns what is to
// be stored. The caller holds l.adding.
func (l *Log) add(s api.Step, keep *api.AutoCheckpoint) record {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.rec
	r.Steps = slices.DeleteFunc(slices.Clone(r.Steps), func(old api.Step) bool { return old.Step > r.At })
	s.Step = r.Next
	r.Steps = append(r.Steps, s)
	if keep != nil && len(r.Steps) > keep.Keep {
		r.Steps = r.Steps[len(r.Steps)-keep.Keep:]
	}
	r.At, r.Next = r.Next, r.Next+1
	l.rec = r
	return r
}

// wrote notes a write from outside. If it is the first since the last step, it returns what is to be stored.
func (l *Log) wrote(path string) (r record, first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if first = l.rec.Writes == 0; first {
		l.rec.Written = path
	}
	l.rec.Writes++
	return l.rec, first
}

// takeWrites returns the writes that no step has yet as text, empty if there are none, and forgets them.
func (l *Log) takeWrites() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	path, n := l.rec.Written, l.rec.Writes
	l.rec.Written, l.rec.Writes = "", 0
	if n > 1 {
		return fmt.Sprintf("%s and %d more", path, n-1)
	}
	return path
}

// moveTo makes a step the current one, and returns what is to be stored. The caller holds
// l.adding.
func (l *Log) moveTo(number int) record {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rec.At = number
	return l.rec
}
