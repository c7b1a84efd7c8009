package node

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
	"ramet.dev/ramet/test/harness"
)

// quota sets what a tenant, or each of its trees, may have.
func quota(n *harness.Node, tenant string, u api.TenantUpdate) {
	n.T.Helper()
	if _, err := n.Machine.UpdateTenant(who.With(harness.AsOwner, who.Owner(0)), tenant, u); err != nil {
		n.T.Fatal(err)
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
	n := harness.NewNode(t)
	ctx := harness.AsOwner
	fork := func(ref string, count int) error {
		r, err := n.Machine.Fork(ctx, ref, api.ForkRequest{Count: count})
		if err == nil {
			n.Children(r)
		}
		return err
	}
	quota(n, who.DefaultTenant, api.TenantUpdate{Quota: &api.Quota{Sandboxes: 4}, Tree: &api.Quota{Sandboxes: 3, Depth: 1}})
	root := n.Create("root")
	wantExceeded(t, fork("root", 3), "sandboxes", "tree "+root.ID)
	if err := fork("root", 1); err != nil {
		t.Fatal(err)
	}
	kids, err := n.Machine.List(ctx, api.ListFilter{})
	if err != nil {
		t.Fatal(err)
	}
	wantExceeded(t, fork(kids[len(kids)-1].ID, 1), "depth", "tree "+root.ID)
	n.Create("other")
	// Two want the last place at the same time.
	var wg sync.WaitGroup
	var made atomic.Int32
	for range 2 {
		wg.Go(func() {
			_, err := n.Machine.Create(ctx, api.CreateRequest{Image: "box"})
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
	n.GiveImage("a")
	if _, err := n.Machine.Create(harness.AsTenant("a"), api.CreateRequest{Image: "box", Name: "theirs"}); err != nil {
		t.Errorf("another tenant: %v", err)
	}
	n.Reopen()
	_, err = n.Machine.Create(ctx, api.CreateRequest{Image: "box"})
	wantExceeded(t, err, "sandboxes", "tenant "+who.DefaultTenant)
	quota(n, who.DefaultTenant, api.TenantUpdate{Quota: &api.Quota{MemoryMiB: 1}, Tree: &api.Quota{}})
	n.Guest("root", "fill", "/dev/shm/data", "4")
	wantExceeded(t, fork("root", 1), "memory_mib", "tenant "+who.DefaultTenant)
	if err := n.Machine.Destroy(harness.AsTenant("a"), "theirs"); err != nil {
		t.Error(err)
	}
}

// TestProcessorTime: what has used up its processor time is stopped and may go on
// when there is more.
func TestProcessorTime(t *testing.T) {
	n := harness.NewNode(t)
	ctx := harness.AsOwner
	root := n.Create("root")
	quota(n, who.DefaultTenant, api.TenantUpdate{Quota: &api.Quota{CPUSeconds: 1}})
	if _, err := n.Machine.StartProcess(ctx, "root", api.StartRequest{Argv: []string{"guest", "spew", "1000000000000"}}); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "it is paused", func() error {
		if s := n.Get("root"); s.State != api.StatePaused {
			return fmt.Errorf("it is %s", s.State)
		}
		return nil
	})
	_, err := n.Machine.Resume(ctx, "root")
	wantExceeded(t, err, "cpu_seconds", "tenant "+who.DefaultTenant)
	_, err = n.Machine.Create(ctx, api.CreateRequest{Image: "box"})
	wantExceeded(t, err, "cpu_seconds", "tenant "+who.DefaultTenant)
	n.Reopen() // it is not forgotten
	_, err = n.Machine.Resume(ctx, "root")
	wantExceeded(t, err, "cpu_seconds", "tenant "+who.DefaultTenant)
	quota(n, who.DefaultTenant, api.TenantUpdate{Quota: &api.Quota{}})
	if _, err := n.Machine.Resume(ctx, root.ID); err != nil {
		t.Error(err)
	}
}

// TestMemoryRunsShort: what does not fit is refused with the figures, and idle
// sandboxes are put to disk, the one first that was used longest ago.
func TestMemoryRunsShort(t *testing.T) {
	n := harness.NewClosedNode(t, harness.NewDir(t)+"/data")
	var free atomic.Int64
	free.Store(8 << 30)
	n.Memory = func() (int64, int64, error) { return free.Load(), 8 << 30, nil }
	clock := timertest.New(time.Now())
	n.Clock = clock
	n.Open()
	t.Cleanup(n.Finish)
	ctx := harness.AsOwner
	n.Create("old")
	n.Create("young")
	free.Store(1 << 20)
	if _, err := n.Machine.Create(ctx, api.CreateRequest{Image: "box"}); api.CodeOf(err) != api.CodeNoMemory || !strings.Contains(err.Error(), "1 MiB of 8192 MiB") {
		t.Errorf("create: %v", err)
	}
	if got := n.Get("old").State; got != api.StateRunning {
		t.Errorf("what was just used is %s", got)
	}
	free.Store(8 << 30)
	clock.Advance(time.Minute)
	n.Guest("young", "list", "/etc/passwd")
	clock.Advance(time.Minute)
	free.Store(1 << 20)
	// It makes room as long as memory is short, and that is until the first rests.
	harness.Eventually(t, "one is put to disk", func() error {
		if s := n.Get("old"); s.State != api.StateHibernated {
			return fmt.Errorf("it is %s", s.State)
		}
		return nil
	})
	free.Store(8 << 30)
	n.Guest("old", "list", "/etc/passwd") // it is woken
	entries, err := n.Machine.AuditEntries(ctx, 0, 1000)
	if err != nil || len(entries) == 0 || entries[0].Action != "hibernate-for-memory" || entries[0].Object != n.Get("old").ID {
		t.Errorf("audit %+v, %v", entries, err)
	}
}
