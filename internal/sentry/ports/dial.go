package ports

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
	"ramet.dev/ramet/internal/sentry/gate"
)

const (
	// maxConns is how many connections from outside a sandbox has at once.
	maxConns = 512
	// dialPoll is how often it is looked whether a process listens.
	dialPoll = 20 * gotime.Millisecond
	// handshakeTime is how long a connection to a port that is listened on may
	// take: its queue may be full.
	handshakeTime = 10 * gotime.Second
)

// Conn is a connection from outside to a port of the sandbox: an end of TCP in
// the sandbox's own network stack, as a process in it would have. One goroutine
// may read and another may write.
type Conn struct {
	ports              *Ports
	ep                 tcpip.Endpoint
	wq                 *waiter.Queue
	readable, writable *gate.Notifier
	onRead, onWrite    waiter.Entry
}

// Dial connects to a port once a process listens on it, and waits for that as
// long as wait says. It gives up when gone is closed.
func (ps *Ports) Dial(port uint16, wait gotime.Duration, gone <-chan struct{}) (*Conn, error) {
	until := gotime.Now().Add(wait)
	for {
		addrs, err := ps.listeners(port)
		if err != nil {
			return nil, err
		}
		for _, addr := range addrs {
			var c *Conn
			if c, err = ps.connect(netip.AddrPortFrom(addr, port), gone); err == nil {
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
			return nil, gate.ErrGone
		case <-gotime.After(min(dialPoll, left)):
		}
	}
}

// listeners returns the addresses to reach a port by.
func (ps *Ports) listeners(port uint16) ([]netip.Addr, error) {
	if err := ps.gate.EnterRunning(); err != nil {
		return nil, err
	}
	defer ps.gate.Leave()
	ps.gate.BeginIO()
	defer ps.gate.EndIO()
	var list []netip.Addr
	for _, record := range ps.k.ListSockets() {
		p := ps.portOf(record.Sock)
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
			// It may listen on IPv4 and IPv6, or on IPv6 only.
			addr = netip.IPv6Loopback()
		}
		list = append(list, addr)
	}
	slices.SortFunc(list, netip.Addr.Compare)
	return slices.Compact(list), nil
}

func (ps *Ports) connect(addr netip.AddrPort, gone <-chan struct{}) (*Conn, error) {
	c := &Conn{ports: ps, wq: &waiter.Queue{}, readable: gate.NewNotifier(), writable: gate.NewNotifier()}
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
		case <-c.writable.C:
		case <-gone:
			c.Abort()
			return nil, gate.ErrGone
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
	ps := c.ports
	ps.gate.BeginIO()
	defer ps.gate.EndIO()
	s := ps.k.NetStack()
	ep, err := s.NewEndpoint(tcp.ProtocolNumber, protocol, c.wq)
	if err != nil {
		return connectError(addr, err)
	}
	c.ep = ep
	if !ps.conns.add(c.ep) {
		ep.Close()
		return api.Errorf(api.CodeLimit, "the sandbox has %d connections from outside", maxConns)
	}
	c.wq.EventRegister(&c.onRead)
	c.wq.EventRegister(&c.onWrite)
	ep.SocketOptions().SetDelayOption(false) // as proxies do
	err = ep.Connect(tcpip.FullAddress{Addr: tcpip.AddrFromSlice(addr.Addr().AsSlice()), Port: addr.Port()})
	if _, started := err.(*tcpip.ErrConnectStarted); err != nil && !started {
		ps.conns.remove(c.ep)
		ep.Close()
		return connectError(addr, err)
	}
	return nil
}

func connectError(addr netip.AddrPort, err tcpip.Error) error {
	return api.Errorf(api.CodeUnavailable, "connect to %s in the sandbox: %s", addr, err)
}

// connected reports whether the handshake is over, and its error.
func (c *Conn) connected(addr netip.AddrPort) (bool, error) {
	c.ports.gate.BeginIO()
	defer c.ports.gate.EndIO()
	if err := c.ep.LastError(); err != nil {
		return true, connectError(addr, err)
	}
	return c.ep.Readiness(waiter.WritableEvents)&waiter.WritableEvents != 0, nil
}

var errReset = api.Errorf(api.CodeUnavailable, "the sandbox reset the connection")

// Await waits until Read has something to say, until stop is closed.
func (c *Conn) Await(stop <-chan struct{}) error {
	for !c.readableNow() {
		select {
		case <-c.readable.C:
		case <-stop:
			return gate.ErrGone
		}
	}
	return nil
}

func (c *Conn) readableNow() bool {
	c.ports.gate.BeginIO()
	defer c.ports.gate.EndIO()
	return c.ep.Readiness(waiter.ReadableEvents|waiter.EventHUp|waiter.EventErr) != 0
}

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
		case <-c.readable.C:
		case <-stop:
			return 0, gate.ErrGone
		}
	}
}

func (c *Conn) readNow(buf []byte) (int, tcpip.Error) {
	c.ports.gate.BeginIO()
	defer c.ports.gate.EndIO()
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
		case <-c.writable.C:
		case <-stop:
			return gate.ErrGone
		}
	}
	return nil
}

func (c *Conn) writeNow(data []byte) (int, tcpip.Error) {
	c.ports.gate.BeginIO()
	defer c.ports.gate.EndIO()
	n, err := c.ep.Write(bytes.NewReader(data), tcpip.WriteOptions{})
	return int(n), err
}

// CloseWrite tells the sandbox that nothing more comes.
func (c *Conn) CloseWrite() {
	c.ports.gate.BeginIO()
	defer c.ports.gate.EndIO()
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
	c.ports.gate.BeginIO()
	defer c.ports.gate.EndIO()
	c.wq.EventUnregister(&c.onRead)
	c.wq.EventUnregister(&c.onWrite)
	c.ports.conns.remove(c.ep)
	how(c.ep)
}
