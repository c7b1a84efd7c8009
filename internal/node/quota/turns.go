package quota

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"ramet.dev/ramet/api"
)

// Turns bounds how many operations of a kind are under way at once, of each tenant and of
// all. Others wait, the first that may first, but not for long. It is safe for concurrent
// use.
type Turns struct {
	what      string // they are, for people
	perTenant int
	all       int
	timeout   time.Duration

	mu      sync.Mutex
	running map[string]int // by tenant
	total   int
	waiting []*turn
}

// turn is an operation that waits.
type turn struct {
	tenant string
	begin  chan struct{} // closed when it may
}

// waitingPerTurn is how many operations of a tenant may wait for each that may be under way.
const waitingPerTurn = 16

// NewTurns returns turns for what, such as "exports", which wait for so long.
func NewTurns(what string, perTenant, all int, timeout time.Duration) *Turns {
	return &Turns{what: what, perTenant: perTenant, all: all, timeout: timeout, running: map[string]int{}}
}

// Take waits until an operation of a tenant may begin. done is called at its end. It is a
// CodeLimit error that it may not within the time that there is, or that too many wait.
func (t *Turns) Take(ctx context.Context, tenant string) (done func(), err error) {
	next, err := t.enter(tenant)
	if err != nil {
		return nil, err
	}
	timer := time.NewTimer(t.timeout)
	defer timer.Stop()
	select {
	case <-next.begin:
		return sync.OnceFunc(func() { t.leave(tenant) }), nil
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-timer.C:
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := slices.Index(t.waiting, next); i >= 0 {
		t.waiting = slices.Delete(t.waiting, i, i+1)
	} else { // it began just now
		t.leaveLocked(tenant)
	}
	if err != nil {
		return nil, err
	}
	return nil, t.refusalLocked(tenant, fmt.Sprintf("none of them ended for %v", t.timeout))
}

// enter lets an operation begin, or wait.
func (t *Turns) enter(tenant string) (*turn, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	others := 0
	for _, w := range t.waiting {
		if w.tenant == tenant {
			others++
		}
	}
	if others >= waitingPerTurn*t.perTenant {
		return nil, t.refusalLocked(tenant, fmt.Sprintf("%d wait", others))
	}
	next := &turn{tenant: tenant, begin: make(chan struct{})}
	t.waiting = append(t.waiting, next)
	t.beginLocked()
	return next, nil
}

func (t *Turns) leave(tenant string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leaveLocked(tenant)
}

func (t *Turns) leaveLocked(tenant string) {
	t.total--
	if t.running[tenant]--; t.running[tenant] == 0 {
		delete(t.running, tenant)
	}
	t.beginLocked()
}

// beginLocked lets those begin that may.
func (t *Turns) beginLocked() {
	t.waiting = slices.DeleteFunc(t.waiting, func(w *turn) bool {
		if t.total >= t.all || t.running[w.tenant] >= t.perTenant {
			return false
		}
		t.total++
		t.running[w.tenant]++
		close(w.begin)
		return true
	})
}

// refusalLocked says which bound is in the way.
func (t *Turns) refusalLocked(tenant, why string) error {
	of, most, used := "tenant "+tenant, t.perTenant, t.running[tenant]
	if used < most {
		of, most, used = "the daemon", t.all, t.total
	}
	e := api.Errorf(api.CodeLimit, "operations: %s has %d of %d %s under way, and %s: ask again", of, used, most, t.what, why)
	retry := max(1, int64(t.timeout/(10*time.Second)))
	e.Exceeded = &api.Exceeded{Limit: "operations", Of: of, Max: int64(most), Used: float64(used), Asked: 1, RetrySeconds: retry}
	return e
}
