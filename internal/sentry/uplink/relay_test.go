package uplink

import (
	"io"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	gvisor "gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/tcpip"

	"ramet.dev/ramet/internal/network/wire"
)

// over is a guest that has said all that it says.
type over struct{}

func (over) Await(<-chan struct{}) error               { return nil }
func (over) Read([]byte, <-chan struct{}) (int, error) { return 0, io.EOF }
func (over) Write([]byte, <-chan struct{}) error       { return nil }
func (over) CloseWrite()                               {}
func (over) Close()                                    {}
func (over) Abort()                                    {}

// TestAGatewayThatEndsWithAFlow ends the channel at the moment at which a relay ends.
func TestAGatewayThatEndsWithAFlow(t *testing.T) {
	for range 2000 {
		ours, theirs, err := wire.Pair()
		if err != nil {
			t.Fatal(err)
		}
		x, err := newExchange(ours)
		if err != nil {
			t.Fatal(err)
		}
		mine, gateways, err := wire.FlowPair(wire.TCP)
		if err != nil {
			t.Fatal(err)
		}
		gateways.Close()
		fl := x.begin()
		x.mu.Lock()
		fl.endLocked(false)
		x.mu.Unlock()
		var wg sync.WaitGroup
		wg.Go(func() { runRelay(fl, over{}, mine) })
		wg.Go(x.close)
		wg.Wait()
		theirs.Close()
	}
}

// TestAnEndThatIsClosedWhileAGuestIsSaved is not saved with it: an outer stack goes on meanwhile, and gVisor
// has one list of closed ends for all stacks.
func TestAnEndThatIsClosedWhileAGuestIsSaved(t *testing.T) {
	b := newSandbox(t)
	end := make(chan struct{})
	g := &gateway{}
	g.stream = func(fl uint32, _ wire.Message, f *os.File) {
		<-end
		if err := g.ch.Send(&wire.Message{Kind: wire.Closed, Flow: fl}, -1); err != nil {
			t.Error(err)
		}
		f.Close()
	}
	b.connect(g)
	b.stacks = true
	c := b.mustDial(outside)
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	before := len(tcpip.GetDanglingEndpoints())
	restore := TakeConnections(gvisor.Background(), b.s, func() []*kernel.SocketRecord { return nil }, nil)
	close(end)
	late := time.After(50 * time.Millisecond)
	for waiting := true; waiting; {
		select {
		case <-late:
			waiting = false
		default:
			if now := len(tcpip.GetDanglingEndpoints()); now > before {
				t.Errorf("%d closed ends are in the list, were %d", now, before)
				waiting = false
			}
			runtime.Gosched()
		}
	}
	restore()
	g.await(wire.Closed)
	c.Close()
}
