package share

import (
	"sync"
	"time"
)

// lately is over how many seconds a meter tells its rate.
const lately = 5

// meter counts. Its zero value has counted nothing. It is safe for concurrent use.
type meter struct {
	mu    sync.Mutex
	total int64               // guarded by mu
	slots [lately + 1]perSlot // of the last seconds; guarded by mu
}

// perSlot is what was counted in one second.
type perSlot struct{ second, n int64 }

// started is what seconds of meters are counted from.
var started = time.Now()

func secondOf(at time.Time) int64 { return int64(at.Sub(started)/time.Second) + lately + 1 }

// add counts n at a time.
func (m *meter) add(n int64, at time.Time) {
	second := secondOf(at)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.total += n
	s := &m.slots[second%int64(len(m.slots))]
	if s.second != second {
		*s = perSlot{second: second}
	}
	s.n += n
}

// read returns what was counted in all, and how much of it in a second lately.
func (m *meter) read(at time.Time) (total int64, perSecond float64) {
	second := secondOf(at)
	m.mu.Lock()
	defer m.mu.Unlock()
	var sum int64
	for _, s := range m.slots {
		if s.second < second && s.second >= second-lately { // whole seconds
			sum += s.n
		}
	}
	return m.total, float64(sum) / lately
}
