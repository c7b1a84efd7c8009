package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/polltest"
)

// Output is what a command wrote.
type Output struct {
	Stdout, Stderr bytes.Buffer
	*api.ExecResult
}

// Exec runs a command of the guest program, whatever its exit code.
func (n *Node) Exec(ref string, args ...string) (*Output, error) {
	return n.Run(ref, api.ExecRequest{Argv: append([]string{"guest"}, args...)}, "")
}

// Run runs any command, with text for its input if there is some, and gives it Timeout.
func (n *Node) Run(ref string, req api.ExecRequest, stdin string) (*Output, error) {
	ctx, cancel := context.WithTimeout(AsOwner, Timeout+time.Duration(req.TimeoutMS)*time.Millisecond)
	defer cancel()
	out := &Output{}
	xio := api.ExecIO{Stdout: &out.Stdout, Stderr: &out.Stderr}
	if stdin != "" {
		xio.Stdin = strings.NewReader(stdin)
	}
	var err error
	out.ExecResult, err = n.Machine.Exec(ctx, ref, req, xio)
	return out, err
}

// Guest runs a command of the guest program, which must succeed, and returns its
// output.
func (n *Node) Guest(ref string, args ...string) string {
	n.T.Helper()
	out, err := n.Exec(ref, args...)
	if err != nil {
		n.T.Fatalf("%s: %v: %v", ref, args, err)
	}
	if out.ExitCode != 0 {
		n.T.Fatalf("%s: %v: exit code %d: %s%s", ref, args, out.ExitCode, out.Stdout.String(), out.Stderr.String())
	}
	return out.Stdout.String()
}

// Edit changes files in a sandbox, see "guest edit".
func (n *Node) Edit(ref string, changes ...string) {
	n.T.Helper()
	n.Guest(ref, append([]string{"edit"}, changes...)...)
}

// LongTimeout bounds a run of many cases or operations.
var LongTimeout = polltest.Within(3 * time.Minute)

// Long runs a command of the guest program that may take longer than others,
// and must succeed.
func (n *Node) Long(ref string, args ...string) string {
	n.T.Helper()
	return n.LongExec(ref, api.ExecRequest{Argv: append([]string{"guest"}, args...)})
}

// LongExec runs any command that may take longer than others, and must succeed.
func (n *Node) LongExec(ref string, req api.ExecRequest) string {
	n.T.Helper()
	ctx, cancel := context.WithTimeout(AsOwner, LongTimeout)
	defer cancel()
	var stdout, stderr bytes.Buffer
	r, err := n.Machine.Exec(ctx, ref, req, api.ExecIO{Stdout: &stdout, Stderr: &stderr})
	if err != nil {
		n.T.Fatalf("%s: %v%s: %v", ref, req.Argv, req.Shell, err)
	}
	if r.ExitCode != 0 {
		n.T.Fatalf("%s: %v%s: exit code %d: %s%s", ref, req.Argv, req.Shell, r.ExitCode, LastOf(stdout.String()), LastOf(stderr.String()))
	}
	return stdout.String()
}

// LastOf is the end of a long text.
func LastOf(s string) string { return s[max(0, len(s)-4000):] }

// NoProcesses checks that nothing runs in ref.
func (n *Node) NoProcesses(ref string) error {
	list, err := n.Machine.Processes(AsOwner, ref, false)
	if err == nil && len(list) > 0 {
		err = fmt.Errorf("still run: %+v", list)
	}
	return err
}

// DiscardExec is output that nobody wants.
func DiscardExec() api.ExecIO { return api.ExecIO{Stdout: io.Discard, Stderr: io.Discard} }

// DiscardRun is output of a cell that nobody wants.
func DiscardRun() api.RunIO {
	d := DiscardExec()
	return api.RunIO{Stdout: d.Stdout, Stderr: d.Stderr, Result: func(map[string]json.RawMessage) error { return nil }}
}

// GatedWriter is a writer that takes nothing until it is opened.
type GatedWriter struct {
	Open    chan struct{} // to be closed
	Waiting chan struct{} // is closed when there is something to take
	once    sync.Once
	N       int
}

// NewGatedWriter returns a writer that is not open yet.
func NewGatedWriter() *GatedWriter {
	return &GatedWriter{Open: make(chan struct{}), Waiting: make(chan struct{})}
}

func (g *GatedWriter) Write(b []byte) (int, error) {
	g.once.Do(func() { close(g.Waiting) })
	<-g.Open
	g.N += len(b)
	return len(b), nil
}
