package guest

import (
	"testing"
	gotime "time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/wire"
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

// TestSeedsAreAwaited pauses for longer than the timeout of a cell that waits until
// its interpreter has new seeds. It is due when the guest has run for so long.
func TestSeedsAreAwaited(t *testing.T) {
	in := &interpreter{ready: true}
	in.prepare()
	c := &codeContext{name: "c", in: in, unseeded: true, seeding: &seeding{run: newRun(RunIO{})}}
	g := &Guest{table: newTable(), contexts: newContexts()}
	g.contexts.list = append(g.contexts.list, c)
	g.table.clock.stop()
	ended := make(chan error, 1)
	go func() {
		_, err := g.Run(&wire.Run{Context: "c", TimeoutMS: 100}, nil, RunIO{})
		ended <- err
	}()
	select {
	case err := <-ended:
		t.Errorf("it ended while the guest was paused: %v", err)
	case <-gotime.After(gotime.Second):
		g.table.clock.start()
		if err := <-ended; api.CodeOf(err) != api.CodeTimeout {
			t.Errorf("it ended with %v", err)
		}
	}
}

// TestWaits pauses again and again while some wait, and others no longer do.
func TestWaits(t *testing.T) {
	var clock awake
	never, short, long, stopped := clock.after(0), clock.after(gotime.Millisecond), clock.after(gotime.Hour), clock.after(50*gotime.Millisecond)
	stopped.stop()
	for range 20 {
		clock.stop()
		paused := clock.after(gotime.Microsecond)
		select {
		case <-paused.over:
			t.Fatal("it is over while the guest is paused")
		case <-gotime.After(5 * gotime.Millisecond):
		}
		clock.start()
		<-paused.over
		paused.stop()
	}
	<-short.over
	later := clock.after(100 * gotime.Millisecond)
	<-later.over
	select {
	case <-never.over:
		t.Error("what never is has come")
	case <-long.over:
		t.Error("an hour is over")
	case <-stopped.over:
		t.Error("one who was stopped was told")
	default:
	}
	long.stop()
	never.stop()
	if len(clock.waits) != 0 {
		t.Errorf("%d waits are kept", len(clock.waits))
	}
}
