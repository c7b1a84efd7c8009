package guest

import (
	"bytes"
	"io"
	"net/netip"
	"slices"
	gotime "time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"

	"ramet.dev/ramet/api"
)

const (
	// maxConns is how many connections from outside a sandbox has at once.
	maxConns = 512
	// dialPoll is how often it is looked whether somebody listens.
	dialPoll = 20 * gotime.Millisecond
	// handshakeTime is how long a connection to a port that is listened on may
	// take: its queue may be full.
	handshakeTime = 10 * gotime.Second
)

// Conn is a connection from outside to a port of the sandbox: an end of TCP in
// the sandbox's own network stack, as a process in it would have. One goroutine
// may read and one may write.
type Conn struct {
	g                  *Guest
	ep                 tcpip.Endpoint
	wq                 *waiter.Queue
	readable, writable *alarm
	onRead, onWrite    waiter.Entry
}

// Dial connects to a port once somebody listens on it, and waits for that as
// long as wait says. It gives up when gone is closed.
func (g *Guest) Dial(port uint16, wait gotime.Duration, gone <-chan struct{}) (*Conn, error) {
	until := gotime.Now().Add(wait)
	for {
		addrs, err := g.listeners(port)
		if err != nil {
			return nil, err
		}
		for _, addr := range addrs {
			var c *Conn
			if c, err = g.connect(netip.AddrPortFrom(addr, port), gone); err == nil {
				return c, nil
			}
		}
		if err == nil {
			err = api.Errorf(api.CodeUnavailable, "nothing in the sandbox listens on TCP port %d", port)
		}
		left := gotime.Until(until)
		if left <= 0 || api.CodeOf(err) != api.CodeUnavailable {
			return nil, err
		}
		select {
		case <-gone:
			return nil, errCallerGone
		case <-gotime.After(min(dialPoll, left)):
		}
	}
}

var errCallerGone = api.Errorf(api.CodeCanceled, "the caller went away")

// listeners returns the addresses to reach a port by.
func (g *Guest) listeners(port uint16) ([]netip.Addr, error) {
	g.ops.RLock()
	defer g.ops.RUnlock()
	if g.paused {
		return nil, errPaused
	}
	g.io.RLock()
	defer g.io.RUnlock()
	var list []netip.Addr
	for _, record := range g.k.ListSockets() {
		p := g.portOf(record.Sock)
		if p == nil || p.Port != int(port) || p.Protocol != "tcp" {
			continue
		}
		addr, err := netip.ParseAddr(p.Address)
		switch {
		case err != nil:
			continue
		case !addr.IsUnspecified():
		case addr.Is4():
			addr = netip.AddrFrom4([4]byte{127, 0, 0, 1})
		default:
			// It may listen on both, or on this one only.
			addr = netip.IPv6Loopback()
		}
		list = append(list, addr)
	}
	slices.SortFunc(list, netip.Addr.Compare)
	return slices.Compact(list), nil
}

func (g *Guest) connect(addr netip.AddrPort, gone <-chan struct{}) (*Conn, error) {
	c := &Conn{g: g, wq: &waiter.Queue{}, readable: newAlarm(), writable: newAlarm()}
	c.onRead.Init(c.readable, waiter.ReadableEvents|waiter.EventHUp|waiter.EventErr)
	c.onWrite.Init(c.writable, waiter.WritableEvents|waiter.EventHUp|waiter.EventErr)
	protocol := ipv4.ProtocolNumber
	if addr.Addr().Is6() {
		protocol = ipv6.ProtocolNumber
	}
	if err := c.begin(protocol, addr); err != nil {
		return nil, err
	}
	timeout := gotime.NewTimer(handshakeTime)
	defer timeout.Stop()
	for {
		select {
		case <-c.writable.c:
		case <-gone:
			c.Abort()
			return nil, errCallerGone
		case <-timeout.C:
			c.Abort()
			return nil, api.Errorf(api.CodeTimeout, "whoever listens on port %d accepts no connections", addr.Port())
		}
		if done, err := c.connected(addr); done {
			if err != nil {
				c.Abort()
				return nil, err
			}
			return c, nil
		}
	}
}

// begin makes the end and sends the first packet.
func (c *Conn) begin(protocol tcpip.NetworkProtocolNumber, addr netip.AddrPort) error {
	g := c.g
	g.io.RLock()
	defer g.io.RUnlock()
	s := g.netStack()
	ep, err := s.NewEndpoint(tcp.ProtocolNumber, protocol, c.wq)
	if err != nil {
		return connectError(addr, err)
	}
	c.ep = ep
	if !g.holdConn(c.ep) {
		ep.Close()
		return api.Errorf(api.CodeLimit, "the sandbox has %d connections from outside", maxConns)
	}
	c.wq.EventRegister(&c.onRead)
	c.wq.EventRegister(&c.onWrite)
	ep.SocketOptions().SetDelayOption(false) // as proxies do
	err = ep.Connect(tcpip.FullAddress{Addr: tcpip.AddrFromSlice(addr.Addr().AsSlice()), Port: addr.Port()})
	if _, started := err.(*tcpip.ErrConnectStarted); err != nil && !started {
		g.letConnGo(c.ep)
		ep.Close()
		return connectError(addr, err)
	}
	return nil
}

func connectError(addr netip.AddrPort, err tcpip.Error) error {
	return api.Errorf(api.CodeUnavailable, "connect to %s in the sandbox: %s", addr, err)
}

// connected reports whether the handshake is over, and with what.
func (c *Conn) connected(addr netip.AddrPort) (bool, error) {
	c.g.io.RLock()
	defer c.g.io.RUnlock()
	if err := c.ep.LastError(); err != nil {
		return true, connectError(addr, err)
	}
	return c.ep.Readiness(waiter.WritableEvents)&waiter.WritableEvents != 0, nil
}

var errReset = api.Errorf(api.CodeUnavailable, "the sandbox reset the connection")

// Read reads what the sandbox sends, until stop is closed. io.EOF says that
// nothing more comes.
func (c *Conn) Read(buf []byte, stop <-chan struct{}) (int, error) {
	for {
		n, err := c.readNow(buf)
		switch err.(type) {
		case nil:
			return n, nil
		case *tcpip.ErrClosedForReceive:
			return 0, io.EOF
		case *tcpip.ErrWouldBlock:
		default:
			return 0, errReset
		}
		select {
		case <-c.readable.c:
		case <-stop:
			return 0, errCallerGone
		}
	}
}

func (c *Conn) readNow(buf []byte) (int, tcpip.Error) {
	c.g.io.RLock()
	defer c.g.io.RUnlock()
	w := tcpip.SliceWriter(buf)
	res, err := c.ep.Read(&w, tcpip.ReadOptions{})
	if res.Count > 0 {
		c.ep.ModerateRecvBuf(res.Count)
	}
	return res.Count, err
}

// Write sends all of data. It blocks while the sandbox does not read, until stop
// is closed.
func (c *Conn) Write(data []byte, stop <-chan struct{}) error {
	written := 0
	for written < len(data) {
		n, err := c.writeNow(data[written:])
		written += n
		if n > 0 {
			continue
		}
		if _, full := err.(*tcpip.ErrWouldBlock); !full {
			return errReset
		}
		select {
		case <-c.writable.c:
		case <-stop:
			return errCallerGone
		}
	}
	return nil
}

func (c *Conn) writeNow(data []byte) (int, tcpip.Error) {
	c.g.io.RLock()
	defer c.g.io.RUnlock()
	n, err := c.ep.Write(bytes.NewReader(data), tcpip.WriteOptions{})
	return int(n), err
}

// CloseWrite tells the sandbox that nothing more comes.
func (c *Conn) CloseWrite() {
	c.g.io.RLock()
	defer c.g.io.RUnlock()
	_ = c.ep.Shutdown(tcpip.ShutdownWrite) // it may be over
}

// Close ends the connection; what was written still arrives.
func (c *Conn) Close() { c.end(tcpip.Endpoint.Close) }

// Abort ends the connection at once.
func (c *Conn) Abort() {
	c.end(func(ep tcpip.Endpoint) {
		ep.Abort()
		ep.Close()
	})
}

func (c *Conn) end(how func(tcpip.Endpoint)) {
	c.g.io.RLock()
	defer c.g.io.RUnlock()
	c.wq.EventUnregister(&c.onRead)
	c.wq.EventUnregister(&c.onWrite)
	c.g.letConnGo(c.ep)
	how(c.ep)
}
