package guest

import (
	"runtime"
	"testing"

	"ramet.dev/ramet/api"
)

// TestContextEndsInOneStep: a fork must not come between the removal of a context and
// the end of its interpreter.
func TestContextEndsInOneStep(t *testing.T) {
	g := &Guest{contexts: newContexts()}
	in := &interpreter{}
	in.prepare()
	c := &codeContext{name: "c", in: in}
	g.contexts.list = append(g.contexts.list, c)
	in.mu.Lock() // who kills it needs that
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		g.removeContext(c)
	}()
	for err := error(nil); api.CodeOf(err) != api.CodeNotFound; _, err = g.contexts.find("c") {
		runtime.Gosched()
	}
	for range 10_000 {
		if g.io.TryLock() {
			t.Error("a fork may begin")
			break
		}
		runtime.Gosched()
	}
	in.mu.Unlock()
	close(in.done)
	<-ended
}
