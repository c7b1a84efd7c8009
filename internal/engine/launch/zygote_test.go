package launch

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/hostuser"
	"ramet.dev/ramet/internal/engine/wire"
)

func TestZygoteDoesNotStart(t *testing.T) {
	_, err := newLauncher(t, zygoteFails).Start(context.Background())
	if err == nil || !strings.Contains(err.Error(), crashLine) {
		t.Errorf("the reason is %v", err)
	}
}

// TestZygoteRefuses checks that a refusal is passed on, and is not the zygote's end.
func TestZygoteRefuses(t *testing.T) {
	l := newLauncher(t, refusing)
	var first *zygote
	for range 2 {
		_, err := l.Start(context.Background())
		wantCode(t, err, api.CodeLimit)
		if first == nil {
			first = l.zygotes.zygote
		}
	}
	if l.zygotes.zygote != first {
		t.Error("another zygote was started")
	}
}

func TestZygoteDoesNotAnswer(t *testing.T) {
	l := newLauncher(t, mute)
	z, err := startZygote(l.cfg, wire.ZygoteConfig{})
	if err != nil {
		t.Fatal(err)
	}
	z.timeout = 100 * time.Millisecond
	l.zygotes.zygote = z
	if _, err := l.zygotes.spawn(context.Background(), nil); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("spawn: %v", err)
	}
	if alive(z.process.Pid) {
		t.Error("it lives, and nobody knows what it is doing")
	}
}

// TestCancelledStartLeavesTheZygote has somebody give up: others must not notice.
func TestCancelledStartLeavesTheZygote(t *testing.T) {
	l := newLauncher(t, normal)
	start(t, l)
	first := l.zygotes.zygote
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := l.Start(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("start: %v", err)
	}
	start(t, l)
	if l.zygotes.zygote != first {
		t.Error("another zygote was started")
	}
}

// TestUsersRunOut has a zygote that has given its last user but one.
func TestUsersRunOut(t *testing.T) {
	l := newLauncher(t, normal)
	if why := l.Missing()["own_user"]; why != "" {
		t.Skipf("sentries have no users of their own: %s", why)
	}
	start(t, l)
	first := l.zygotes.zygote
	if first.taken != 1 {
		t.Errorf("the first sentry is user %d", first.taken)
	}
	first.taken = hostuser.RangeSize - 2
	start(t, l)
	if l.zygotes.zygote != first || first.taken != hostuser.RangeSize-1 {
		t.Errorf("the last user was not given: the zygote is at %d", first.taken)
	}
	start(t, l)
	if l.zygotes.zygote == first || l.zygotes.zygote.taken != 1 {
		t.Errorf("no other zygote gives the next one: it is at %d", l.zygotes.zygote.taken)
	}
}

// TestWaitForTheZygoteIsCancelled has somebody wait for a zygote that is at work for
// another one.
func TestWaitForTheZygoteIsCancelled(t *testing.T) {
	l := newLauncher(t, normal)
	l.zygotes.turn <- struct{}{}
	ctx, cancel := context.WithCancel(context.Background())
	gone := make(chan error, 1)
	go func() {
		_, err := l.zygotes.spawn(ctx, nil)
		gone <- err
	}()
	cancel()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Errorf("spawn: %v", err)
	}
	<-l.zygotes.turn
	start(t, l)
}
