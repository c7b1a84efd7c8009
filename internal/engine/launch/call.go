package launch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/observe/tracing"
)

// Call makes one call and decodes its reply into out, which may be nil. It
// returns the descriptors that came with the reply to an Adopt; no other reply
// has any. Cancelling ctx closes the connection.
func (s *Sentry) Call(ctx context.Context, call *wire.Call, out any, fds ...*os.File) ([]*os.File, error) {
	c, span, done, err := s.openTraced(ctx, call, fds...)
	if err != nil {
		return nil, err
	}
	defer done()
	p, err := c.Receive()
	if err != nil {
		return nil, s.callError(ctx, call, err)
	}
	defer p.Close()
	if out == nil {
		out = &struct{}{}
	}
	if err := p.Decode(out); err != nil {
		return nil, err
	}
	trace(span, call, out)
	if call.Op != wire.OpAdopt {
		return nil, nil // unexpected descriptors are closed
	}
	files := p.Files
	p.Files = nil
	return files, nil
}

// open begins a call on a connection of its own, which cancelling ctx closes. done
// ends it.
func (s *Sentry) open(ctx context.Context, call *wire.Call, fds ...*os.File) (c *wire.Conn, done func(), err error) {
	c, _, done, err = s.openTraced(ctx, call, fds...)
	return c, done, err
}

// openTraced does the same as open, and returns the context of the call's span as well.
func (s *Sentry) openTraced(ctx context.Context, call *wire.Call, fds ...*os.File) (c *wire.Conn, span context.Context, done func(), err error) {
	span, ended := tracing.Start(ctx, "sentry "+string(call.Op))
	if c, err = s.reach(ctx); err != nil {
		ended(err)
		return nil, nil, nil, err
	}
	stop := context.AfterFunc(ctx, func() { c.Close() })
	done = func() {
		stop()
		c.Finish()
		ended(nil)
	}
	if err := send(c, call, fds); err != nil {
		done()
		return nil, nil, nil, s.callError(ctx, call, err)
	}
	return c, span, done, nil
}

// reach connects to the sentry. The error says why a sentry has ended that has.
func (s *Sentry) reach(ctx context.Context) (c *wire.Conn, err error) {
	if c, err = s.dial(); errors.Is(err, unix.ECONNREFUSED) { // nobody listens any more
		err = cmp.Or(s.reason(ctx), err)
	}
	return c, err
}

// trace adds the stages of a call to its span, if reply has them: a sentry has no network to send spans itself.
func trace(span context.Context, call *wire.Call, reply any) {
	timed, ok := reply.(interface{ Spent() []wire.Stage })
	if !ok {
		return
	}
	var stages []tracing.Stage
	for _, st := range timed.Spent() {
		stages = append(stages, tracing.Stage{Name: st.Name, MS: st.MS})
	}
	tracing.Sentry(span, string(call.Op), stages)
}

func send(c *wire.Conn, call *wire.Call, files []*os.File) error {
	err := c.SendCall(call, descriptors(files)...)
	switch {
	case errors.Is(err, wire.ErrTooLarge):
		return api.Errorf(api.CodeLimit, "the arguments and the environment together are too large: pass data on standard input or in a file")
	case errors.Is(err, wire.ErrTooManyFiles):
		return api.Errorf(api.CodeLimit, "%d descriptors: %w", len(files), err)
	}
	return err
}

func descriptors(files []*os.File) []int {
	fds := make([]int, len(files))
	for i, f := range files {
		fds[i] = int(f.Fd())
	}
	return fds
}

// callError returns the reason why a call broke off.
func (s *Sentry) callError(ctx context.Context, call *wire.Call, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", call.Op, context.Cause(ctx))
	}
	if errors.Is(err, io.EOF) || errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
		if reason := s.reason(ctx); reason != nil {
			return reason
		}
	}
	return fmt.Errorf("%s: %w", call.Op, err)
}

// reason returns why the sentry ended, whose sockets are closed, or nil if it has not ended: it closes
// them before it can be waited for.
func (s *Sentry) reason(ctx context.Context) error {
	select {
	case <-s.done:
		return s.end
	case <-ctx.Done():
	case <-time.After(endTimeout):
	}
	return nil
}
