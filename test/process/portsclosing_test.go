package process

import (
	"context"
	"sync"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/test/harness"
)

// TestPortsOfClosingSockets lists ports, waits for one and makes snapshots while the guest closes sockets of a kind
// whose release asks for a task, and while a process has ended that nobody has waited for.
func TestPortsOfClosingSockets(t *testing.T) {
	n := harness.NewNode(t)
	n.Create("box")
	p := n.Follow("box", n.Start("box", api.StartRequest{}, "netlinks", "7070"), 0)
	p.Await("open\n")
	ctx, cancel := context.WithTimeout(harness.AsOwner, time.Duration(harness.Count(2, 2, 20))*time.Second)
	defer cancel()
	var asking sync.WaitGroup
	for range 32 {
		asking.Go(func() {
			for ctx.Err() == nil {
				c, err := n.Machine.DialPort(ctx, "box", 7071, 100*time.Millisecond)
				if err == nil {
					c.Close()
				}
				if code := api.CodeOf(err); ctx.Err() == nil && code != api.CodeUnavailable && code != api.CodeTimeout {
					t.Errorf("wait for a port that nobody listens at: %v", err)
					return
				}
			}
		})
	}
	for ctx.Err() == nil {
		ports, err := n.Machine.Ports(harness.AsOwner, "box")
		if err != nil || len(ports) != 1 || ports[0].Port != 7070 {
			t.Fatalf("%+v, %v", ports, err)
		}
		for _, child := range n.Fork("box", 1) {
			n.Destroy(child.ID)
		}
	}
	asking.Wait()
}
