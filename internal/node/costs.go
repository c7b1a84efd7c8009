package node

import (
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/launch"
)

// What a sandbox costs is found out when the machine is looked at, from what the host
// says of its processes, and told to the observer. The sandbox is not asked.

const (
	// costAfter is how old a child is when what it cost is found out, and for how long
	// nobody may have used a sandbox that is called idle: by then it has given back the
	// memory that its start took.
	costAfter = 5 * time.Second
	// mostCosts bounds how many children are asked about in one look, as the host
	// goes through all their memory for it. Others that are due are left out.
	mostCosts = 16
)

// looked is what the last look at a sandbox found. Only the goroutine that looks has it.
type looked struct {
	sentry  *launch.Sentry
	at      time.Time
	seconds float64   // of the processor
	used    time.Time // when the sandbox had been used last; zero if it was in use, or just before
}

// reportCosts tells what b costs, whose sentry s has used so much processor time. It
// reports whether it asked the host about a child.
func (m *Node) reportCosts(b *instance, s *launch.Sentry, seconds float64, ask bool) (asked bool) {
	if m.cfg.Observer == nil {
		return false
	}
	now, real := m.clock.Now(), time.Now()
	b.mu.Lock()
	due := !b.born.IsZero() && now.Sub(b.born) >= costAfter
	if due {
		b.born = time.Time{}
	}
	next := looked{sentry: s, at: real, seconds: seconds}
	used := b.activity.at
	idle := b.activity.uses == 0 && b.rec.Sandbox.State == api.StateRunning && b.sentry == s
	b.mu.Unlock()
	if idle && now.Sub(used) >= costAfter {
		next.used = used
	}
	last := b.looked
	b.looked = next
	if idle && last.sentry == s && !last.used.IsZero() && last.used.Equal(used) {
		// What a process had used that ended just now may be missing until the next look.
		m.cfg.Observer.Metric(MetricIdleCPU, max(0, seconds-last.seconds)/real.Sub(last.at).Seconds())
	}
	if !due || !ask {
		return false
	}
	if bytes, err := launch.PrivateBytes(s); err == nil { // else it has ended
		m.cfg.Observer.Metric(MetricChildCPU, seconds)
		m.cfg.Observer.Metric(MetricChildPrivate, float64(bytes))
	}
	return true
}
