package control

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/network/gateway"
	"ramet.dev/ramet/internal/network/held"
	"ramet.dev/ramet/internal/network/policy"
)

const (
	// callTimeout bounds the time that a daemon may take to send its call.
	callTimeout = 10 * time.Second
	// lastWords is how long who follows the log may take to read the end of it.
	lastWords = 2 * time.Second
)

// Held is the requests that are held.
type Held interface {
	Held(sandbox string) ([]held.Request, error)
	Waiting() held.Stats
	Release(ctx context.Context, sandbox, id string, again bool, r *gateway.Registration) (held.Request, error)
	ReleaseAll(ctx context.Context, sandbox string, r *gateway.Registration) error
	Drop(sandbox, id string) error
	DropAll(sandbox string, forget bool) error
	DropUndone(*held.Undone) error
	// Resume sends what an earlier gateway was told to send of the sandboxes that are registered. It
	// does not wait for answers.
	Resume()
	// Sending reports whether requests that were released are being sent.
	Sending() bool
}

// Server answers the calls of daemons.
type Server struct {
	gateway *gateway.Gateway
	held    Held
	log     *Log
	hello   Hello
	grace   time.Duration
	order   order

	mu      sync.Mutex
	calls   int           // under way, those that watch included; guarded by mu
	changed chan struct{} // has room for one: a call has ended
	end     context.CancelFunc
}

// NewServer returns the server of a gateway, whose decisions log has. grace is how long the gateway
// may be without sandboxes and calls before Serve returns.
func NewServer(g *gateway.Gateway, h Held, log *Log, hello Hello, grace time.Duration) *Server {
	return &Server{gateway: g, held: h, log: log, hello: hello, grace: grace, changed: make(chan struct{}, 1), end: func() {}}
}

// Serve answers the calls that come on l until ctx ends, a daemon ends the gateway, or nobody has
// needed it for long. It closes l and the gateway, and waits for the calls under way. Who follows the
// log is told how the flows of the gateway ended.
func (s *Server) Serve(ctx context.Context, l *net.UnixListener) error {
	ctx, cancel := context.WithCancel(ctx)
	following, unfollow := context.WithCancel(context.WithoutCancel(ctx))
	s.end = cancel
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	var wg sync.WaitGroup
	defer func() {
		cancel()
		s.gateway.Close()
		s.log.Close()
		late := time.AfterFunc(lastWords, unfollow)
		wg.Wait()
		late.Stop()
		unfollow()
	}()
	wg.Go(func() { s.awaitIdle(ctx) })
	for {
		c, err := l.AcceptUnix()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			cancel()
			return fmt.Errorf("accept a daemon: %w", err)
		}
		s.count(1)
		wg.Go(func() {
			defer s.count(-1)
			s.serve(ctx, following, c)
		})
	}
}

func (s *Server) count(n int) {
	s.mu.Lock()
	s.calls += n
	s.mu.Unlock()
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// idle reports whether nobody needs the gateway.
func (s *Server) idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls == 0 && len(s.gateway.IDs()) == 0 && !s.held.Sending()
}

// awaitIdle ends the gateway when nobody has needed it for the time of grace. While a daemon watches
// there is nothing to look at; without one, sandboxes end without a call.
func (s *Server) awaitIdle(ctx context.Context) {
	for since := time.Now(); ; {
		s.mu.Lock()
		watched := s.calls > 0
		s.mu.Unlock()
		var look <-chan time.Time
		if !watched {
			look = time.After(s.grace)
		}
		select {
		case <-ctx.Done():
			return
		case <-s.changed:
			since = time.Now()
		case <-look:
			if s.idle() && time.Since(since) >= s.grace {
				s.end()
				return
			}
		}
	}
}

// serve answers one call, until ctx ends, or following if the call reads the log.
func (s *Server) serve(ctx, following context.Context, c *net.UnixConn) {
	conn := wire.NewConn(c)
	defer conn.Finish()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer func() { stop() }()
	if err := conn.SetReadDeadline(time.Now().Add(callTimeout)); err != nil {
		return
	}
	p, err := conn.Receive()
	if err != nil {
		return
	}
	defer p.Close()
	var asked call
	if err = p.Decode(&asked); err == nil && p.Type != wire.TypeCall {
		err = api.Errorf(api.CodeInvalid, "the first packet is no call")
	}
	if err == nil {
		switch asked.Op {
		case opLog:
			if !stop() {
				return // the gateway ends
			}
			stop = context.AfterFunc(following, func() { conn.Close() })
			s.tellLog(following, conn, &asked)
			return
		case opWatch:
			s.watch(conn)
			return
		case opHeld:
			s.tellHeld(conn, &asked)
			return
		case opTenants:
			s.tellTenants(conn)
			return
		}
	}
	var reply any
	switch {
	case err != nil:
	case asked.Op == opRelease || asked.Op == opReleaseAll:
		reply, err = s.release(ctx, conn, &asked, p)
	default:
		reply, err = s.answer(&asked, p)
	}
	if err != nil {
		_ = conn.Fail(err) // the daemon is gone
		return
	}
	_ = conn.SendJSON(wire.TypeReply, reply)
	if asked.Op == opEnd {
		s.end() // not before the reply: it closes all connections
	}
}

// answer does what a call asks for.
func (s *Server) answer(asked *call, p *wire.Packet) (any, error) {
	switch asked.Op {
	case opHello:
		return s.hello, nil
	case opAdd:
		r, err := takeRegistration(p)
		if err != nil {
			return nil, err
		}
		channel, err := p.Take(1)
		if err != nil {
			return nil, err
		}
		return s.registered(s.order.apply("sandbox "+r.ID, asked.Change, func() error { return s.gateway.Add(r, channel) }))
	case opReplace:
		r, err := takeRegistration(p)
		if err != nil {
			return nil, err
		}
		return s.registered(s.order.apply("sandbox "+r.ID, asked.Change, func() error { return s.gateway.Replace(r) }))
	case opTenant:
		f, err := p.Take(0)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		t, err := readTenant(f)
		if err != nil {
			return nil, err
		}
		return struct{}{}, s.order.apply("tenant "+t.Name, asked.Change, func() error { return s.gateway.SetTenant(t) })
	case opRemove:
		s.order.forget("sandbox " + asked.Sandbox)
		return struct{}{}, s.gateway.Remove(asked.Sandbox)
	case opList:
		return s.gateway.IDs(), nil
	case opStats:
		return Stats{s.gateway.Stats(), s.held.Waiting()}, nil
	case opTest:
		return s.test(asked)
	case opEnd:
		return struct{}{}, nil // serve ends it
	case opDrop:
		return struct{}{}, s.held.Drop(asked.Sandbox, asked.Request)
	case opDropAll:
		return struct{}{}, s.held.DropAll(asked.Sandbox, asked.Forget)
	case opDropUndone:
		if asked.Undone == nil {
			return nil, api.Invalid("undone", "it is missing")
		}
		return struct{}{}, s.held.DropUndone(asked.Undone)
	}
	return nil, api.Errorf(api.CodeInvalid, "the gateway has no call %q", asked.Op)
}

// registered sends what an earlier gateway has left to be sent of a sandbox that is known now. That it
// cannot be sent is in its record.
func (s *Server) registered(err error) (any, error) {
	if err == nil {
		s.held.Resume()
	}
	return struct{}{}, err
}

// maxTarget is how much of the target of a request is told: packets have a bound.
const maxTarget = 4 << 10

// tellHeld sends the requests that are held, one in a packet, and a reply behind the last.
func (s *Server) tellHeld(conn *wire.Conn, asked *call) {
	list, err := s.held.Held(asked.Sandbox)
	if err != nil {
		_ = conn.Fail(err) // the daemon is gone
		return
	}
	for i := range list {
		list[i].Target = list[i].Target[:min(len(list[i].Target), maxTarget)]
		if conn.SendJSON(wire.TypeItem, &list[i]) != nil {
			return
		}
	}
	_ = conn.SendJSON(wire.TypeReply, struct{}{})
}

// tellTenants sends numbers about tenants, each in a packet, and a reply behind the last.
func (s *Server) tellTenants(conn *wire.Conn) {
	for name, st := range s.gateway.Tenants() {
		if conn.SendJSON(wire.TypeItem, TenantStats{name, st}) != nil {
			return
		}
	}
	_ = conn.SendJSON(wire.TypeReply, struct{}{})
}

// release sends held requests. For a daemon that hangs up nobody waits any more.
func (s *Server) release(ctx context.Context, conn *wire.Conn, asked *call, p *wire.Packet) (any, error) {
	var under *gateway.Registration
	if len(p.Files) > 0 {
		r, err := takeRegistration(p)
		if err != nil {
			return nil, err
		}
		under = &r
	}
	if err := conn.SetReadDeadline(time.Time{}); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	wg.Go(func() {
		drain(conn)
		cancel(errHungUp)
	})
	defer wg.Wait()
	defer func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) }() // which ends drain
	if asked.Op == opReleaseAll {
		return struct{}{}, s.held.ReleaseAll(ctx, asked.Sandbox, under)
	}
	return s.held.Release(ctx, asked.Sandbox, asked.Request, asked.Again, under)
}

func takeRegistration(p *wire.Packet) (gateway.Registration, error) {
	f, err := p.Take(0)
	if err != nil {
		return gateway.Registration{}, err
	}
	defer f.Close()
	return readRegistration(f)
}

var protocols = map[string]policy.Protocol{"tcp": policy.TCP, "udp": policy.UDP, "echo": policy.Echo}

func (s *Server) test(asked *call) (any, error) {
	if asked.Test == nil {
		return nil, api.Invalid("test", "the call names no connection")
	}
	protocol, known := protocols[asked.Test.Protocol]
	if !known {
		return nil, api.Invalid("protocol", "%q is not tcp, udp or echo", asked.Test.Protocol)
	}
	return s.gateway.Test(asked.Sandbox, asked.Test.Host, protocol, asked.Test.Port)
}

// errHungUp says that the daemon has closed the connection.
var errHungUp = errors.New("the daemon has closed the connection")

// tellLog sends lines until the daemon closes the connection.
func (s *Server) tellLog(ctx context.Context, conn *wire.Conn, asked *call) {
	var want Reading
	if asked.Log != nil {
		want = *asked.Log
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		awaitEnd(conn)
		cancel(errHungUp)
	})
	_ = s.log.Read(ctx, want, func(l Line) error { // the end of the connection
		return conn.SendJSON(wire.TypeItem, l)
	})
	conn.Close()
	wg.Wait()
}

// watch keeps the connection until the daemon closes it.
func (s *Server) watch(conn *wire.Conn) {
	if conn.SendJSON(wire.TypeReply, struct{}{}) == nil {
		awaitEnd(conn)
	}
}

// awaitEnd returns when the peer has closed the connection. What it sends is of no interest.
func awaitEnd(conn *wire.Conn) {
	if conn.SetReadDeadline(time.Time{}) == nil {
		drain(conn)
	}
}

// drain reads until the connection has ended, or its deadline is over.
func drain(conn *wire.Conn) {
	for {
		p, err := conn.Receive()
		if err != nil {
			return
		}
		p.Close()
	}
}

// Listen makes the socket at path, in place of one that a dead gateway left.
func Listen(path string) (*net.UnixListener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("remove old socket of the gateway: %w", err)
	}
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		return nil, fmt.Errorf("listen for daemons: %w", err)
	}
	l.SetUnlinkOnClose(false)
	if err := os.Chmod(path, 0o600); err != nil {
		l.Close()
		return nil, fmt.Errorf("protect socket of the gateway: %w", err)
	}
	return l, nil
}
