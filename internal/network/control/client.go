package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/network/gateway"
	"ramet.dev/ramet/internal/network/held"
)

// Client calls the gateway that listens at a path. Each call has a connection of its own, so that a
// Client is as good for the gateway that comes after one that has ended.
type Client struct{ path string }

// NewClient returns a client. It does not connect.
func NewClient(path string) *Client { return &Client{path} }

// Hello returns what the gateway says of itself.
func (c *Client) Hello(ctx context.Context) (h Hello, err error) {
	return h, c.call(ctx, &call{Op: opHello}, &h)
}

// Add registers a sandbox with the gateway's end of its channel, which the caller keeps. When Add
// returns, its policy is in force.
func (c *Client) Add(ctx context.Context, r gateway.Registration, channel *os.File) error {
	return c.register(ctx, opAdd, &r, channel)
}

// Replace puts a registration in force. Flows that it does not allow are cut when Replace returns.
func (c *Client) Replace(ctx context.Context, r gateway.Registration) error {
	return c.register(ctx, opReplace, &r)
}

func (c *Client) register(ctx context.Context, o op, r *gateway.Registration, files ...*os.File) error {
	f, err := writeRegistration(r)
	if err != nil {
		return err
	}
	defer f.Close()
	return c.call(ctx, &call{Op: o, Sandbox: r.ID, Change: nextChange()}, &struct{}{}, append([]*os.File{f}, files...)...)
}

// SetTenant puts what bounds a tenant in force. Flows that it does not allow are cut when SetTenant
// returns.
func (c *Client) SetTenant(ctx context.Context, t gateway.Tenant) error {
	f, err := writeTenant(&t)
	if err != nil {
		return err
	}
	defer f.Close()
	return c.call(ctx, &call{Op: opTenant, Change: nextChange()}, &struct{}{}, f)
}

// Remove ends all that belongs to a sandbox.
func (c *Client) Remove(ctx context.Context, id string) error {
	return c.call(ctx, &call{Op: opRemove, Sandbox: id}, &struct{}{})
}

// List returns the sandboxes that are registered.
func (c *Client) List(ctx context.Context) (ids []string, err error) {
	return ids, c.call(ctx, &call{Op: opList}, &ids)
}

// Stats returns numbers about the gateway.
func (c *Client) Stats(ctx context.Context) (s Stats, err error) {
	return s, c.call(ctx, &call{Op: opStats}, &s)
}

// Test asks what the policy of a sandbox says about a connection. protocol is tcp, udp or echo.
func (c *Client) Test(ctx context.Context, id, host, protocol string, port uint16) (r api.NetworkTestResult, err error) {
	return r, c.call(ctx, &call{Op: opTest, Sandbox: id, Test: &question{host, protocol, port}}, &r)
}

// Held calls f with the requests of a sandbox that are or were held, or with those of all if it is empty,
// in the order in which they came.
func (c *Client) Held(ctx context.Context, sandbox string, f func(held.Request) error) error {
	return items(ctx, c, &call{Op: opHeld, Sandbox: sandbox}, f)
}

// Tenants returns numbers about those that have a sandbox with a network, or something that bounds them.
func (c *Client) Tenants(ctx context.Context) (list []TenantStats, err error) {
	err = items(ctx, c, &call{Op: opTenants}, func(t TenantStats) error {
		list = append(list, t)
		return nil
	})
	return list, err
}

// items calls f with each item that a call is answered with.
func items[T any](ctx context.Context, c *Client, asked *call, f func(T) error) error {
	conn, stop, err := c.begin(ctx, asked)
	if err != nil {
		return err
	}
	defer conn.Finish()
	defer stop()
	for {
		if err := conn.SetReadDeadline(time.Now().Add(answerTimeout)); err != nil {
			return explain(ctx, err)
		}
		p, err := conn.Receive()
		if err != nil {
			return explain(ctx, err)
		}
		var item T
		last := p.Type != wire.TypeItem
		err = p.Decode(&item) // a Fail decodes to its error
		p.Close()
		if err != nil || last {
			return err
		}
		if err := f(item); err != nil {
			return err
		}
	}
}

// Release sends a held request of a sandbox and waits for the answer, or until ctx ends: the sending
// goes on then. r is the registration under which it is sent; nil is that of the sandbox, which has to
// be registered. again sends also a request that may have been sent.
func (c *Client) Release(ctx context.Context, sandbox, id string, again bool, r *gateway.Registration) (out held.Request, err error) {
	return out, c.slow(ctx, &call{Op: opRelease, Sandbox: sandbox, Request: id, Again: again}, r, &out)
}

// ReleaseAll sends all held requests of a sandbox that wait, in the order in which they came, as
// Release does. Once it has begun, the requests are sent, if need be by another gateway.
func (c *Client) ReleaseAll(ctx context.Context, sandbox string, r *gateway.Registration) error {
	return c.slow(ctx, &call{Op: opReleaseAll, Sandbox: sandbox}, r, &struct{}{})
}

// Drop makes sure that a held request of a sandbox is never sent.
func (c *Client) Drop(ctx context.Context, sandbox, id string) error {
	return c.call(ctx, &call{Op: opDrop, Sandbox: sandbox, Request: id}, &struct{}{})
}

// DropAll drops all held requests of a sandbox. With forget nothing is kept of those that are
// finished: the sandbox is gone.
func (c *Client) DropAll(ctx context.Context, sandbox string, forget bool) error {
	return c.call(ctx, &call{Op: opDropAll, Sandbox: sandbox, Forget: forget}, &struct{}{})
}

// DropUndone drops the held requests that a rollback has undone.
func (c *Client) DropUndone(ctx context.Context, u *held.Undone) error {
	return c.call(ctx, &call{Op: opDropUndone, Undone: u}, &struct{}{})
}

// slow is call for what servers of the internet answer, with a registration if there is one.
func (c *Client) slow(ctx context.Context, asked *call, r *gateway.Registration, reply any) error {
	var files []*os.File
	if r != nil {
		f, err := writeRegistration(r)
		if err != nil {
			return err
		}
		defer f.Close()
		files = append(files, f)
	}
	conn, stop, err := c.begin(ctx, asked, files...)
	if err != nil {
		return err
	}
	defer conn.Finish()
	defer stop()
	return receive(ctx, conn, reply)
}

// End ends the gateway, with all flows.
func (c *Client) End(ctx context.Context) error {
	return c.call(ctx, &call{Op: opEnd}, &struct{}{})
}

// Log calls f with decisions, until ctx ends, f fails or there are no more. The end of a gateway that
// is followed is io.EOF.
func (c *Client) Log(ctx context.Context, want Reading, f func(Line) error) error {
	conn, stop, err := c.begin(ctx, &call{Op: opLog, Log: &want})
	if err != nil {
		return err
	}
	defer conn.Finish()
	defer stop()
	for {
		var l Line
		if err := receive(ctx, conn, &l); err != nil {
			if !want.Follow && errors.Is(err, io.EOF) {
				return nil // the last line was sent
			}
			return err
		}
		if err := f(l); err != nil {
			return err
		}
	}
}

// Watch returns a channel that is closed when the gateway has ended, or ctx has. The gateway does not
// end by itself meanwhile.
func (c *Client) Watch(ctx context.Context) (<-chan struct{}, error) {
	conn, stop, err := c.begin(ctx, &call{Op: opWatch})
	if err != nil {
		return nil, err
	}
	err = answer(ctx, conn, &struct{}{})
	if err == nil {
		err = conn.SetReadDeadline(time.Time{}) // it says no more until it ends
	}
	if err != nil {
		stop()
		conn.Finish()
		return nil, err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer conn.Finish()
		defer stop()
		awaitEnd(conn)
	}()
	return ended, nil
}

// begin sends a call. stop is to be called before the connection is closed.
func (c *Client) begin(ctx context.Context, asked *call, files ...*os.File) (conn *wire.Conn, stop func() bool, err error) {
	if ctx.Err() != nil { // AfterFunc alone might close the connection behind the answer
		return nil, nil, context.Cause(ctx)
	}
	if conn, err = wire.Dial(c.path); err != nil {
		return nil, nil, fmt.Errorf("connect to the gateway: %w", err)
	}
	stop = context.AfterFunc(ctx, func() { conn.Close() })
	if err := send(conn, asked, files); err != nil {
		stop()
		conn.Finish()
		return nil, nil, explain(ctx, err)
	}
	return conn, stop, nil
}

// send sends a call with duplicates of files, which stay in the poller: Fd would make them block.
func send(conn *wire.Conn, asked *call, files []*os.File) error {
	fds := make([]int, 0, len(files))
	var with func(rest []*os.File) error
	with = func(rest []*os.File) error {
		if len(rest) == 0 {
			return conn.SendJSON(wire.TypeCall, asked, fds...)
		}
		raw, err := rest[0].SyscallConn()
		if err != nil {
			return err
		}
		var serr error
		err = raw.Control(func(fd uintptr) {
			fds = append(fds, int(fd))
			serr = with(rest[1:])
		})
		return errors.Join(err, serr)
	}
	return with(files)
}

func (c *Client) call(ctx context.Context, asked *call, reply any, files ...*os.File) error {
	conn, stop, err := c.begin(ctx, asked, files...)
	if err != nil {
		return err
	}
	defer conn.Finish()
	defer stop()
	return answer(ctx, conn, reply)
}

// answerTimeout is how long a gateway may take to answer: one that was stopped would keep its callers
// for ever.
const answerTimeout = 10 * time.Second

// answer is receive, bounded by answerTimeout.
func answer(ctx context.Context, conn *wire.Conn, v any) error {
	if err := conn.SetReadDeadline(time.Now().Add(answerTimeout)); err != nil {
		return explain(ctx, err)
	}
	return receive(ctx, conn, v)
}

func receive(ctx context.Context, conn *wire.Conn, v any) error {
	p, err := conn.Receive()
	if err != nil {
		return explain(ctx, err)
	}
	defer p.Close()
	return p.Decode(v)
}

// explain returns why a connection has failed.
func explain(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("the gateway has ended: %w", io.EOF)
	}
	return fmt.Errorf("call the gateway: %w", err)
}
