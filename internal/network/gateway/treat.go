package gateway

import (
	"cmp"
	"context"
	"hash/fnv"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/network/policy"
	"ramet.dev/ramet/internal/network/relay"
	"ramet.dev/ramet/internal/network/sniff"
	"ramet.dev/ramet/internal/network/wire"
)

// dialer connects to the server of a flow.
type dialer func(ctx context.Context) (net.Conn, error)

// opened is a connection to a server that is the first of several.
type opened struct {
	conn atomic.Pointer[net.TCPConn]
	next func(ctx context.Context) (*net.TCPConn, error)
}

func firstly(c *net.TCPConn, next func(ctx context.Context) (*net.TCPConn, error)) *opened {
	o := &opened{next: next}
	o.conn.Store(c)
	return o
}

// dial returns the connection once, and then others.
func (o *opened) dial(ctx context.Context) (net.Conn, error) {
	if c := o.conn.Swap(nil); c != nil {
		return c, nil
	}
	c, err := o.next(ctx)
	if err != nil {
		return nil, err // not a nil *net.TCPConn in a net.Conn
	}
	return c, nil
}

// close closes the connection if nobody has asked for it.
func (o *opened) close() {
	if c := o.conn.Swap(nil); c != nil {
		c.Close()
	}
}

// treat has the requests of a flow looked at.
func (f *flow) treat(guest *os.File, q *policy.Question, found sniff.Found, t *policy.Treatment, dial dialer) {
	if f.s.treatments == nil {
		logDenied(f, "the gateway looks at no requests: "+f.rule, "")
		f.refuse(guest, nil)
		return
	}
	conn, err := connOf(f, guest)
	if err != nil {
		return
	}
	_ = f.s.treatments.Serve(f.ctx, conn, Treated{ // it tells of errors
		Name: cmp.Or(q.Host, strings.Trim(strings.TrimSuffix(found.Name, "."), "[]")), Port: f.port, TLS: found.Kind == sniff.TLS,
		Treatment: t, Rule: f.rule, Dial: dial, Log: requestLog(f),
	})
	if context.Cause(f.ctx) != nil {
		f.tell(wire.Reset)
	}
	conn.Close()
	f.logEnd(conn.in.Load(), conn.out.Load())
}

// requestLog returns what tells of requests on a flow.
func requestLog(f *flow) func(api.NetworkLogEntry) {
	return func(e api.NetworkLogEntry) {
		e.Flow, e.Name, e.Port, e.Address, e.Protocol = uint64(f.id), f.name, f.port, f.address.String(), "http"
		if e.Verdict != api.NetworkHeld || e.DurationMS > 0 { // else another line comes
			f.s.g.counters.requests.Add(1)
			e.DurationMS = max(e.DurationMS, 0.001)
		}
		f.s.log(e)
	}
}

// mayReachVia reports whether a server may have to be reached by the name that the guest shows, and not
// at the address: then the first bytes are looked at before there is a connection.
func (c *Config) mayReachVia(names []string, port uint16) bool {
	return c.Via != nil && slices.ContainsFunc(names, func(name string) bool { return c.Via(name, port) != nil })
}

// standIns are addresses for names that only a proxy of the host resolves. Like those of sandboxes, no
// network routes them.
var standIns = netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 19, 0, 0}), 16)

func isStandIn(a netip.Addr) bool { return standIns.Contains(a) }

// standIn returns the address for a name that the host's resolver does not know, if it is reached
// without. Several names may have one: the first bytes of a flow say which is meant.
func (c *Config) standIn(name string) (netip.Addr, bool) {
	if c.Via(name, 443) == nil {
		return netip.Addr{}, false
	}
	h := fnv.New32a()
	_, _ = io.WriteString(h, name) // it never fails
	sum := h.Sum32()
	return netip.AddrFrom4([4]byte{198, 19, byte(sum >> 8), byte(sum)}), true
}

// runVia serves a flow of which mayReachVia holds. The guest speaks first, as with TLS; the server is
// reached by the name that it shows, if the address was given out for that.
func (f *flow) runVia(q policy.Question, d policy.Decision) {
	guest, err := f.open()
	if err != nil {
		return
	}
	logAllowed(f)
	names := q.Names
	t, found, err := f.look(f.ctx, guest, &q, max(d.Host, policy.HostIfShown), silence, true)
	if err != nil {
		f.refuse(guest, nil)
		return
	}
	dial, reached := firstly(nil, f.connect).dial, false
	for _, name := range names {
		if via := f.s.g.cfg.Via(name, f.port); via != nil && name == q.Host {
			dial = func(ctx context.Context) (net.Conn, error) { return dialFor(ctx, f, via) }
			reached = true
		}
	}
	if isStandIn(f.address) && !reached {
		f.refuse(guest, nil)
		return
	}
	if isHTTP(t, found) {
		f.treat(guest, &q, found, t, dial)
		return
	}
	server, err := dial(f.ctx)
	if err != nil {
		f.refuse(guest, nil)
		return
	}
	socket, wait, err := socketOf(server)
	if err != nil {
		f.refuse(guest, nil)
		return
	}
	_ = f.carry(guest, socket, relay.Options{}) // its end was told
	wait()
}

// socketOf returns a connection as a socket, or the end of a pair that it is copied to: a connection to
// a proxy may be in TLS. Closing the socket closes the connection; wait returns when it is closed.
func socketOf(c net.Conn) (s relay.Socket, wait func(), err error) {
	if c, is := c.(*net.TCPConn); is {
		return c, func() {}, nil
	}
	theirs, ours, err := wire.FlowPair(wire.TCP)
	if err != nil {
		c.Close()
		return nil, nil, err
	}
	pair, err := net.FileConn(theirs)
	theirs.Close()
	if err != nil {
		c.Close()
		ours.Close()
		return nil, nil, err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		pass(pair.(*net.UnixConn), c)
	}()
	return ours, func() { c.Close(); <-done }, nil
}

// pass copies between a pair and a server until both directions have ended.
func pass(pair *net.UnixConn, server net.Conn) {
	var wg sync.WaitGroup
	wg.Go(func() {
		_, _ = io.Copy(server, pair) // its end is passed on
		if c, is := server.(interface{ CloseWrite() error }); is {
			_ = c.CloseWrite()
		}
	})
	_, _ = io.Copy(pair, server)
	_ = pair.CloseWrite()
	wg.Wait()
	pair.Close()
}

// guestConn is the gateway's end of a flow as a connection. The sentry is told of its end before it
// shows.
type guestConn struct {
	*net.UnixConn
	f       *flow
	in, out atomic.Int64 // from and to the guest
}

func connOf(f *flow, end *os.File) (*guestConn, error) {
	c, err := net.FileConn(end)
	end.Close()
	if err != nil {
		f.tell(wire.Reset)
		return nil, err
	}
	return &guestConn{UnixConn: c.(*net.UnixConn), f: f}, nil
}

// Read implements net.Conn.
func (c *guestConn) Read(b []byte) (int, error) {
	n, err := c.UnixConn.Read(b[:min(len(b), c.f.s.up.Most())])
	c.in.Add(int64(n))
	if n > 0 && c.f.s.up.WaitN(c.f.ctx, n) != nil {
		return 0, context.Cause(c.f.ctx)
	}
	return n, err
}

// Write implements net.Conn.
func (c *guestConn) Write(b []byte) (n int, err error) {
	for {
		part := b[n:min(len(b), n+c.f.s.down.Most())]
		if c.f.s.down.WaitN(c.f.ctx, len(part)) != nil {
			return n, context.Cause(c.f.ctx)
		}
		m, err := c.UnixConn.Write(part)
		c.out.Add(int64(m))
		if n += m; err != nil || n == len(b) {
			return n, err
		}
	}
}

// CloseWrite ends what is sent to the guest.
func (c *guestConn) CloseWrite() error {
	c.f.tellClosed()
	return c.UnixConn.CloseWrite()
}

// Close implements net.Conn.
func (c *guestConn) Close() error {
	c.f.tellClosed()
	return c.UnixConn.Close()
}
