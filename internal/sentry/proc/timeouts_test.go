package proc

import (
	"testing"
	gotime "time"

	"ramet.dev/ramet/internal/sentry/gate"
)

// idleKernel is a kernel that has nothing to pause.
type idleKernel struct{}

func (idleKernel) Pause()   {}
func (idleKernel) Unpause() {}

func pause(t *testing.T, g *gate.Gate) {
	t.Helper()
	if err := g.Pause(); err != nil {
		t.Fatal(err)
	}
}

func resume(t *testing.T, g *gate.Gate) {
	t.Helper()
	if err := g.Resume(); err != nil {
		t.Fatal(err)
	}
}

// TestTimeoutsStandStill pauses for longer than the timeouts of two processes. Both
// are due when the guest has run for so long.
func TestTimeoutsStandStill(t *testing.T) {
	gt := gate.New(idleKernel{})
	tab := NewTable(nil, gt)
	for name, p := range map[string]*process{
		"whole": {left: int64(100 * gotime.Millisecond)},
		"idle":  {idle: int64(100 * gotime.Millisecond)},
	} {
		t.Run(name, func(t *testing.T) {
			pause(t, gt)
			p.ready(tab)
			stood := gt.Clock.Now()
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				p.watch(nil)
			}()
			<-gotime.After(gotime.Second)
			if gt.Clock.Now() != stood {
				t.Error("the clock does not stand still")
			}
			tab.mu.Lock()
			if p.timedOut {
				t.Error("it timed out while the guest was paused")
			}
			p.left = max(1, int64(p.deadline-gt.Clock.Now()))
			if p.deadline > 0 && p.left != int64(100*gotime.Millisecond) {
				t.Errorf("%v is left", gotime.Duration(p.left))
			}
			tab.mu.Unlock()
			resume(t, gt)
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
