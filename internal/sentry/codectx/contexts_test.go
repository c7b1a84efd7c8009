package codectx

import (
	"runtime"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/sentry/gate"
)

// TestContextEndsInOneStep: a fork must not come between the removal of a context and
// the end of its interpreter.
func TestContextEndsInOneStep(t *testing.T) {
	cs := New(nil, gate.New(idleKernel{}), nil)
	in := &interpreter{}
	in.prepare(nil, cs.gate)
	c := &codeContext{name: "c", in: in}
	cs.list = append(cs.list, c)
	in.mu.Lock() // who kills it needs that
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		cs.remove(c)
	}()
	for err := error(nil); api.CodeOf(err) != api.CodeNotFound; _, err = cs.find("c") {
		runtime.Gosched()
	}
	forked := make(chan struct{})
	go func() {
		defer close(forked)
		cs.gate.LockIO()
		cs.gate.UnlockIO()
	}()
	for range 10_000 {
		select {
		case <-forked:
			t.Fatal("a fork may begin")
		default:
			runtime.Gosched()
		}
	}
	in.mu.Unlock()
	close(in.done)
	<-ended
	<-forked
}
