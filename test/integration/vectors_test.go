package integration

import (
	"bytes"
	"context"
	"slices"
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
	ended := make(chan error, 1)
	go func() {
		_, err := n.m.Exec(ctx, "box", sandbox.ExecRequest{Argv: []string{"guest", "vectors", "keep"}}, httpapi.ExecIO{Stdout: keeping, Stderr: &stderr})
		ended <- err
	}()
	select {
	case <-keeping.wrote:
	case err := <-ended:
		t.Fatalf("%v: %s", err, &stderr)
	}
	for range 10 {
		child := n.fork("box", 1)[0].ID
		n.long(child, "vectors", "20") // meanwhile the inherited process goes on
		list, err := n.m.Processes(asOwner, child, false)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(list, func(p sandbox.Process) bool { return p.Command == "guest vectors keep" }) {
			t.Errorf("in the child of a fork the process ended: %+v", list)
		}
		n.destroy(child)
	}
	select {
	case err := <-ended:
		t.Errorf("forked: %v: %s", err, &stderr)
	default:
		cancel()
		<-ended
	}
}
