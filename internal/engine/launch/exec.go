package launch

import (
	"context"
	"fmt"
	"io"
	"sync"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/wire"
)

// ExecIO are the streams of a command. Stdin may be nil.
type ExecIO struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// Exec runs a command to its end. When ctx is cancelled, the command's process
// group is killed, unless it has a key and the cause is CodeUnavailable. It returns without waiting for a Stdin that blocks in Read.
func (s *Sentry) Exec(ctx context.Context, req *wire.Exec, xio ExecIO) (*wire.Exited, error) {
	req.Stdin = xio.Stdin != nil
	return s.runCommand(ctx, &wire.Call{Op: wire.OpExec, Exec: req}, xio)
}

// ResumeExec comes back to a command with a key that lost its connection.
func (s *Sentry) ResumeExec(ctx context.Context, req *wire.Exec, xio ExecIO) (*wire.Exited, error) {
	return s.runCommand(ctx, &wire.Call{Op: wire.OpReattach, Exec: req}, xio)
}

func (s *Sentry) runCommand(ctx context.Context, call *wire.Call, xio ExecIO) (*wire.Exited, error) {
	open := ctx
	if call.Exec.Key != "" {
		open = context.WithoutCancel(ctx) // it is said first why the connection ends
	}
	c, span, done, err := s.openTraced(open, call)
	if err != nil {
		return nil, err
	}
	defer done()
	over := func() {}
	if call.Exec.Key != "" {
		leave := sync.OnceFunc(func() {
			if api.CodeOf(context.Cause(ctx)) != api.CodeUnavailable { // else this daemon ends, and its caller comes back
				_ = c.Send(wire.TypeCancel, nil) // the command may be over
			}
			c.Close()
		})
		stop := context.AfterFunc(ctx, leave)
		ended := false
		over = func() { ended = true }
		defer func() {
			if stop(); !ended {
				leave()
			}
		}()
	}
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
			over()
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
	if api.CodeOf(err) != api.CodeInternal {
		return fmt.Errorf("pass on output: %w", err)
	}
	return api.Errorf(api.CodeCanceled, "pass on output: %w", err)
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
	Sizes <-chan api.TerminalSize
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
func sendSizes(c *wire.Conn, sizes <-chan api.TerminalSize, done <-chan struct{}) {
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
