package events

import (
	"context"
	"sync"
	"time"

	"ramet.dev/ramet/api"
)

// Log has the last events. It is safe for concurrent use.
type Log struct {
	mu      sync.Mutex
	ring    []api.Event // event seq is at seq % len
	start   int64       // number of the first event ever
	first   int64       // number of the oldest kept event
	next    int64
	changed chan struct{} // closed by the next event
}

// New returns a log that keeps size events. Sequence numbers begin with the time in
// microseconds, so that those of a later log are larger.
func New(size int) *Log {
	at := time.Now().UnixMicro()
	return &Log{ring: make([]api.Event, size), start: at, first: at, next: at, changed: make(chan struct{})}
}

// Publish adds an event and gives it a number and the time.
func (f *Log) Publish(e api.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e.Seq, e.Time = f.next, time.Now().UTC()
	f.ring[f.next%int64(len(f.ring))] = e
	f.next++
	f.first = max(f.first, f.next-int64(len(f.ring)))
	close(f.changed)
	f.changed = make(chan struct{})
}

// Now returns the sequence number of the last event. A reader that passes it as since gets the
// events from now on.
func (f *Log) Now() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.next - 1
}

// Read calls each with the events after since, in order, and with follow also with later
// events. It returns when ctx ends, with its cause, when each returns done or an error, or,
// without follow, after the last event. In place of events that are not kept any more, each
// gets an event whose Lost counts them; a since of 0 misses nothing. For a since that is no
// number of this log, each gets an event with Restarted, and then all events.
func (f *Log) Read(ctx context.Context, since int64, follow bool, each func(api.Event) (done bool, err error)) error {
	f.mu.Lock()
	start, next := f.start, f.next
	f.mu.Unlock()
	if since != 0 && (since < start-1 || since >= next) { // the number is of another log
		since = start - 1
		if done, err := each(api.Event{Seq: since, Restarted: true}); done || err != nil {
			return err
		}
	}
	for at := since + 1; ; {
		batch, lost, changed := f.after(at)
		if lost > 0 && at > 1 {
			batch = append([]api.Event{{Seq: at + lost - 1, Lost: lost}}, batch...)
		}
		for _, e := range batch {
			if done, err := each(e); done || err != nil {
				return err
			}
			at = e.Seq + 1
		}
		if len(batch) > 0 {
			continue
		}
		if !follow {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed:
		}
	}
}

// batchSize is how many events are copied at once.
const batchSize = 256

// after returns some events from seq on, how many before them are lost, and a channel that is
// closed by the next event.
func (f *Log) after(seq int64) (batch []api.Event, lost int64, changed <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	lost = max(0, f.first-seq)
	for at := max(seq, f.first); at < f.next && len(batch) < batchSize; at++ {
		batch = append(batch, f.ring[at%int64(len(f.ring))])
	}
	return batch, lost, f.changed
}
