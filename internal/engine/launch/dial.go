package launch

import (
	"context"
	"io"
	"net"
	"strconv"
	"sync"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/wire"
)

// portAddr is the address of a port in a sandbox.
type portAddr uint16

func (portAddr) Network() string  { return "tcp" }
func (a portAddr) String() string { return "sandbox:" + strconv.Itoa(int(a)) }

// portConn is a connection to a port of a sandbox.
type portConn struct {
	c    *wire.Conn
	port portAddr

	readMu sync.Mutex
	rest   []byte // guarded by readMu
	end    error  // of reading; guarded by readMu

	closeOnce sync.Once
}

// CloseWriter is a connection whose directions end separately.
type CloseWriter interface {
	net.Conn
	// CloseWrite ends the direction to the peer.
	CloseWrite() error
}

// Dial connects to a TCP port of the sandbox; it waits for a listener as
// long as wait says. ctx bounds the call and not the connection.
func (s *Sentry) Dial(ctx context.Context, port uint16, wait time.Duration) (CloseWriter, error) {
	call := &wire.Call{Op: wire.OpDial, Dial: &wire.DialPort{Port: port, WaitMS: wait.Milliseconds()}}
	c, err := s.reach(ctx)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { c.Close() })
	var p *wire.Packet
	if err = send(c, call, nil); err == nil {
		p, err = c.Receive()
	}
	if err != nil {
		err = s.callError(ctx, call, err)
	} else {
		p.Close()
		err = p.Decode(&struct{}{})
	}
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		c.Finish()
		return nil, err
	}
	return &portConn{c: c, port: portAddr(port)}, nil
}

// Read implements net.Conn.
func (p *portConn) Read(buf []byte) (int, error) {
	p.readMu.Lock()
	defer p.readMu.Unlock()
	for len(p.rest) == 0 && len(buf) > 0 {
		if p.end != nil {
			return 0, p.end
		}
		packet, err := p.c.Receive()
		if err != nil {
			if err == io.EOF { // without the mark of the end
				err = api.Errorf(api.CodeSandboxDied, "the connection to the sandbox broke off")
				p.end = err
			}
			return 0, err
		}
		packet.Close()
		switch {
		case packet.Type == wire.TypeFail:
			p.end = packet.Decode(nil)
		case packet.Type != wire.TypeData || len(packet.Body) == 0:
			p.end = io.EOF
		default:
			p.rest = packet.Body
		}
	}
	n := copy(buf, p.rest)
	p.rest = p.rest[n:]
	return n, nil
}

// Write implements net.Conn.
func (p *portConn) Write(data []byte) (int, error) {
	sent := 0
	for sent < len(data) {
		n := min(len(data)-sent, wire.MaxChunk)
		if err := p.c.Send(wire.TypeData, data[sent:sent+n]); err != nil {
			return sent, err
		}
		sent += n
	}
	return sent, nil
}

// CloseWrite implements CloseWriter.
func (p *portConn) CloseWrite() error { return p.c.Send(wire.TypeData, nil) }

// Close implements net.Conn.
func (p *portConn) Close() error {
	var err error
	p.closeOnce.Do(func() {
		err = p.c.Close()
		p.readMu.Lock()
		defer p.readMu.Unlock()
		p.rest, p.end = nil, net.ErrClosed
		p.c.Rest()
	})
	return err
}

// LocalAddr implements net.Conn.
func (p *portConn) LocalAddr() net.Addr { return p.port }

// RemoteAddr implements net.Conn.
func (p *portConn) RemoteAddr() net.Addr { return p.port }

// SetDeadline implements net.Conn.
func (p *portConn) SetDeadline(t time.Time) error { return p.c.SetDeadline(t) }

// SetReadDeadline implements net.Conn.
func (p *portConn) SetReadDeadline(t time.Time) error { return p.c.SetReadDeadline(t) }

// SetWriteDeadline implements net.Conn.
func (p *portConn) SetWriteDeadline(t time.Time) error { return p.c.SetWriteDeadline(t) }
