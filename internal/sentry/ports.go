package sentry

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/sentry/guest"
	"ramet.dev/ramet/internal/sentry/ports"
)

// lingerTime is how long the data of a caller that has gone waits until the sandbox reads
// it.
const lingerTime = 30 * time.Second

// dial makes a connection to a port of c. It returns when that has ended.
func dial(g *guest.Guest, c *wire.Conn, req *wire.DialPort) error {
	if req == nil || req.Port == 0 || req.WaitMS < 0 {
		return errCall
	}
	defer c.Rest()
	gone, stop := hungUp(c, 0)
	conn, err := g.Ports.Dial(req.Port, time.Duration(req.WaitMS)*time.Millisecond, gone)
	stop()
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := c.SendJSON(wire.TypeReply, struct{}{}); err != nil {
		return err
	}
	giveUp, stop := hungUp(c, lingerTime)
	defer stop()
	in := &inbound{c: c, conn: conn, ended: make(chan struct{}), over: make(chan struct{})}
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { in.run(giveUp) })
	err = outbound(c, conn, in)
	if errors.Is(err, context.Canceled) {
		return nil // the last data of the caller are still on their way in
	}
	if err != nil {
		_ = c.Fail(err) // the caller may be gone
	}
	c.Close() // ends in
	return nil
}

// hungUp returns a channel that is closed some time after the caller is found to
// have closed its side. Packets that came before that can still be received.
func hungUp(c *wire.Conn, after time.Duration) (gone <-chan struct{}, stop func()) {
	ch, done := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(hangUpCheck)
		defer tick.Stop()
		for left := after; ; {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			if !c.HungUp() {
				continue
			}
			if left -= hangUpCheck; left <= 0 {
				close(ch)
				return
			}
		}
	})
	return ch, func() {
		close(done)
		wg.Wait()
	}
}

// inbound moves data of the caller into the sandbox.
type inbound struct {
	c     *wire.Conn
	conn  *ports.Conn
	ended chan struct{} // closed when the caller has sent all
	over  chan struct{} // closed at the end of run
	err   error         // valid when over is closed: the sandbox takes nothing more
}

// run ends with the connection.
func (in *inbound) run(giveUp <-chan struct{}) {
	defer close(in.over)
	open := true
	for {
		p, err := in.c.Receive()
		if err != nil {
			return
		}
		p.Close()
		switch {
		case p.Type != wire.TypeData || !open:
			return
		case len(p.Body) == 0:
			in.conn.CloseWrite()
			close(in.ended)
			open = false
			continue
		}
		if in.err = in.conn.Write(p.Body, giveUp); in.err != nil {
			return
		}
	}
}

// outbound moves data of the sandbox to the caller. It returns nil when both
// directions have ended, and context.Canceled when the caller is gone.
func outbound(c *wire.Conn, conn *ports.Conn, in *inbound) error {
	buf := make([]byte, wire.MaxChunk)
	for {
		n, err := conn.Read(buf, in.over)
		if err == io.EOF {
			break
		}
		if err != nil {
			return in.cause(err)
		}
		if c.Send(wire.TypeData, buf[:n]) != nil {
			return context.Canceled
		}
	}
	if c.Send(wire.TypeData, nil) != nil {
		return context.Canceled
	}
	select {
	case <-in.ended:
		return nil
	case <-in.over:
		return in.cause(context.Canceled)
	}
}

// cause says why the connection ended although err says that the caller did.
func (in *inbound) cause(err error) error {
	select {
	case <-in.over:
	default:
		return err
	}
	if in.err != nil {
		return in.err
	}
	return context.Canceled
}
