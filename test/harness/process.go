package harness

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"ramet.dev/ramet/api"
)

// Start starts a command of the guest program in the background.
func (n *Node) Start(ref string, req api.StartRequest, args ...string) int {
	n.T.Helper()
	req.Argv = append([]string{"guest"}, args...)
	p, err := n.Machine.StartProcess(AsOwner, ref, req)
	if err != nil {
		n.T.Fatalf("start %v: %v", args, err)
	}
	if p.Kept == nil || p.Command != strings.Join(req.Argv, " ") && p.Kept.Exit == nil {
		n.T.Fatalf("started %+v", *p)
	}
	return p.PID
}

// Follower is a client that is attached to a process.
type Follower struct {
	T      testing.TB
	cancel context.CancelFunc
	In     *io.PipeWriter
	mu     sync.Mutex
	chunks []api.Chunk
	Next   int64
	ended  chan struct{}
	Pos    *api.Position
	err    error
}

// Follow attaches to the output from a sequence number on; -1 is the output that is
// written after Follow has returned.
func (n *Node) Follow(ref string, pid int, from int64) *Follower {
	n.T.Helper()
	if from < 0 {
		p, err := n.Machine.Process(AsOwner, ref, pid)
		if err != nil {
			n.T.Fatal(err)
		}
		from = p.Kept.NextSeq
	}
	return n.Attach(ref, pid, from)
}

// Attach attaches in the background. With -1 the sandbox says where the output begins, at
// some moment after Attach has been called.
func (n *Node) Attach(ref string, pid int, from int64) *Follower {
	ctx, cancel := context.WithTimeout(AsOwner, 2*Timeout)
	r, w := io.Pipe()
	f := &Follower{T: n.T, cancel: cancel, In: w, Next: from, ended: make(chan struct{})}
	go func() {
		defer close(f.ended)
		f.Pos, f.err = n.Machine.Attach(ctx, ref, pid, api.AttachRequest{From: from, Follow: true}, api.AttachIO{Stdin: r, Output: f.Take})
		r.CloseWithError(errors.New("detached"))
	}()
	n.T.Cleanup(f.Detach)
	return f
}

// Take keeps a chunk, which must be the next one.
func (f *Follower) Take(c api.Chunk) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c.Seq != f.Next && f.Next >= 0 {
		f.T.Errorf("a chunk at %d, not at %d", c.Seq, f.Next)
	}
	c.Data = bytes.Clone(c.Data)
	f.chunks = append(f.chunks, c)
	f.Next = c.Seq + c.Lost + int64(len(c.Data))
	return nil
}

// Text returns what arrived, and how many bytes were lost.
func (f *Follower) Text() (out string, lost int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var b strings.Builder
	for _, c := range f.chunks {
		b.Write(c.Data)
		lost += c.Lost
	}
	return b.String(), lost
}

// First returns when the first output was written.
func (f *Follower) First() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.chunks[0].Time
}

// Await waits until what arrived is want.
func (f *Follower) Await(want string) {
	f.T.Helper()
	Eventually(f.T, "output", func() error {
		if got, _ := f.Text(); got != want {
			return fmt.Errorf("it is %q, not %q", got, want)
		}
		return nil
	})
}

// Say writes to the input of the process.
func (f *Follower) Say(text string) {
	f.T.Helper()
	if _, err := io.WriteString(f.In, text); err != nil {
		f.T.Fatal(err)
	}
}

// Detach ends the connection and waits for that.
func (f *Follower) Detach() {
	f.cancel()
	<-f.ended
	f.In.Close()
}

// Exit waits for the process to end by itself.
func (f *Follower) Exit() *api.ExecResult {
	f.T.Helper()
	<-f.ended
	if f.err != nil || f.Pos == nil || f.Pos.Exit == nil {
		f.T.Fatalf("the process did not end: %+v, %v", f.Pos, f.err)
	}
	if f.Pos.NextSeq != f.Next && f.Next >= 0 {
		f.T.Errorf("output ends at %d, and %d arrived", f.Pos.NextSeq, f.Next)
	}
	return f.Pos.Exit
}

// Conversation is a command that answers each line with its number.
type Conversation struct {
	n     *Node
	in    *io.PipeWriter
	out   *bufio.Reader
	ended chan error
	Said  int
}

// Converse starts a command that goes on until its input ends.
func (n *Node) Converse(ref string) *Conversation {
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	c := &Conversation{n: n, in: inW, out: bufio.NewReader(outR), ended: make(chan error, 1)}
	go func() {
		ctx, cancel := context.WithTimeout(AsOwner, 2*Timeout)
		defer cancel()
		r, err := n.Machine.Exec(ctx, ref, api.ExecRequest{Argv: []string{"guest", "count"}},
			api.ExecIO{Stdin: inR, Stdout: outW, Stderr: io.Discard})
		if err == nil && r.ExitCode != 0 {
			err = fmt.Errorf("exit code %d", r.ExitCode)
		}
		outW.CloseWithError(err)
		inR.CloseWithError(err)
		c.ended <- err
	}()
	return c
}

// Next says one line and checks the answer.
func (c *Conversation) Next() {
	c.n.T.Helper()
	c.Said++
	line := fmt.Sprintf("line-%d", c.Said)
	if _, err := fmt.Fprintln(c.in, line); err != nil {
		c.n.T.Fatalf("say %s: %v", line, err)
	}
	answer, err := c.out.ReadString('\n')
	if want := fmt.Sprintf("%d %s\n", c.Said, line); answer != want {
		c.n.T.Fatalf("answer to %s is %q, not %q (%v)", line, answer, want, err)
	}
}

// End ends the command's input and waits for its end.
func (c *Conversation) End() {
	c.n.T.Helper()
	c.in.Close()
	if err := <-c.ended; err != nil {
		c.n.T.Error(err)
	}
}
