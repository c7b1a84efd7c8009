package launch

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/polltest"
)

func TestPoolHandsOutEachOnce(t *testing.T) {
	const size, takers, each = 4, 6, 4
	p := newPool(t, newLauncher(t, normal), size)
	polltest.Eventually(t, patience, "a full pool", func() bool { return p.Ready() == size })
	var mu sync.Mutex
	taken := map[string]*Sentry{}
	var wg sync.WaitGroup
	for range takers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for range each {
				s, err := p.Get(context.Background())
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if taken[s.Key()] != nil {
					t.Errorf("%s came twice", s.Key())
				}
				taken[s.Key()] = s
				mu.Unlock()
			}
		}()
	}
	wg.Wait()
	for _, s := range taken {
		if !alive(s.PID()) {
			t.Errorf("%s is dead", s.Key())
		}
		s.Kill()
	}
	polltest.Eventually(t, patience, "a full pool again", func() bool { return p.Ready() == size })
}

func TestPoolReplacesTheDead(t *testing.T) {
	const size = 3
	p := newPool(t, newLauncher(t, normal), size)
	polltest.Eventually(t, patience, "a full pool", func() bool { return p.Ready() == size })
	p.mu.Lock()
	dead := append([]*Sentry(nil), p.ready[:2]...)
	p.mu.Unlock()
	for _, s := range dead {
		if err := unix.Kill(s.PID(), unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		<-s.Done()
	}
	s, err := p.Get(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Kill()
	for _, d := range dead {
		if s == d {
			t.Error("a dead sentry was handed out")
		}
	}
	if _, err := s.Call(context.Background(), &wire.Call{Op: wire.OpInfo}, nil); err != nil {
		t.Error(err)
	}
	polltest.Eventually(t, patience, "a full pool again", func() bool { return p.Ready() == size })
}

// TestPoolGrows has a pool keep as many as were asked for at once.
func TestPoolGrows(t *testing.T) {
	p := NewPool(newLauncher(t, normal), PoolSize{Least: 1, Most: 5}, slog.New(slog.DiscardHandler))
	t.Cleanup(p.Close)
	for range 6 {
		s, err := p.Get(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		s.Kill()
	}
	polltest.Eventually(t, patience, "a larger pool", func() bool { return p.Ready() == 5 })
	p.mu.Lock()
	p.demand.peak = 0 // as if it were forgotten
	p.mu.Unlock()
	p.wake <- struct{}{}
	polltest.Eventually(t, patience, "a small pool", func() bool { return p.Ready() == 1 })
}

// TestPoolWithoutRoom starts each sentry when it is asked for.
func TestPoolWithoutRoom(t *testing.T) {
	p := newPool(t, newLauncher(t, normal), 0)
	s, err := p.Get(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	s.Kill()
	if p.Ready() != 0 {
		t.Errorf("%d are ready", p.Ready())
	}
}

// TestPoolClosesWhileItStarts closes a pool whose sentries never get ready.
func TestPoolClosesWhileItStarts(t *testing.T) {
	path, started := starts(t)
	p := NewPool(newLauncher(t, fmt.Sprintf(spawnsSilent, 1_000_000, path)), PoolSize{Least: 2, Most: 2}, slog.New(slog.DiscardHandler))
	polltest.Eventually(t, patience, "a sentry that starts", func() bool { return started() > 0 })
	p.Close()
	before := started()
	if s := p.take(); s != nil || p.Ready() != 0 {
		t.Errorf("a closed pool has %d sentries and hands out %v", p.Ready(), s)
	}
	if after := started(); after != before {
		t.Errorf("a closed pool started %d sentries", after-before)
	}
}

// TestPoolReportsFailure cannot start sentries: whoever wants one is told.
func TestPoolReportsFailure(t *testing.T) {
	path, _ := starts(t)
	p := newPool(t, newLauncher(t, fmt.Sprintf(dying, 1_000_000, path)), 1)
	_, err := p.Get(context.Background())
	wantCode(t, err, api.CodeSandboxDied)
}
