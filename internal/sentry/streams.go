package sentry

import (
	"sync/atomic"
	"time"

	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/sentry/guest"
	"ramet.dev/ramet/internal/sentry/proc"
	"ramet.dev/ramet/internal/sentry/selfctl"
)

// exec runs a command whose streams are packets of c, or comes back to such a command.
func (s *server) exec(g *guest.Guest, c *wire.Conn, req *wire.Exec, run func(*wire.Exec, proc.ExecIO) (*wire.Exited, error)) (any, error) {
	if req == nil || len(req.Argv) == 0 {
		return nil, errCall
	}
	in := newInput(c)
	var canceled atomic.Bool
	go in.receive(req.Stdin, func(p *wire.Packet) {
		if p.Type == wire.TypeCancel {
			canceled.Store(true)
		}
	})
	xio := proc.ExecIO{
		Stdout:   packetWriter{c, wire.TypeStdout},
		Stderr:   packetWriter{c, wire.TypeStderr},
		Done:     in.gone,
		Canceled: canceled.Load,
	}
	if req.Stdin {
		xio.Stdin = in.data
	}
	defer in.stop()
	return run(req, xio)
}

// attach connects a process with c.
func (s *server) attach(g *guest.Guest, c *wire.Conn, req *wire.Attach) (any, error) {
	if req == nil {
		return nil, errCall
	}
	in := newInput(c)
	go in.receive(req.Stdin, nil)
	if req.Stdin {
		go in.feed(g, req.PID)
	}
	defer in.stop()
	var packet []byte
	return g.Processes.Attach(req, proc.AttachIO{Gone: in.gone, Output: func(chunk wire.Chunk) error {
		packet = wire.AppendChunk(packet[:0], chunk)
		return c.Send(wire.TypeChunk, packet)
	}})
}

// untilGone makes a call that ends when its caller goes away.
func untilGone(c *wire.Conn, do func(gone <-chan struct{}) (any, error)) (any, error) {
	in := newInput(c)
	go in.receive(false, nil)
	defer in.stop()
	return do(in.gone)
}

// input receives what the caller of an exec or an attach sends.
type input struct {
	c       *wire.Conn
	data    chan []byte
	gone    chan struct{} // closed when the caller closed the connection
	stopped chan struct{} // closed when data is not read any more
}

func newInput(c *wire.Conn) *input {
	return &input{c: c, data: make(chan []byte), gone: make(chan struct{}), stopped: make(chan struct{})}
}

// receive runs until the connection is closed by either side. open says that data is read.
// Packets that are no input go to other, which may be nil.
func (in *input) receive(open bool, other func(*wire.Packet)) {
	for {
		p, err := in.c.Receive()
		if err != nil {
			close(in.gone)
			in.c.Finish()
			return
		}
		p.Close()
		if p.Type != wire.TypeStdin && other != nil {
			other(p)
		}
		if p.Type != wire.TypeStdin || !open {
			continue
		}
		if len(p.Body) == 0 {
			close(in.data)
			open = false
			continue
		}
		open = in.pass(append([]byte(nil), p.Body...))
	}
}

// feed writes data to a process, and ends its input at their end. Data that the process
// does not take any more are dropped.
func (in *input) feed(g *guest.Guest, pid int) {
	open := true
	for {
		select {
		case data, more := <-in.data:
			if open {
				open = g.Processes.Feed(&wire.Input{PID: pid, Data: data, End: !more}, in.gone) == nil
			}
			if !more {
				return
			}
		case <-in.stopped:
			return
		case <-in.gone:
			return
		}
	}
}

// hangUpCheck is how often it is looked whether the caller is still there while
// the command does not read what it has sent.
const hangUpCheck = 200 * time.Millisecond

// pass hands data to the command and reports whether it takes more. It gives up
// when the caller is gone, which the next Receive finds as well.
func (in *input) pass(data []byte) bool {
	tick := time.NewTicker(hangUpCheck)
	defer tick.Stop()
	for {
		select {
		case in.data <- data:
			return true
		case <-in.stopped:
			return false
		case <-tick.C:
			if in.c.HungUp() {
				return false
			}
		}
	}
}

func (in *input) stop() { close(in.stopped) }

type packetWriter struct {
	c *wire.Conn
	t wire.Type
}

// Write implements io.Writer. It blocks while the caller does not read, and so,
// in the end, does the command.
func (w packetWriter) Write(b []byte) (int, error) {
	sent := 0
	for sent < len(b) {
		n := min(len(b)-sent, wire.MaxChunk)
		if err := w.c.Send(w.t, b[sent:sent+n]); err != nil {
			return sent, err
		}
		sent += n
	}
	return sent, nil
}

// control passes requests of the sandbox on to c, and the answers back, until c
// is closed.
func (s *server) control(g *guest.Guest, c *wire.Conn) error {
	d := &selfctl.Daemon{
		Send:  func(r wire.ControlRequest) error { return c.SendJSON(wire.TypeRequest, r) },
		Close: func() { c.Close() },
	}
	return g.Control.Relay(d, func() (*wire.ControlAnswer, error) {
		p, err := c.Receive()
		if err != nil {
			return nil, err
		}
		p.Close()
		a := &wire.ControlAnswer{}
		return a, p.Decode(a)
	})
}
