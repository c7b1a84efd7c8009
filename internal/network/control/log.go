package control

import (
	"context"
	"sync"

	"ramet.dev/ramet/api"
)

// keptLines is how many lines a Log keeps, of all sandboxes together.
const keptLines = 4096

// Log keeps the last decisions and tells readers of new ones. The zero Log is empty. It is safe for
// concurrent use.
type Log struct {
	mu    sync.Mutex
	ring  []api.NetworkLogEntry // guarded by mu
	next  uint64                // number of the next line; guarded by mu
	added chan struct{}         // closed with the next line, if a reader waits; guarded by mu
}

// Add adds a line. It never waits for a reader.
func (l *Log) Add(e api.NetworkLogEntry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.ring) < keptLines {
		l.ring = append(l.ring, e)
	} else {
		l.ring[l.next%keptLines] = e
	}
	l.next++
	if l.added != nil {
		close(l.added)
		l.added = nil
	}
}

// Reading says which lines are wanted.
type Reading struct {
	// Sandbox is whose; all if it is empty.
	Sandbox string `json:"sandbox,omitempty"`
	// Kept asks for those that are kept, and Follow for those to come.
	Kept   bool `json:"kept,omitempty"`
	Follow bool `json:"follow,omitempty"`
}

// Read calls f with lines, until there are no more, f fails or ctx ends.
func (l *Log) Read(ctx context.Context, want Reading, f func(Line) error) error {
	l.mu.Lock()
	from := l.next
	if want.Kept {
		from -= uint64(len(l.ring))
	}
	l.mu.Unlock()
	var lost uint64
	for {
		lines, first, added := l.after(from)
		lost += first - from
		for _, e := range lines {
			if want.Sandbox != "" && e.Sandbox != want.Sandbox {
				continue
			}
			if err := f(Line{e, lost}); err != nil {
				return err
			}
			lost = 0
		}
		from = first + uint64(len(lines))
		if added == nil {
			continue
		}
		if !want.Follow {
			return nil
		}
		select {
		case <-added:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// batch is how many lines a reader takes at once.
const batch = 64

// after returns lines from a number on, the number of the first one, which is higher if earlier ones
// are not kept any more, and if there are none a channel that is closed with the next.
func (l *Log) after(from uint64) (lines []api.NetworkLogEntry, first uint64, added <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first = max(from, l.next-uint64(len(l.ring)))
	for n := first; n < l.next && len(lines) < batch; n++ {
		lines = append(lines, l.ring[n%keptLines])
	}
	if len(lines) > 0 {
		return lines, first, nil
	}
	if l.added == nil {
		l.added = make(chan struct{})
	}
	return nil, first, l.added
}
