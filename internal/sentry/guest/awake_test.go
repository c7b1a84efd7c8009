package guest

import (
	"testing"
	gotime "time"
)

// TestTimeoutsStandStill pauses for longer than the timeouts of two processes. Both
// are due when the guest has run for so long.
func TestTimeoutsStandStill(t *testing.T) {
	tab := newTable()
	g := &Guest{table: tab}
	for name, p := range map[string]*process{
		"whole": {left: int64(100 * gotime.Millisecond)},
		"idle":  {idle: int64(100 * gotime.Millisecond)},
	} {
		t.Run(name, func(t *testing.T) {
			tab.clock.stop()
			p.ready(tab)
			stood := tab.clock.now()
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				g.watch(p, nil)
			}()
			<-gotime.After(gotime.Second)
			if tab.clock.now() != stood {
				t.Error("the clock does not stand still")
			}
			tab.mu.Lock()
			if p.timedOut {
				t.Error("it timed out while the guest was paused")
			}
			p.left = max(1, int64(p.deadline-p.clock.now()))
			if p.deadline > 0 && p.left != int64(100*gotime.Millisecond) {
				t.Errorf("%v is left", gotime.Duration(p.left))
			}
			tab.mu.Unlock()
			tab.clock.start()
			for out := false; !out; {
				<-gotime.After(5 * gotime.Millisecond)
				tab.mu.Lock()
				out = p.timedOut && p.timedIdle == (name == "idle")
				tab.mu.Unlock()
			}
			close(p.exited)
			<-ended
		})
	}
}
