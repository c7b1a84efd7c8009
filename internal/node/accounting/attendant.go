package accounting

import (
	"context"
	"log/slog"
	"maps"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/node/background"
	"ramet.dev/ramet/internal/node/meter"
	"ramet.dev/ramet/internal/node/quota"
	"ramet.dev/ramet/internal/node/sandboxes"
	"ramet.dev/ramet/internal/node/timer"
)

const (
	// lookEvery is how often the machine is asked how much processor time each sandbox
	// used, and saveEvery how often what was booked is written down, in looks.
	lookEvery = 3 * time.Second
	saveEvery = 20
)

// Config is what an Attendant works with.
type Config struct {
	Books     *Books
	Admission *quota.Admission
	Pauser    Pauser
	// Chores pauses sandboxes.
	Chores *background.Group
	Audit  Audit
	Clock  timer.Clock
	Meter  meter.Meter
	Log    *slog.Logger
}

// Pauser pauses sandboxes.
type Pauser interface {
	// SetPaused pauses b or lets it run. The caller holds b.Op.
	SetPaused(ctx context.Context, b *sandboxes.Instance, pause bool) error
}

// Audit takes entries of the audit.
type Audit interface {
	AppendAudit(e api.AuditEntry)
}

// Attendant looks at what sandboxes use.
type Attendant struct {
	cfg    Config
	looked map[*sandboxes.Instance]looked // by the last look; only the goroutine that looks has it
}

// NewAttendant returns an attendant that has not looked yet.
func NewAttendant(cfg Config) *Attendant {
	return &Attendant{cfg, map[*sandboxes.Instance]looked{}}
}

// Attend looks at what sandboxes use until ctx ends.
func (a *Attendant) Attend(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for looks := 1; ; looks++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		a.BookAll()
		a.stopSpenders()
		if looks%saveEvery == 0 {
			a.cfg.Books.Save(ctx)
		}
	}
}

// BookAll books what all sandboxes have used, and tells what they cost.
func (a *Attendant) BookAll() {
	asked := 0
	maps.DeleteFunc(a.looked, func(b *sandboxes.Instance, _ looked) bool { return a.cfg.Books.sandboxes.Gone(b) })
	for _, b := range a.cfg.Books.sandboxes.All() {
		s := b.Sentry()
		if seconds, ok := a.cfg.Books.Book(b, s); ok && a.reportCosts(b, s, seconds, asked < mostCosts) {
			asked++
		}
	}
}

// stopSpenders pauses running sandboxes whose processor time is used up. A sandbox that an
// operation holds has its turn at another look. A sandbox that does not answer is not waited
// for, so that no tenant delays the looks at the sandboxes of others.
func (a *Attendant) stopSpenders() {
	for _, b := range a.cfg.Books.sandboxes.All() {
		v := b.View()
		if v.State != api.StateRunning {
			continue
		}
		reason := a.cfg.Admission.MayRun(b.Tenant(), quota.Tree(b.Lineage()))
		if reason == nil {
			continue
		}
		if !b.Op.TryLock() {
			continue
		}
		a.cfg.Chores.Go(func(ctx context.Context) {
			defer b.Op.Unlock()
			if err := a.cfg.Pauser.SetPaused(ctx, b, true); err != nil {
				a.cfg.Log.Warn("pause a sandbox whose processor time is used up", "id", b.ID, "error", err)
				return
			}
			a.cfg.Log.Info("a sandbox was paused", "id", b.ID, "reason", reason)
			a.cfg.Audit.AppendAudit(api.AuditEntry{Time: time.Now().UTC(), Tenant: b.Tenant(), Action: "pause-for-quota", Object: b.ID, Result: "ok"})
		})
	}
}

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

// looked is what the last look at a sandbox found.
type looked struct {
	sentry  *launch.Sentry
	at      time.Time
	seconds float64   // of the processor
	used    time.Time // when the sandbox had been used last; zero if it was in use, or just before
}

// reportCosts tells what b costs, whose sentry s has used so much processor time. It
// reports whether it asked the host about a child.
func (a *Attendant) reportCosts(b *sandboxes.Instance, s *launch.Sentry, seconds float64, ask bool) (asked bool) {
	if a.cfg.Meter.Observer == nil {
		return false
	}
	now, real := a.cfg.Clock.Now(), time.Now()
	due := b.Birth.CostDue(now.Add(-costAfter))
	next := looked{sentry: s, at: real, seconds: seconds}
	v, use := b.Activity()
	used := use.At
	idle := use.Uses == 0 && v.State == api.StateRunning && b.Sentry() == s
	if idle && now.Sub(used) >= costAfter {
		next.used = used
	}
	last := a.looked[b]
	a.looked[b] = next
	if idle && last.sentry == s && !last.used.IsZero() && last.used.Equal(used) {
		// What a process had used that ended just now may be missing until the next look.
		a.cfg.Meter.Report(meter.IdleCPU, max(0, seconds-last.seconds)/real.Sub(last.at).Seconds())
	}
	if !due || !ask {
		return false
	}
	if bytes, err := launch.PrivateBytes(s); err == nil { // else it has ended
		a.cfg.Meter.Report(meter.ChildCPU, seconds)
		a.cfg.Meter.Report(meter.ChildPrivate, float64(bytes))
	}
	return true
}
