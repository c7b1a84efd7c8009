package gateway

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/network/policy"
	"ramet.dev/ramet/internal/network/relay"
	"ramet.dev/ramet/internal/network/wire"
)

// idleDatagrams is how long a flow of UDP stays open on which nothing passes.
const idleDatagrams = 2 * time.Minute

// maxDatagram is the most bytes of one.
const maxDatagram = 64 << 10

// runUDP passes datagrams to a server and back.
func (f *flow) runUDP() {
	q := policy.Question{Protocol: policy.UDP, Address: f.address, Port: f.port, Names: f.s.names.Of(f.address)}
	d := f.s.judge(f, q)
	f.rule = d.String()
	switch {
	case f.port == namePort:
		f.deny("name servers are asked in questions", "", wire.CodeProhibited)
		return
	case !d.Allowed:
		f.deny(f.rule, f.s.current().WouldAllow(&q), codeFor(d))
		return
	}
	logAllowed(f)
	c, err := f.s.g.cfg.Dial(f.ctx, "udp", netip.AddrPortFrom(f.address, f.port).String())
	if err != nil {
		f.verdict(codeOf(err))
		return
	}
	defer c.Close()
	server, is := c.(*net.UDPConn)
	if !is {
		f.verdict(wire.CodeHostUnreachable)
		return
	}
	guest, err := f.open()
	if err != nil {
		return
	}
	defer guest.Close()
	p := datagrams{f: f}
	up, down := p.pass(guest, server)
	if p.refused.Load() {
		f.tell(wire.Reset)
	}
	f.logEnd(up, down)
}

// datagrams passes packets in both directions.
type datagrams struct {
	f       *flow
	last    atomic.Int64 // when one passed, in nanoseconds of Unix
	refused atomic.Bool  // the server's host says that nobody listens
}

var datagramBuffers = sync.Pool{New: func() any { return new([maxDatagram]byte) }}

// packetSocket is one end: *net.UDPConn, or the pair.
type packetSocket interface {
	syscall.Conn
	SetReadDeadline(time.Time) error
	Write(b []byte) (int, error)
}

// pass returns when an end has ended, nothing passed for long or the flow was cut.
func (p *datagrams) pass(guest *os.File, server *net.UDPConn) (up, down int64) {
	p.last.Store(time.Now().UnixNano())
	stop := func() {
		past := time.Unix(1, 0)
		_ = guest.SetReadDeadline(past) // errors say that they are closed
		_ = server.SetReadDeadline(past)
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		// Its own goroutine, as a direction may wait for the other's end to be writable.
		idle := time.NewTicker(idleDatagrams / 4)
		defer idle.Stop()
		for {
			select {
			case <-idle.C:
				if time.Since(time.Unix(0, p.last.Load())) < idleDatagrams {
					continue
				}
			case <-p.f.ctx.Done():
			case <-done:
			}
			stop()
			return
		}
	})
	var once sync.Once
	end := func() { once.Do(func() { close(done) }) }
	wg.Go(func() { defer end(); up = p.direction(guest, server, true) })
	wg.Go(func() { defer end(); down = p.direction(server, guest, false) })
	wg.Wait()
	return up, down
}

// direction passes packets until from has ended.
func (p *datagrams) direction(from, to packetSocket, fromGuest bool) (bytes int64) {
	limit := relay.Limiter(p.f.s.down)
	if fromGuest {
		limit = p.f.s.up
	}
	raw, err := from.SyscallConn()
	if err != nil {
		return 0
	}
	for {
		var b *[maxDatagram]byte
		var n int
		var rerr error
		err := raw.Read(func(fd uintptr) bool {
			b = datagramBuffers.Get().(*[maxDatagram]byte)
			n, _, rerr = unix.Recvfrom(int(fd), b[:], unix.MSG_DONTWAIT)
			if errors.Is(rerr, unix.EAGAIN) {
				datagramBuffers.Put(b)
				b = nil
				return false
			}
			return true
		})
		if err == nil && rerr == nil && n > 0 {
			if err := limit.WaitN(p.f.ctx, n); err != nil {
				return bytes
			}
			_, err = to.Write(b[:n])
			if errors.Is(err, unix.EMSGSIZE) || errors.Is(err, unix.ENOBUFS) {
				err = nil // it is lost, as datagrams are
			}
			bytes += int64(n)
			p.last.Store(time.Now().UnixNano())
		}
		if b != nil {
			datagramBuffers.Put(b)
		}
		switch {
		case errors.Is(rerr, unix.ECONNREFUSED), errors.Is(err, unix.ECONNREFUSED):
			p.refused.Store(true)
			return bytes
		case err != nil || rerr != nil, fromGuest && n == 0: // a datagram of a server may be empty
			return bytes
		}
	}
}
