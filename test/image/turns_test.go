package image

import (
	"context"
	"sync"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/test/harness"
)

// heldWriter holds an export up at its first byte.
type heldWriter struct {
	began   chan<- string
	tenant  string
	proceed <-chan struct{}
	once    sync.Once
}

// Write implements io.Writer.
func (w *heldWriter) Write(p []byte) (int, error) {
	w.once.Do(func() {
		w.began <- w.tenant
		<-w.proceed
	})
	return len(p), nil
}

// TestExportsAreBounded has two tenants begin many exports at once, which nobody reads:
// four of each are under way, comparisons wait for them too, and all are done in the end.
func TestExportsAreBounded(t *testing.T) {
	n := harness.NewNode(t)
	const each, most = 7, 4
	began, proceed := make(chan string, 3*each), make(chan struct{})
	var wg sync.WaitGroup
	for _, tenant := range []string{"a", "b"} {
		n.GiveImage(tenant)
		n.CreateAs(harness.AsTenant(tenant), "main")
		for range each {
			wg.Go(func() {
				if err := n.Machine.Export(harness.AsTenant(tenant), "main", api.ExportRequest{Format: api.ExportTar}, &heldWriter{began: began, tenant: tenant, proceed: proceed}); err != nil {
					t.Error(err)
				}
			})
		}
	}
	running := map[string]int{}
	for range 2 * most {
		running[<-began]++
	}
	if running["a"] != most || running["b"] != most {
		t.Errorf("under way are %v", running)
	}
	// Others wait for as long as these are read: whoever gives up before was never served.
	ctx, cancel := context.WithCancel(harness.AsTenant("a"))
	diff := make(chan error, 1)
	go func() {
		_, err := n.Machine.Diff(ctx, "main", "main", api.DiffRequest{})
		diff <- err
	}()
	cancel()
	if err := <-diff; api.CodeOf(err) != api.CodeCanceled {
		t.Errorf("a comparison besides: %v", err)
	}
	if len(began) != 0 {
		t.Errorf("one more of %s is under way", <-began)
	}
	close(proceed)
	wg.Wait()
	if _, err := n.Machine.Diff(harness.AsTenant("a"), "main", "main", api.DiffRequest{}); err != nil {
		t.Errorf("a comparison afterwards: %v", err)
	}
	for _, tenant := range []string{"a", "b"} {
		if err := n.Machine.Destroy(harness.AsTenant(tenant), "main"); err != nil {
			t.Error(err)
		}
	}
}
