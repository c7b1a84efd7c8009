package integration

import (
	"bytes"
	"context"
	"testing"

	"ramet.dev/ramet/internal/httpapi"
	"ramet.dev/ramet/internal/sandbox"
)

// TestVectorRegisters stops a process that keeps values in vector registers, hundreds of
// times by a signal, and then by forks. Without package fpstate some are lost in each run.
func TestVectorRegisters(t *testing.T) {
	n := newNode(t)
	n.create("box")
	n.long("box", "vectors", "2000")

	ctx, cancel := context.WithCancel(asOwner)
	defer cancel()
	keeping := &signalWriter{wrote: make(chan struct{})}
	var stderr bytes.Buffer
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		n.m.Exec(ctx, "box", sandbox.ExecRequest{Argv: []string{"guest", "vectors", "keep"}}, httpapi.ExecIO{Stdout: keeping, Stderr: &stderr})
	}()
	<-keeping.wrote
	for range 10 {
		for _, c := range n.fork("box", 1) {
			n.destroy(c.ID)
		}
	}
	select {
	case <-ended:
		t.Errorf("forked: %s", &stderr)
	default:
		cancel()
		<-ended
	}
}
