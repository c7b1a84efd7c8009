package codectx

import (
	"testing"
	gotime "time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/sentry/gate"
)

// idleKernel is a kernel that has nothing to pause.
type idleKernel struct{}

func (idleKernel) Pause()   {}
func (idleKernel) Unpause() {}

func pause(t *testing.T, g *gate.Gate) {
	t.Helper()
	if err := g.Pause(); err != nil {
		t.Fatal(err)
	}
}

func resume(t *testing.T, g *gate.Gate) {
	t.Helper()
	if err := g.Resume(); err != nil {
		t.Fatal(err)
	}
}

// TestSeedsAreAwaited pauses for longer than the timeout of a cell that waits until
// its interpreter has new seeds. It is due when the guest has run for so long.
func TestSeedsAreAwaited(t *testing.T) {
	in := &interpreter{ready: true}
	in.prepare(nil, nil)
	c := &codeContext{name: "c", in: in, unseeded: true, seeding: &seeding{run: newRun(RunIO{})}}
	gt := gate.New(idleKernel{})
	cs := New(nil, gt, nil)
	cs.list = append(cs.list, c)
	pause(t, gt)
	ended := make(chan error, 1)
	go func() {
		_, err := cs.Run(&wire.Run{Context: "c", TimeoutMS: 100}, nil, RunIO{})
		ended <- err
	}()
	select {
	case err := <-ended:
		t.Errorf("it ended while the guest was paused: %v", err)
	case <-gotime.After(gotime.Second):
		resume(t, gt)
		if err := <-ended; api.CodeOf(err) != api.CodeTimeout {
			t.Errorf("it ended with %v", err)
		}
	}
}
