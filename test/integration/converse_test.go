package integration

import (
	"bufio"
	"context"
	"fmt"
	"io"

	"ramet.dev/ramet/api"
)

// conversation is a command that answers each line with its number.
type conversation struct {
	n     *testNode
	in    *io.PipeWriter
	out   *bufio.Reader
	ended chan error
	said  int
}

func (n *testNode) converse(ref string) *conversation {
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	c := &conversation{n: n, in: inW, out: bufio.NewReader(outR), ended: make(chan error, 1)}
	go func() {
		ctx, cancel := context.WithTimeout(asOwner, 2*patience)
		defer cancel()
		r, err := n.m.Exec(ctx, ref, api.ExecRequest{Argv: []string{"guest", "count"}},
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

// next says one line and checks the answer.
func (c *conversation) next() {
	c.n.t.Helper()
	c.said++
	line := fmt.Sprintf("line-%d", c.said)
	if _, err := fmt.Fprintln(c.in, line); err != nil {
		c.n.t.Fatalf("say %s: %v", line, err)
	}
	answer, err := c.out.ReadString('\n')
	if want := fmt.Sprintf("%d %s\n", c.said, line); answer != want {
		c.n.t.Fatalf("answer to %s is %q, not %q (%v)", line, answer, want, err)
	}
}

// end ends the command's input and waits for its end.
func (c *conversation) end() {
	c.n.t.Helper()
	c.in.Close()
	if err := <-c.ended; err != nil {
		c.n.t.Error(err)
	}
}
