package client

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
	"ramet.dev/ramet/internal/peer"
)

// Ports reaches the TCP ports of sandboxes.
type Ports struct{ conn *connection }

// List returns the ports that processes in a sandbox listen on.
func (s *Ports) List(ctx context.Context, ref string) ([]api.Port, error) {
	l, err := on[httpwire.List[api.Port]](ctx, s.conn, http.MethodGet, "sandboxes", ref, "/ports", nil, nil)
	return l.Items, err
}

// Wait waits at most wait until a process listens on a TCP port, and returns the port. It is an
// api.CodeUnavailable error that none does.
func (s *Ports) Wait(ctx context.Context, ref string, port int, wait time.Duration) (*api.Port, error) {
	return on[*api.Port](ctx, s.conn, http.MethodGet, "sandboxes", ref, "/ports/"+strconv.Itoa(port), waitQuery(wait), nil)
}

// Open returns a URL with which a browser reaches a TCP port.
func (s *Ports) Open(ctx context.Context, ref string, req api.PortSessionRequest) (*api.PortSession, error) {
	return on[*api.PortSession](ctx, s.conn, http.MethodPost, "sandboxes", ref, "/port-sessions", nil, req)
}

// Published returns the ports of the daemon's host that lead to a sandbox.
func (s *Ports) Published(ctx context.Context, ref string) ([]api.PublishedPort, error) {
	l, err := on[httpwire.List[api.PublishedPort]](ctx, s.conn, http.MethodGet, "sandboxes", ref, "/ports/published", nil, nil)
	return l.Items, err
}

// Publish has the daemon listen on a port of its host that leads to a TCP port of a sandbox,
// until Unpublish or the end of the sandbox.
func (s *Ports) Publish(ctx context.Context, ref string, req api.PublishRequest) (*api.PublishedPort, error) {
	return on[*api.PublishedPort](ctx, s.conn, http.MethodPost, "sandboxes", ref, "/ports/published", nil, req)
}

// Unpublish ends the ports of a sandbox that are published on a port of the daemon's host, with
// their connections.
func (s *Ports) Unpublish(ctx context.Context, ref string, hostPort int) error {
	_, err := on[struct{}](ctx, s.conn, http.MethodDelete, "sandboxes", ref, "/ports/published/"+strconv.Itoa(hostPort), nil, nil)
	return err
}

func waitQuery(wait time.Duration) url.Values {
	if wait <= 0 {
		return nil
	}
	return url.Values{"wait": {wait.String()}}
}

// PortConn is a connection to a port of a sandbox. Each direction ends by
// itself.
type PortConn struct {
	net.Conn
	early *bufio.Reader // what came with the answer, then nil
	ended atomic.Bool   // CloseWrite was called
}

var errBrokenOff = api.Errorf(api.CodeUnavailable, "the connection to the sandbox broke off: the sandbox, its server or the daemon ended")

// end returns what an error of reading means. A daemon closes both directions of a
// connection, one of which has not ended, only if something is wrong: Unix sockets have no
// other way to tell that.
func (p *PortConn) end(err error) error {
	raw, ok := p.Conn.(syscall.Conn)
	if err != io.EOF || p.ended.Load() || !ok {
		return err
	}
	sc, serr := raw.SyscallConn()
	if serr != nil {
		return err
	}
	fds := []unix.PollFd{{}}
	_ = sc.Control(func(fd uintptr) { // it fails if it was closed here
		fds[0].Fd = int32(fd)
		_, _ = unix.Poll(fds, 0) // then nothing is known
	})
	if fds[0].Revents&unix.POLLHUP != 0 {
		return errBrokenOff
	}
	return err
}

// Read implements net.Conn.
func (p *PortConn) Read(buf []byte) (int, error) {
	if p.early != nil {
		if p.early.Buffered() > 0 {
			return p.early.Read(buf)
		}
		p.early = nil
	}
	n, err := p.Conn.Read(buf)
	return n, p.end(err)
}

// CloseWrite ends the direction to the sandbox.
func (p *PortConn) CloseWrite() error {
	p.ended.Store(true)
	if half, ok := p.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return p.Conn.Close()
}

// WriteTo implements io.WriterTo: the kernel moves the bytes where it can.
func (p *PortConn) WriteTo(w io.Writer) (int64, error) {
	var n int64
	if p.early != nil {
		early, err := io.CopyN(w, p.early, int64(p.early.Buffered()))
		p.early = nil
		if n = early; err != nil {
			return n, err
		}
	}
	rest, err := io.Copy(w, p.Conn)
	if err == nil {
		if err = p.end(io.EOF); err == io.EOF {
			err = nil
		}
	}
	return n + rest, err
}

// Dial connects to a TCP port of a sandbox. It waits at most wait until a process listens
// there. ctx bounds the call and not the connection.
func (s *Ports) Dial(ctx context.Context, ref string, port int, wait time.Duration) (*PortConn, error) {
	p, err := path("sandboxes", ref, "/ports/"+strconv.Itoa(port))
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.conn.base+p+"?"+waitQuery(wait).Encode(), nil)
	if err != nil {
		return nil, api.Errorf(api.CodeInvalid, "make request: %w", err)
	}
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "tcp")
	s.conn.creds.sign(req.Method, req.Header)
	conn, err := s.conn.dial(ctx, req.URL)
	if err != nil {
		return nil, connectionError(ctx, err)
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	in := bufio.NewReader(conn)
	var resp *http.Response
	if err = req.Write(conn); err == nil {
		resp, err = http.ReadResponse(in, req)
	}
	if !stop() && err == nil {
		err = ctx.Err()
	}
	switch {
	case err != nil:
		err = connectionError(ctx, err)
	case resp.StatusCode != http.StatusSwitchingProtocols:
		err = problemOf(resp)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return &PortConn{Conn: conn, early: in}, nil
}

// dial opens a connection to the daemon that is not one of the pool.
func (c *connection) dial(ctx context.Context, u *url.URL) (net.Conn, error) {
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAliveConfig: peer.KeepAliveConfig}
	switch {
	case c.socket != "":
		return dialer.DialContext(ctx, "unix", c.socket)
	case u.Scheme == "https":
		return (&tls.Dialer{NetDialer: dialer, Config: c.creds.tls}).DialContext(ctx, "tcp", hostPort(u, "443"))
	}
	return dialer.DialContext(ctx, "tcp", hostPort(u, "80"))
}

func hostPort(u *url.URL, port string) string {
	if u.Port() != "" {
		port = u.Port()
	}
	return net.JoinHostPort(u.Hostname(), port)
}
