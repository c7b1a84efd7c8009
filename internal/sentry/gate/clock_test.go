package gate

import (
	"testing"
	gotime "time"
)

// TestWaits pauses again and again while some wait, and others no longer do.
func TestWaits(t *testing.T) {
	var clock Clock
	never, short, long, stopped := clock.After(0), clock.After(gotime.Millisecond), clock.After(gotime.Hour), clock.After(300*gotime.Millisecond)
	stopped.Stop()
	for range 20 {
		clock.stop()
		paused := clock.After(gotime.Microsecond)
		select {
		case <-paused.C:
			t.Fatal("it is over while the guest is paused")
		case <-gotime.After(5 * gotime.Millisecond):
		}
		clock.start()
		<-paused.C
		paused.Stop()
	}
	<-short.C
	later := clock.After(400 * gotime.Millisecond)
	<-later.C
	select {
	case <-never.C:
		t.Error("what never is has come")
	case <-long.C:
		t.Error("an hour is over")
	case <-stopped.C:
		t.Error("one who was stopped was told")
	default:
	}
	long.Stop()
	never.Stop()
	if len(clock.waits) != 0 {
		t.Errorf("%d waits are kept", len(clock.waits))
	}
}

// TestAtRest has the clock of a guest that does not run yet stand still.
func TestAtRest(t *testing.T) {
	g := NewAtRest(nil)
	now := g.Clock.Now()
	late := g.Clock.After(gotime.Millisecond)
	defer late.Stop()
	<-gotime.After(5 * gotime.Millisecond)
	if g.Clock.Now() != now {
		t.Error("it goes")
	}
	g.Begin()
	<-late.C
	if past := g.Clock.Now() - now; past < gotime.Millisecond {
		t.Errorf("it was %v when a millisecond was due", past)
	}
}
