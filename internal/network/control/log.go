package control

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"ramet.dev/ramet/api"
)

const (
	// maxLines is how many lines a Log keeps of one sandbox, and maxTotal of all: some 6 MiB.
	maxLines = 1024
	maxTotal = 16 * maxLines
	// maxBehind is how many lines a reader may be behind. More are lost to it.
	maxBehind = 1024
)

// Log keeps the last decisions of each sandbox and tells readers of new ones. A sandbox that is denied
// much takes no room from others: when there is no more room, lines of sandboxes that have ended go
// first, and then those of the sandbox that has most. The zero Log is empty. It is safe for concurrent
// use.
type Log struct {
	mu        sync.Mutex
	next      uint64             // number of the last line; guarded by mu
	total     int                // lines that are kept; guarded by mu
	sandboxes map[string]*record // guarded by mu
	ended     []*record          // those without runs, and some that have runs again; guarded by mu
	readers   map[*reader]bool   // those that follow; guarded by mu
	closed    bool               // no line comes any more; guarded by mu
}

// record has the lines of one sandbox.
type record struct {
	sandbox string
	lines   []Line // in their order
	runs    int    // how many sentries of the sandbox the gateway serves
	queued  bool   // it is in Log.ended
}

// of returns the record of a sandbox. The caller holds mu.
func (l *Log) of(sandbox string) *record {
	r := l.sandboxes[sandbox]
	if r == nil {
		r = &record{sandbox: sandbox}
		if l.sandboxes == nil {
			l.sandboxes = map[string]*record{}
		}
		l.sandboxes[sandbox] = r
	}
	return r
}

// Began says that the gateway serves a sandbox.
func (l *Log) Began(sandbox string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.of(sandbox).runs++
}

// Ended says that the gateway does not serve a sandbox any more: once for each call of Began.
func (l *Log) Ended(sandbox string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.of(sandbox)
	if r.runs--; r.runs > 0 || r.queued {
		return
	}
	if len(r.lines) == 0 {
		delete(l.sandboxes, sandbox)
		return
	}
	r.queued = true
	l.ended = append(l.ended, r)
}

// Add adds a line. It never waits for a reader.
func (l *Log) Add(e api.NetworkLogEntry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next++
	line := Line{NetworkLogEntry: e, Number: l.next}
	r := l.of(e.Sandbox)
	if len(r.lines) >= maxLines {
		l.shorten(r, 1)
	}
	r.lines = append(r.lines, line)
	if r.runs <= 0 && !r.queued { // the word of a request that was held
		r.queued = true
		l.ended = append(l.ended, r)
	}
	if l.total++; l.total > maxTotal {
		l.makeRoom()
	}
	for reader := range l.readers {
		reader.add(line)
	}
}

// shorten forgets the first lines of a sandbox. The caller holds mu.
func (l *Log) shorten(r *record, n int) {
	clear(r.lines[:n]) // the array stays for a while
	r.lines = r.lines[n:]
	l.total -= n
}

// makeRoom forgets lines of others than the sandbox whose lines matter most. The caller holds mu.
func (l *Log) makeRoom() {
	for len(l.ended) > 0 {
		r := l.ended[0]
		l.ended = l.ended[1:]
		r.queued = false
		if r.runs > 0 {
			continue // it goes on
		}
		n := len(r.lines)
		l.shorten(r, n)
		delete(l.sandboxes, r.sandbox)
		if n > 0 {
			return
		}
	}
	var most *record
	for _, r := range l.sandboxes {
		if most == nil || len(r.lines) > len(most.lines) {
			most = r
		}
	}
	l.shorten(most, max(1, len(most.lines)/4)) // so that it is not looked for with each line
}

// Close says that no line comes any more. Who follows gets what there is.
func (l *Log) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for r := range l.readers {
		r.wake()
	}
}

// Reading says which lines are wanted.
type Reading struct {
	// Sandbox is whose; all if it is empty.
	Sandbox string `json:"sandbox,omitempty"`
	// Kept asks for those that are kept, whose numbers are greater than After, and Follow for those to
	// come.
	Kept   bool   `json:"kept,omitempty"`
	After  uint64 `json:"after,omitempty"`
	Follow bool   `json:"follow,omitempty"`
	// Sampled asks for no more decisions than a reader takes who has room for few, and for no
	// ends of flows. Lost counts what a sandbox had besides.
	Sampled bool `json:"sampled,omitempty"`
}

// Read calls f with lines, until there are no more, f fails or ctx ends.
func (l *Log) Read(ctx context.Context, want Reading, f func(Line) error) error {
	r := &reader{want: want, added: make(chan struct{}, 1)}
	l.mu.Lock()
	var kept []Line
	if want.Kept {
		kept = l.kept(want)
	}
	if want.Sampled { // of those that are kept as well
		for _, line := range kept {
			r.add(line)
		}
		kept, r.waiting = r.waiting, nil
	}
	if want.Follow {
		if l.readers == nil {
			l.readers = map[*reader]bool{}
		}
		l.readers[r] = true
	}
	l.mu.Unlock()
	defer l.forget(r)
	for _, line := range kept {
		if err := f(line); err != nil {
			return err
		}
	}
	for want.Follow {
		lines, last := l.take(r)
		for _, line := range lines {
			if err := f(line); err != nil {
				return err
			}
		}
		if last {
			return nil
		}
		select {
		case <-r.added:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// kept returns the lines that a reading wants of those that are there. The caller holds mu.
func (l *Log) kept(want Reading) []Line {
	var lines []Line
	add := func(r *record) {
		from, _ := slices.BinarySearchFunc(r.lines, want.After+1, func(line Line, n uint64) int { return cmp.Compare(line.Number, n) })
		lines = append(lines, r.lines[from:]...)
	}
	if want.Sandbox != "" {
		if r := l.sandboxes[want.Sandbox]; r != nil {
			add(r)
		}
		return lines
	}
	for _, r := range l.sandboxes {
		add(r)
	}
	slices.SortFunc(lines, func(a, b Line) int { return cmp.Compare(a.Number, b.Number) })
	return lines
}

func (l *Log) forget(r *reader) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.readers, r)
}

// take returns the lines that wait for a reader, and whether they are the last ones.
func (l *Log) take(r *reader) (lines []Line, last bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines, r.waiting = r.waiting, nil
	return lines, l.closed
}

// reader is one that follows. It is guarded by the lock of the log.
type reader struct {
	want    Reading
	waiting []Line
	lost    uint64 // since the last line of waiting
	sample  sample
	added   chan struct{} // has one when there is something to take
}

// add hands a line over, if it is wanted. What a slow reader loses are the newest lines: the next one
// that there is room for says how many.
func (r *reader) add(line Line) {
	if r.want.Sandbox != "" && line.Sandbox != r.want.Sandbox {
		return
	}
	if r.want.Sampled {
		var taken bool
		if line.Lost, taken = r.sample.take(&line); !taken {
			return
		}
	}
	if len(r.waiting) >= maxBehind {
		r.lost++
		return
	}
	line.Lost += r.lost
	r.lost = 0
	r.waiting = append(r.waiting, line)
	r.wake()
}

func (r *reader) wake() {
	select {
	case r.added <- struct{}{}:
	default: // it is told already
	}
}
