package selfctl

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	gotime "time"

	"gvisor.dev/gvisor/pkg/sentry/socket/unix/transport"
	"gvisor.dev/gvisor/pkg/state"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/control"
)

// conn is one connection to the control socket. One request at a time is served
// for it. All fields are saved, and changed by its goroutine alone, within an access to the
// gate.
type conn struct {
	end     *endpoint
	in      []byte // received and not served yet; at most control.MaxLine
	out     []byte // to be sent; at most a reply
	pending uint64 // number of the request that is being answered, 0 for none
}

// replyTimeout is how long a process may leave its answer unread.
const replyTimeout = 30 * gotime.Second

var (
	errAgain   = errors.New("nothing to do for now")
	errTooLong = api.Errorf(api.CodeInvalid, "a request is one line of at most %d bytes", control.MaxLine)
	errNoJSON  = api.Errorf(api.CodeInvalid, "a request is one JSON object in a line")
)

// serveConn answers requests until the other side closes the connection, says
// too much in one line, or leaves an answer unread.
func (c *Controller) serveConn(t *conn) {
	defer c.hangUp(t)
	for {
		if c.send(t) != nil {
			return
		}
		line, err := c.hear(t)
		switch {
		case err == errAgain:
			<-t.end.wake.C
		case err == errTooLong:
			c.say(t, refusal(err))
			_ = c.send(t) // it may be gone
			return
		case err != nil:
			return
		case !isObject(line):
			c.say(t, refusal(errNoJSON))
		default:
			c.say(t, c.link.ask(t.pending, line))
		}
	}
}

func isObject(line []byte) bool {
	line = bytes.TrimSpace(line)
	return len(line) > 0 && line[0] == '{' && json.Valid(line)
}

// hear returns the next request, which is pending from then on, or errAgain.
func (c *Controller) hear(t *conn) ([]byte, error) {
	c.gate.BeginIO()
	defer c.gate.EndIO()
	if i := bytes.IndexByte(t.in, '\n'); i >= 0 {
		line := slices.Clone(t.in[:i])
		t.in = slices.Clone(t.in[i+1:])
		c.mu.Lock()
		defer c.mu.Unlock()
		c.last++
		t.pending = c.last
		return line, nil
	}
	room := control.MaxLine - len(t.in)
	if room == 0 {
		return nil, errTooLong
	}
	buf := make([]byte, min(room, 4<<10))
	ctx := c.k.SupervisorContext()
	out, notify, err := t.end.ep.RecvMsg(ctx, [][]byte{buf}, transport.RecvArgs{})
	if isWait(err) {
		return nil, errAgain
	}
	if err != nil {
		return nil, io.EOF
	}
	for _, r := range out.UnusedRights { // descriptors that were sent along
		r.Release(ctx)
	}
	out.Control.Release(ctx)
	if notify != nil {
		notify()
	}
	t.in = append(t.in, buf[:out.RecvLen]...)
	t.end.wake.Notify() // there may be more
	return nil, errAgain
}

// say makes line the next thing to send, and ends the pending request.
func (c *Controller) say(t *conn, line []byte) {
	c.gate.BeginIO()
	defer c.gate.EndIO()
	t.out = append(t.out, line...)
	t.pending = 0
}

// send sends all that say has left.
func (c *Controller) send(t *conn) error {
	timeout := gotime.NewTimer(replyTimeout)
	defer timeout.Stop()
	for {
		switch err := c.sendSome(t); {
		case err == nil:
			return nil
		case err != errAgain:
			return err
		}
		select {
		case <-t.end.wake.C:
		case <-timeout.C:
			return api.Errorf(api.CodeTimeout, "the answer was not read")
		}
	}
}

// sendSome returns nil when all is sent, and errAgain when the other side has to
// read first.
func (c *Controller) sendSome(t *conn) error {
	c.gate.BeginIO()
	defer c.gate.EndIO()
	for len(t.out) > 0 {
		n, notify, err := t.end.ep.SendMsg(c.k.SupervisorContext(), [][]byte{t.out}, transport.ControlMessages{}, nil)
		t.out = t.out[n:]
		if notify != nil {
			notify()
		}
		if isWait(err) {
			return errAgain
		}
		if err != nil {
			return io.EOF
		}
	}
	t.out = nil
	return nil
}

// The methods below are what gVisor's state package asks of saved types.

func (*conn) StateTypeName() string { return "ramet.dev/ramet/internal/sentry/selfctl.conn" }
func (*conn) StateFields() []string { return []string{"end", "in", "out", "pending"} }
func (t *conn) StateSave(sink state.Sink) {
	sink.Save(0, &t.end)
	sink.Save(1, &t.in)
	sink.Save(2, &t.out)
	sink.Save(3, &t.pending)
}
func (t *conn) StateLoad(_ context.Context, src state.Source) {
	src.Load(0, &t.end)
	src.Load(1, &t.in)
	src.Load(2, &t.out)
	src.Load(3, &t.pending)
}
