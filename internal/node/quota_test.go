package node

import (
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/node/nodetest"
	"ramet.dev/ramet/internal/node/quota"
	"ramet.dev/ramet/internal/node/timer/timertest"
)

// TestBusySandboxesAreNotPutToDisk makes room while something is done to the only sandbox
// that does not end.
func TestBusySandboxesAreNotPutToDisk(t *testing.T) {
	m, b := nodeOf(t, nodetest.Answer)
	b.Op.RLock()
	defer b.Op.RUnlock()
	if m.room.Make(nodetest.AsOwner) {
		t.Error("it was put to disk")
	}
}

// TestOneThatDoesNotAnswerDoesNotHoldUpMakingRoom has the sandbox that was used longest
// ago never answer when it is to be frozen. When there is none left to try, it is waited
// for: it may only be large.
func TestOneThatDoesNotAnswerDoesNotHoldUpMakingRoom(t *testing.T) {
	asked, other := make(chan string, 9), make(chan string, 9)
	hang := make(chan struct{})
	clock := waits{timertest.New(time.Now()), make(chan time.Duration, 9)}
	m, _ := nodeWith(t, clock, func(call *wire.Call) (any, error) {
		if call.Op == wire.OpFreeze {
			asked <- "stuck"
			<-hang
		}
		return struct{}{}, nil
	})
	next := nodetest.Add(t, m.sandboxes, func(call *wire.Call) (any, error) {
		if call.Op == wire.OpFreeze {
			other <- "next"
			return nil, api.Errorf(api.CodeNoSpace, "no room")
		}
		return struct{}{}, nil
	})
	next.Touch(clock.Now().Add(-time.Hour))
	done := make(chan bool, 1)
	go func() { done <- m.room.Make(nodetest.AsOwner) }()
	<-asked
	select {
	case <-other:
		t.Error("another one is put to disk at once")
	default:
	}
	clock.Advance(quota.OneTimeout)
	select {
	case <-other:
	case <-time.After(time.Minute):
		close(hang)
		t.Fatal("the next one's turn does not come")
	}
	for waiting := false; !waiting; {
		select {
		case d := <-clock.begun:
			waiting = d == quota.RoomTimeout
		case <-done:
			close(hang)
			t.Fatal("the one that has not answered yet is given up")
		}
	}
	if list := m.room.Candidates(); len(list) != 1 || list[0].ID != next.ID {
		t.Errorf("%d could be put to disk while one of two does not answer", len(list))
	}
	clock.Advance(quota.RoomTimeout)
	if <-done {
		t.Error("none could be put to disk, and one is said to be")
	}
	close(hang)
	m.chores.Wait()
	if list := m.room.Candidates(); len(list) != 2 {
		t.Errorf("%d of two could be put to disk", len(list))
	}
}

// waits is a clock that says for how long it was begun to wait.
type waits struct {
	*timertest.Clock
	begun chan time.Duration
}

func (w waits) After(d time.Duration) (<-chan time.Time, func()) {
	ch, stop := w.Clock.After(d)
	w.begun <- d
	return ch, stop
}
