package published

import (
	"context"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/peer"
	"ramet.dev/ramet/internal/tunnel"
)

const (
	// dialTimeout bounds the connection to a sandbox, which may have to be woken.
	dialTimeout = time.Minute
	// acceptPause is how long nothing is accepted after that failed, as it does while the
	// daemon has no descriptor left.
	acceptPause = 250 * time.Millisecond
)

// endpoint is one published port. It is a net.Listener, whose connections take room.
type endpoint struct {
	record    record
	publisher *Publisher
	group     *group
	ctx       context.Context
	cancel    context.CancelFunc

	mu       sync.Mutex
	listener *net.TCPListener // nil while it does not listen
	err      error            // why it does not
	ended    bool
	open     map[*conn]struct{}
	untold   int       // refused requests that nobody was told of
	told     time.Time // when somebody was

	use use
}

// newEndpoint returns an endpoint that does not listen.
func newEndpoint(s *Publisher, g *group, r record) *endpoint {
	return &endpoint{record: r, publisher: s, group: g, open: map[*conn]struct{}{}}
}

// view returns the endpoint as users see it.
func (e *endpoint) view() api.PublishedPort {
	e.mu.Lock()
	defer e.mu.Unlock()
	p := api.PublishedPort{
		Port: int(e.record.Port), Address: e.record.Listen.Addr().String(), HostPort: int(e.record.Listen.Port()),
		Protected: e.record.Token != "", Connections: len(e.open), Accepted: e.use.accepted.Load(), Refused: e.use.refused.Load(),
	}
	if last := e.use.last.Load(); last != 0 {
		at := time.Unix(0, last).UTC()
		p.LastUsedAt = &at
	}
	if e.err != nil {
		p.Error = e.err.Error()
	}
	return p
}

// listens reports whether the endpoint listens.
func (e *endpoint) listens() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.listener != nil
}

// fail notes why the endpoint does not listen.
func (e *endpoint) fail(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.err = err
}

// start serves the connections of l.
func (e *endpoint) start(l *net.TCPListener) {
	e.ctx, e.cancel = context.WithCancel(e.publisher.ctx)
	e.mu.Lock()
	e.listener, e.err = l, nil
	e.mu.Unlock()
	if e.record.Token != "" {
		guard := e.newGuard()
		e.publisher.wg.Go(func() { e.serveHTTP(guard) })
		return
	}
	e.publisher.wg.Go(func() {
		for {
			c, err := e.accept()
			if err != nil {
				return // it ended
			}
			e.publisher.wg.Go(func() { e.forward(c) })
		}
	})
}

// end closes the listener and the connections of the endpoint for good. Their goroutines end
// soon after.
func (e *endpoint) end() {
	e.mu.Lock()
	e.ended = true
	l := e.listener
	open := make([]*conn, 0, len(e.open))
	for c := range e.open {
		open = append(open, c)
	}
	e.mu.Unlock()
	if l == nil {
		return
	}
	e.cancel()
	stop(l)
	for _, c := range open {
		peer.Reset(c)
	}
}

// stop has l accept nobody any more. Closing it is not enough: a process that is being started has a
// descriptor of it from its fork to its execution, and clients would be taken for so long.
func stop(l *net.TCPListener) {
	if raw, err := l.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_RDWR) }) // it is closed next
	}
	l.Close()
}

// accept returns the next connection, once there is room for it. Further clients wait in the
// kernel meanwhile. It returns net.ErrClosed when the endpoint has ended.
func (e *endpoint) accept() (*conn, error) {
	for {
		tcp, err := e.listener.AcceptTCP()
		switch {
		case err == nil:
			if c := e.admit(tcp); c != nil {
				return c, nil
			}
			peer.Reset(tcp)
		case e.ctx.Err() == nil:
			timer := time.NewTimer(acceptPause)
			select {
			case <-timer.C:
			case <-e.ctx.Done():
				timer.Stop()
			}
		}
		if e.ctx.Err() != nil {
			return nil, net.ErrClosed
		}
	}
}

// admit takes room for a connection. It returns nil if the endpoint ends before there is any.
func (e *endpoint) admit(tcp *net.TCPConn) *conn {
	select {
	case e.group.room <- struct{}{}:
	case <-e.ctx.Done():
		return nil
	}
	select {
	case e.publisher.room <- struct{}{}:
	case <-e.ctx.Done():
		<-e.group.room
		return nil
	}
	c := &conn{TCPConn: tcp, endpoint: e}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended {
		<-e.group.room
		<-e.publisher.room
		return nil
	}
	e.open[c] = struct{}{}
	e.use.accept()
	e.publisher.use.accept()
	return c
}

// dial connects to the port in the sandbox.
func (e *endpoint) dial(ctx context.Context) (Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	return e.publisher.cfg.Dial(ctx, e.group.id, e.record.Port)
}

// forward joins a connection with one to the sandbox until both directions have ended.
func (e *endpoint) forward(c *conn) {
	defer c.Close()
	port, err := e.dial(e.ctx)
	if err != nil {
		e.publisher.cfg.Log.Debug("connect to a published port", "sandbox", e.group.id, "port", e.record.Port, "error", err)
		peer.Reset(c) // tells the client
		return
	}
	defer port.Close()
	defer context.AfterFunc(e.ctx, func() { port.Close() })()
	tunnel.Join(c, nil, port, tunnel.Linger)
}

// conn is an accepted connection. Close gives its room back.
type conn struct {
	*net.TCPConn
	endpoint *endpoint
	once     sync.Once
}

// NetConn returns the connection below, for package peer.
func (c *conn) NetConn() net.Conn { return c.TCPConn }

// Close implements net.Conn.
func (c *conn) Close() error {
	err := c.TCPConn.Close()
	c.once.Do(func() {
		e := c.endpoint
		e.mu.Lock()
		delete(e.open, c)
		e.mu.Unlock()
		<-e.publisher.room
		<-e.group.room
	})
	return err
}
