package integration

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/node/timer/timertest"
	who "ramet.dev/ramet/internal/service/access"
)

// quota sets what a tenant, or each of its trees, may have.
func (n *testNode) quota(tenant string, u api.TenantUpdate) {
	n.t.Helper()
	if _, err := n.m.UpdateTenant(who.With(asOwner, who.Owner(0)), tenant, u); err != nil {
		n.t.Fatal(err)
	}
}

// wantExceeded checks that err says which quota was in the way.
func wantExceeded(t *testing.T, err error, limit, of string) {
	t.Helper()
	var e *api.Error
	if !errors.As(err, &e) || e.Code != api.CodeLimit || e.Exceeded == nil || e.Exceeded.Limit != limit || !strings.HasPrefix(e.Exceeded.Of, of) || !strings.Contains(err.Error(), of) {
		t.Errorf("%v; want %s of %s", err, limit, of)
	}
}

func TestQuotas(t *testing.T) {
	n := newNode(t)
	ctx := asOwner
	fork := func(ref string, count int) error {
		r, err := n.m.Fork(ctx, ref, api.ForkRequest{Count: count})
		if err == nil {
			n.children(r)
		}
		return err
	}
	n.quota(who.DefaultTenant, api.TenantUpdate{Quota: &api.Quota{Sandboxes: 4}, Tree: &api.Quota{Sandboxes: 3, Depth: 1}})
	root := n.create("root")
	wantExceeded(t, fork("root", 3), "sandboxes", "tree "+root.ID)
	if err := fork("root", 1); err != nil {
		t.Fatal(err)
	}
	kids, err := n.m.List(ctx, api.ListFilter{})
	if err != nil {
		t.Fatal(err)
	}
	wantExceeded(t, fork(kids[len(kids)-1].ID, 1), "depth", "tree "+root.ID)
	n.create("other")
	// Two want the last place at the same time.
	var wg sync.WaitGroup
	var made atomic.Int32
	for range 2 {
		wg.Go(func() {
			_, err := n.m.Create(ctx, api.CreateRequest{Image: "box"})
			if err == nil {
				made.Add(1)
			} else {
				wantExceeded(t, err, "sandboxes", "tenant "+who.DefaultTenant)
			}
		})
	}
	wg.Wait()
	if made.Load() != 1 {
		t.Errorf("%d sandboxes were made in the last place", made.Load())
	}
	n.giveImage("a")
	if _, err := n.m.Create(as("a"), api.CreateRequest{Image: "box", Name: "theirs"}); err != nil {
		t.Errorf("another tenant: %v", err)
	}
	n.reopen()
	_, err = n.m.Create(ctx, api.CreateRequest{Image: "box"})
	wantExceeded(t, err, "sandboxes", "tenant "+who.DefaultTenant)
	n.quota(who.DefaultTenant, api.TenantUpdate{Quota: &api.Quota{MemoryMiB: 1}, Tree: &api.Quota{}})
	n.guest("root", "fill", "/dev/shm/data", "4")
	wantExceeded(t, fork("root", 1), "memory_mib", "tenant "+who.DefaultTenant)
	if err := n.m.Destroy(as("a"), "theirs"); err != nil {
		t.Error(err)
	}
}

// TestProcessorTime: what has used up its processor time is stopped and may go on
// when there is more.
func TestProcessorTime(t *testing.T) {
	n := newNode(t)
	ctx := asOwner
	root := n.create("root")
	n.quota(who.DefaultTenant, api.TenantUpdate{Quota: &api.Quota{CPUSeconds: 1}})
	if _, err := n.m.StartProcess(ctx, "root", api.StartRequest{Argv: []string{"guest", "spew", "1000000000000"}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is paused", func() error {
		if s := n.get("root"); s.State != api.StatePaused {
			return fmt.Errorf("it is %s", s.State)
		}
		return nil
	})
	_, err := n.m.Resume(ctx, "root")
	wantExceeded(t, err, "cpu_seconds", "tenant "+who.DefaultTenant)
	_, err = n.m.Create(ctx, api.CreateRequest{Image: "box"})
	wantExceeded(t, err, "cpu_seconds", "tenant "+who.DefaultTenant)
	n.reopen() // it is not forgotten
	_, err = n.m.Resume(ctx, "root")
	wantExceeded(t, err, "cpu_seconds", "tenant "+who.DefaultTenant)
	n.quota(who.DefaultTenant, api.TenantUpdate{Quota: &api.Quota{}})
	if _, err := n.m.Resume(ctx, root.ID); err != nil {
		t.Error(err)
	}
}

// TestMemoryRunsShort: what does not fit is refused with the figures, and idle
// sandboxes are put to disk, the one first that was used longest ago.
func TestMemoryRunsShort(t *testing.T) {
	n := newClosedNode(t, newDir(t)+"/data")
	var free atomic.Int64
	free.Store(8 << 30)
	n.memory = func() (int64, int64, error) { return free.Load(), 8 << 30, nil }
	clock := timertest.New(time.Now())
	n.clock = clock
	n.open()
	t.Cleanup(n.finish)
	ctx := asOwner
	n.create("old")
	n.create("young")
	free.Store(1 << 20)
	if _, err := n.m.Create(ctx, api.CreateRequest{Image: "box"}); api.CodeOf(err) != api.CodeNoMemory || !strings.Contains(err.Error(), "1 MiB of 8192 MiB") {
		t.Errorf("create: %v", err)
	}
	if got := n.get("old").State; got != api.StateRunning {
		t.Errorf("what was just used is %s", got)
	}
	free.Store(8 << 30)
	clock.Advance(time.Minute)
	n.guest("young", "list", "/etc/passwd")
	clock.Advance(time.Minute)
	free.Store(1 << 20)
	// It makes room as long as memory is short, and that is until the first rests.
	eventually(t, "one is put to disk", func() error {
		if s := n.get("old"); s.State != api.StateHibernated {
			return fmt.Errorf("it is %s", s.State)
		}
		return nil
	})
	free.Store(8 << 30)
	n.guest("old", "list", "/etc/passwd") // it is woken
	entries, err := n.m.AuditEntries(ctx, 0, 1000)
	if err != nil || len(entries) == 0 || entries[0].Action != "hibernate-for-memory" || entries[0].Object != n.get("old").ID {
		t.Errorf("audit %+v, %v", entries, err)
	}
}
