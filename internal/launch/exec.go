package launch

import (
	"context"
	"fmt"
	"io"

	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/wire"
)

// ExecIO are the streams of a command. Stdin may be nil.
type ExecIO struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// Exec runs a command to its end. When ctx is cancelled, the command's process
// group is killed. It returns without waiting for a Stdin that blocks in Read.
func (s *Sentry) Exec(ctx context.Context, req *wire.Exec, xio ExecIO) (*wire.Exited, error) {
	req.Stdin = xio.Stdin != nil
	call := &wire.Call{Op: wire.OpExec, Exec: req}
	c, span, done, err := s.openTraced(ctx, call)
	if err != nil {
		return nil, err
	}
	defer done()
	if xio.Stdin != nil {
		go sendStdin(c, xio.Stdin, true)
	}
	for {
		p, err := c.Receive()
		if err != nil {
			return nil, s.callError(ctx, call, err)
		}
		var to io.Writer
		switch p.Type {
		case wire.TypeStdout:
			to = xio.Stdout
		case wire.TypeStderr:
			to = xio.Stderr
		default:
			defer p.Close()
			var out wire.Exited
			if err := p.Decode(&out); err != nil {
				return nil, err
			}
			trace(span, call, &out)
			return &out, nil
		}
		p.Close()
		if _, err := to.Write(p.Body); err != nil {
			return nil, unwanted(err)
		}
	}
}

// unwanted explains that output could not be passed on: whoever asked for it has gone,
// unless the error says something else.
func unwanted(err error) error {
	if sandbox.CodeOf(err) != sandbox.CodeInternal {
		return fmt.Errorf("pass on output: %w", err)
	}
	return sandbox.Errorf(sandbox.CodeCanceled, "pass on output: %w", err)
}

// sendStdin ends with in or with the connection. With broken, an error ends the
// command's input as its end does.
func sendStdin(c *wire.Conn, in io.Reader, broken bool) {
	buf := make([]byte, wire.MaxChunk)
	for {
		n, err := in.Read(buf)
		if n > 0 && c.Send(wire.TypeStdin, buf[:n]) != nil {
			return
		}
		if err != nil {
			if err == io.EOF || broken {
				_ = c.Send(wire.TypeStdin, nil) // the command may be over
			}
			return
		}
	}
}

// AttachIO connects a caller to a process. Stdin and Sizes may be nil.
type AttachIO struct {
	// Stdin ends the process's input with its own end, unless that is a terminal.
	// An error only ends what is passed on.
	Stdin io.Reader
	// Sizes are those of the caller's terminal.
	Sizes <-chan sandbox.TerminalSize
	// Output is called with each chunk. It may block; data are valid until it
	// returns.
	Output func(wire.Chunk) error
}

// Attach follows a process until it ends, or fetches what there is. The process
// does not notice how the call ends. It returns without waiting for a Stdin that
// blocks in Read.
func (s *Sentry) Attach(ctx context.Context, req *wire.Attach, aio AttachIO) (*wire.Attached, error) {
	req.Stdin = aio.Stdin != nil
	call := &wire.Call{Op: wire.OpAttach, Attach: req}
	c, done, err := s.open(ctx, call)
	if err != nil {
		return nil, err
	}
	defer done()
	if aio.Stdin != nil {
		go sendStdin(c, aio.Stdin, false)
	}
	if aio.Sizes != nil {
		sent, over := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(sent)
			sendSizes(c, aio.Sizes, over)
		}()
		defer func() {
			close(over)
			<-sent
		}()
	}
	for {
		p, err := c.Receive()
		if err != nil {
			return nil, s.callError(ctx, call, err)
		}
		p.Close()
		if p.Type != wire.TypeChunk {
			var out wire.Attached
			if err := p.Decode(&out); err != nil {
				return nil, err
			}
			return &out, nil
		}
		chunk, err := wire.ParseChunk(p.Body)
		if err != nil {
			return nil, err
		}
		if err := aio.Output(chunk); err != nil {
			return nil, unwanted(err)
		}
	}
}

// sendSizes ends with sizes, with the connection or with done.
func sendSizes(c *wire.Conn, sizes <-chan sandbox.TerminalSize, done <-chan struct{}) {
	for {
		select {
		case size, ok := <-sizes:
			if !ok || c.SendJSON(wire.TypeResize, size) != nil {
				return
			}
		case <-done:
			return
		}
	}
}
