package quota

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"
)

const (
	// roomEvery is how often the host's memory is looked at.
	roomEvery = 3 * time.Second
	// OneTimeout is after what time the next sandbox is put to disk, too, because the one
	// before is not there yet: it may be large, or never answer.
	OneTimeout = 5 * time.Second
)

// Idle is a sandbox that nobody uses and that may be put to disk.
type Idle struct {
	ID     string
	UsedAt time.Time
	// Stubborn says that it could not be put to disk before.
	Stubborn bool
	Sandbox  interface {
		// TryLock keeps everybody else from changing the sandbox until Unlock. It is false
		// if something is being done to the sandbox.
		TryLock() bool
		Unlock()
		// Hibernate puts the sandbox to disk, if nobody uses it still, and reports whether
		// it did. The caller holds its lock.
		Hibernate(ctx context.Context) bool
		// MarkStubborn has the sandbox come last the next time.
		MarkStubborn()
	}
}

// RoomConfig is what a Room needs of the node.
type RoomConfig struct {
	HostMemory HostMemory
	// Idle lists the sandboxes that may be put to disk.
	Idle func() []Idle
	// After is a timer of the node's clock.
	After func(d time.Duration) (over <-chan time.Time, stop func())
	// Background runs fn in a goroutine that the node waits for when it closes.
	Background func(fn func(context.Context))
}

// Room makes room when memory runs short: it puts sandboxes to disk that nobody uses,
// first the one that was used longest ago. That is better than that the kernel ends one.
type Room struct{ cfg RoomConfig }

// NewRoom returns a Room.
func NewRoom(cfg RoomConfig) *Room { return &Room{cfg} }

// Make puts the sandbox to disk that was used longest ago, if there is one that nobody
// uses, and reports whether there was. A sandbox to which something is being done is
// passed over, because that may take as long as its tenant likes. The hibernation that
// Make begins may take long as well: the next sandbox has its turn after OneTimeout, and
// at last Make waits for all of them.
func (r *Room) Make(ctx context.Context) bool {
	type outcome struct {
		id   string
		made bool
	}
	list := r.Candidates()
	outcomes := make(chan outcome, len(list))
	begun := map[string]bool{} // and not ended
	// wait waits for the sandbox id, or for all that have begun if that is empty, until
	// one of them was put to disk, or the time is over.
	wait := func(id string, over <-chan time.Time) (made, late bool) {
		for begun[id] || id == "" && len(begun) > 0 {
			select {
			case o := <-outcomes:
				if o.made {
					return true, false
				}
				delete(begun, o.id)
			case <-over:
				return false, true
			case <-ctx.Done():
				return false, false
			}
		}
		return false, false
	}
	for _, x := range list {
		if ctx.Err() != nil {
			return false
		}
		if !x.Sandbox.TryLock() {
			continue
		}
		begun[x.ID] = true
		over, stop := r.cfg.After(OneTimeout)
		r.cfg.Background(func(context.Context) {
			made := x.Sandbox.Hibernate(ctx)
			x.Sandbox.Unlock()
			outcomes <- outcome{x.ID, made}
		})
		made, late := wait(x.ID, over)
		stop()
		if made {
			return true
		}
		if late {
			x.Sandbox.MarkStubborn()
		}
	}
	over, stop := r.cfg.After(RoomTimeout)
	defer stop()
	made, _ := wait("", over)
	return made
}

// Candidates returns what Make puts to disk, in its order: what could not be put to disk
// before comes last.
func (r *Room) Candidates() []Idle {
	list := r.cfg.Idle()
	slices.SortFunc(list, func(x, y Idle) int {
		switch {
		case x.Stubborn == y.Stubborn:
			return cmp.Or(x.UsedAt.Compare(y.UsedAt), strings.Compare(x.ID, y.ID))
		case x.Stubborn:
			return 1
		}
		return -1
	})
	return list
}

// Keep makes room when memory is short, until ctx ends. It needs a goroutine of its own:
// to put a sandbox to disk takes long.
func (r *Room) Keep(ctx context.Context) {
	tick := time.NewTicker(roomEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if free, total, err := r.cfg.HostMemory(); err == nil && free < Reserve(total) {
			r.Make(ctx)
		}
	}
}
