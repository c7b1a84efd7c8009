package launch

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/wire"
)

// Exec runs a command to its end. When ctx is cancelled, the command's process group is
// killed, unless the command has a key and the cause is CodeUnavailable: then this daemon
// ends, and the caller comes back to the command through the next one.
func (s *Sentry) Exec(ctx context.Context, req *wire.Exec, streams api.ExecIO) (*wire.Exited, error) {
	req.Stdin = streams.Stdin != nil
	return s.runCommand(ctx, &wire.Call{Op: wire.OpExec, Exec: req}, streams)
}

// ResumeExec comes back to a command with a key that lost its connection.
func (s *Sentry) ResumeExec(ctx context.Context, req *wire.Exec, streams api.ExecIO) (*wire.Exited, error) {
	return s.runCommand(ctx, &wire.Call{Op: wire.OpReattach, Exec: req}, streams)
}

func (s *Sentry) runCommand(ctx context.Context, call *wire.Call, streams api.ExecIO) (*wire.Exited, error) {
	open := ctx
	if call.Exec.Key != "" {
		open = context.WithoutCancel(ctx) // the connection must not end before the sentry is told why
	}
	c, span, done, err := s.openTraced(open, call)
	if err != nil {
		return nil, err
	}
	defer done()
	over := func() {}
	if call.Exec.Key != "" {
		leave := sync.OnceFunc(func() {
			if api.CodeOf(context.Cause(ctx)) != api.CodeUnavailable {
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
	if streams.Stdin != nil {
		go sendStdin(c, streams.Stdin, true)
	}
	stdout, stderr := api.Discard(streams.Stdout), api.Discard(streams.Stderr)
	for {
		p, err := c.Receive()
		if err != nil {
			return nil, s.callError(ctx, call, err)
		}
		var to io.Writer
		switch p.Type {
		case wire.TypeStdout:
			to = stdout
		case wire.TypeStderr:
			to = stderr
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

// unwanted returns the error of a call whose output could not be passed on. The caller has
// gone, unless err has a code of its own.
func unwanted(err error) error {
	if api.CodeOf(err) != api.CodeInternal {
		return fmt.Errorf("pass on output: %w", err)
	}
	return api.Errorf(api.CodeCanceled, "pass on output: %w", err)
}

// sendStdin sends in until its end, an error or the end of the connection. With
// closeOnError, an error closes the command's input as the end of in does.
func sendStdin(c *wire.Conn, in io.Reader, closeOnError bool) {
	buf := make([]byte, wire.MaxChunk)
	for {
		n, err := in.Read(buf)
		if n > 0 && c.Send(wire.TypeStdin, buf[:n]) != nil {
			return
		}
		if err != nil {
			if err == io.EOF || closeOnError {
				_ = c.Send(wire.TypeStdin, nil) // the command may be over
			}
			return
		}
	}
}

// Attach follows a process until it ends, or fetches the output that there is. The process
// does not notice how the call ends. Attach does not wait for a read of Stdin that blocks.
func (s *Sentry) Attach(ctx context.Context, req *wire.Attach, streams api.AttachIO) (*wire.Attached, error) {
	req.Stdin = streams.Stdin != nil
	call := &wire.Call{Op: wire.OpAttach, Attach: req}
	c, done, err := s.open(ctx, call)
	if err != nil {
		return nil, err
	}
	defer done()
	if streams.Stdin != nil {
		go sendStdin(c, streams.Stdin, false)
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
		err = streams.Output(api.Chunk{
			Stderr: chunk.Stream == wire.Stderr, Seq: chunk.Seq, Time: time.Unix(0, chunk.Time), Data: chunk.Data, Lost: chunk.Lost,
		})
		if err != nil {
			return nil, unwanted(err)
		}
	}
}
