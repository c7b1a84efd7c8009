package gateway

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/network/policy"
	"ramet.dev/ramet/internal/network/relay"
	"ramet.dev/ramet/internal/network/sniff"
	"ramet.dev/ramet/internal/network/wire"
)

const (
	// dialTimeout bounds a connection to a server.
	dialTimeout = 30 * time.Second
	// silence is how long a guest may say nothing on a connection whose name has to be known:
	// browsers open some ahead. slowness is how long it may take for the name.
	silence  = 2 * time.Minute
	slowness = 10 * time.Second
	// receiveBuffer is that of sockets of the host. With the size that Linux chooses many
	// downloads at once collapse: they advertise more than the pairs take.
	receiveBuffer = 1 << 20
)

// errDenied says that the name in the first bytes is not allowed.
var errDenied = errors.New("the name is not allowed")

// runTCP connects to a server.
func (f *flow) runTCP() {
	q := policy.Question{Protocol: policy.TCP, Address: f.address, Port: f.port, Names: f.s.names.Of(f.address)}
	if len(q.Names) > 0 {
		f.name = q.Names[0]
	}
	via := f.s.g.cfg.mayReachVia(q.Names, f.port)
	if via && isStandIn(f.address) {
		q.Address = anyAddress
	}
	d := f.s.judge(f, q)
	f.rule = d.String()
	if !d.Allowed {
		f.deny(f.rule, f.s.current().WouldAllow(&q), codeFor(d))
		return
	}
	if via {
		f.runVia(q, d)
		return
	}
	server, err := f.connect(f.ctx)
	if err != nil {
		logAllowed(f)
		f.verdict(codeOf(err))
		return
	}
	guest, err := f.open()
	if err != nil {
		server.Close()
		return
	}
	logAllowed(f)
	f.begin(guest, server, q, d)
}

// connect opens a connection to the address that was judged.
func (f *flow) connect(ctx context.Context) (*net.TCPConn, error) {
	c, err := dialFor(ctx, f, func(ctx context.Context) (net.Conn, error) {
		return f.s.g.cfg.Dial(ctx, "tcp", netip.AddrPortFrom(f.address, f.port).String())
	})
	if err != nil {
		return nil, err
	}
	server, is := c.(*net.TCPConn)
	if !is {
		c.Close()
		return nil, errors.New("the connection is not one of TCP")
	}
	if err := server.SetReadBuffer(receiveBuffer); err != nil {
		server.Close()
		return nil, err
	}
	return server, nil
}

// begin looks at the first bytes as far as the decision demands, and carries the rest.
func (f *flow) begin(guest *os.File, server *net.TCPConn, q policy.Question, d policy.Decision) {
	opts := relay.Options{}
	if d.Host != policy.HostIgnored {
		t, found, err := f.lookFirst(guest, server, &q, d.Host)
		switch {
		case errors.Is(err, errSpoke): // which a server of HTTP does not
			opts.Before = func(ctx context.Context) error {
				t, _, err := f.look(ctx, guest, &q, policy.HostIfShown, 0, false)
				if t != nil {
					err = errSpoke
				}
				return err
			}
		case err != nil:
			f.refuse(guest, server)
			return
		case isHTTP(t, found):
			first := firstly(server, f.connect)
			defer first.close()
			f.treat(guest, &q, found, t, first.dial)
			return
		}
	}
	_ = f.carry(guest, server, opts) // its end was told
}

// isHTTP reports whether requests are looked at, each: what was judged is a name, and the next request
// on the connection may show another one.
func isHTTP(t *policy.Treatment, found sniff.Found) bool {
	return t != nil || found.Kind == sniff.HTTP && found.Name != ""
}

// refuse resets a flow that was opened. server is nil if there is no connection to it.
func (f *flow) refuse(guest *os.File, server *net.TCPConn) {
	f.tell(wire.Reset)
	guest.Close()
	if server != nil {
		_ = server.SetLinger(0) // else the server takes the end for a proper one
		server.Close()
	}
}

// errSpoke says that the server spoke first: what the guest says then is no request.
var errSpoke = errors.New("the server spoke first")

// lookFirst is look before a byte has passed.
func (f *flow) lookFirst(guest *os.File, server *net.TCPConn, q *policy.Question, need policy.Host) (*policy.Treatment, sniff.Found, error) {
	ctx, stop := context.WithCancelCause(f.ctx)
	defer stop(nil)
	first := silence
	if need == policy.HostIfShown {
		first = 0
		defer awaitSpeech(server, func() { stop(errSpoke) })()
	}
	return f.look(ctx, guest, q, need, first, true)
}

// look judges the flow once more, by the name in the guest's first bytes, which may take so long. With strict a
// beginning of a request or handshake that comes to no name, because it is malformed or slow, is denied: the server may
// read a name in it that the gateway does not see. It is not, where a server spoke first, which one of HTTP does not.
func (f *flow) look(ctx context.Context, guest *os.File, q *policy.Question, need policy.Host, first time.Duration, strict bool) (*policy.Treatment, sniff.Found, error) {
	found, err := sniff.Await(ctx, guest, sniff.Timeouts{First: first, Rest: slowness})
	switch {
	case ctx.Err() != nil:
		return nil, found, context.Cause(ctx)
	case errors.Is(err, io.EOF):
		return nil, found, nil // nothing was said, and nothing comes
	}
	if strict && obscure(found, err) {
		logDenied(f, "the first bytes are a request or a handshake without a name that all servers read alike", "")
		return nil, found, errDenied
	}
	q.Seen, q.Host = true, ""
	if name, ok := policy.CanonicalName(found.Name); ok && err == nil && !(found.Hidden && need == policy.HostRequired) {
		q.Host, f.name = name, name
	}
	d := f.s.judge(f, *q)
	if !d.Allowed {
		logDenied(f, d.String(), f.s.current().WouldAllow(q))
		return nil, found, errDenied
	}
	f.rule = d.String()
	return d.Treatment, found, nil
}

// obscure reports whether first bytes are a beginning of HTTP or TLS that does not say which name is meant. A handshake
// that is complete and names none is not: the server answers it as the address.
func obscure(found sniff.Found, err error) bool {
	switch found.Kind {
	case sniff.HTTP:
		return err != nil || found.Name == ""
	case sniff.TLS:
		return err != nil
	}
	return false
}

// awaitSpeech calls f when the server has sent something. The function that it returns ends the
// waiting, and waits for that.
func awaitSpeech(server *net.TCPConn, f func()) (end func()) {
	raw, err := server.SyscallConn()
	if err != nil {
		return func() {} // it is closed
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		var b [1]byte
		err := raw.Read(func(fd uintptr) bool {
			_, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
			return !errors.Is(err, unix.EAGAIN)
		})
		if err == nil {
			f()
		}
	}()
	return func() {
		_ = server.SetReadDeadline(time.Unix(1, 0)) // an error says that it is closed
		<-done
		_ = server.SetReadDeadline(time.Time{})
	}
}
