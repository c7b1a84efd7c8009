package uplink

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/loopback"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
	"gvisor.dev/gvisor/pkg/waiter"

	"ramet.dev/ramet/internal/network/wire"
	"ramet.dev/ramet/internal/sentry/gate"
	"ramet.dev/ramet/internal/sentry/paired"
)

// timeout is how long a test waits for what must happen.
const timeout = 20 * time.Second

// still is the kernel of a guest that has no tasks.
type still struct{ s *stack.Stack }

func (still) Pause()                   {}
func (still) Unpause()                 {}
func (k still) NetStack() *stack.Stack { return k.s }

// gateway is a gateway in the test. Its handlers may be nil: then a message is not answered.
type gateway struct {
	t  testing.TB
	ch *wire.Channel
	// stream serves a TCP flow whose dial was judged. It owns f.
	stream func(fl uint32, m wire.Message, f *os.File)
	judge  func(m wire.Message) (wire.Code, bool) // false: no answer
	// datagrams serves a UDP flow.
	datagrams func(f *os.File)

	mu    sync.Mutex
	got   []wire.Message
	came  chan struct{} // closed when got changes
	serve sync.WaitGroup
}

// sandbox is a guest's stack with an uplink to a gateway.
type sandbox struct {
	t    testing.TB
	s    *stack.Stack
	gate *gate.Gate
	up   *Uplink
	// stacks is set if connections pass the stacks, and are not pairs.
	stacks bool
}

// bothWays runs a test with connections that pass the stacks, and with pairs.
func bothWays(t *testing.T, test func(t *testing.T, b *sandbox)) {
	for name, stacks := range map[string]bool{"pair": false, "stacks": true} {
		t.Run(name, func(t *testing.T) {
			b := newSandbox(t)
			b.stacks = stacks
			test(t, b)
		})
	}
}

func newSandbox(t testing.TB) *sandbox {
	s := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, ipv6.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{paired.NewTCP, udp.NewProtocol, NewPings4, NewPings6},
		HandleLocal:        true,
	})
	sack, moderate := tcpip.TCPSACKEnabled(true), tcpip.TCPModerateReceiveBufferOption(true)
	for _, opt := range []tcpip.SettableTransportProtocolOption{&sack, &moderate} {
		if err := s.SetTransportProtocolOption(tcp.ProtocolNumber, opt); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.CreateNICWithOptions(1, loopback.New(), stack.NICOptions{Name: "lo"}); err != nil {
		t.Fatal(err)
	}
	local := tcpip.AddressWithPrefix{Address: tcpip.AddrFrom4([4]byte{127, 0, 0, 1}), PrefixLen: 8}
	if err := s.AddProtocolAddress(1, tcpip.ProtocolAddress{Protocol: ipv4.ProtocolNumber, AddressWithPrefix: local}, stack.AddressProperties{}); err != nil {
		t.Fatal(err)
	}
	s.SetRouteTable([]tcpip.Route{{Destination: local.Subnet(), NIC: 1}})
	g := gate.New(still{s})
	b := &sandbox{t: t, s: s, gate: g}
	b.up = New(still{s}, g, b.dialPort)
	t.Cleanup(func() {
		if err := b.up.Disconnect(); err != nil {
			t.Error(err)
		}
		s.Destroy()
	})
	return b
}

// connect gives the sandbox a gateway.
func (b *sandbox) connect(g *gateway) *gateway {
	b.t.Helper()
	mine, theirs, err := wire.Pair()
	if err != nil {
		b.t.Fatal(err)
	}
	if g.ch, err = wire.GatewayChannel(theirs); err != nil {
		b.t.Fatal(err)
	}
	g.t, g.came = b.t, make(chan struct{})
	g.serve.Go(g.run)
	b.t.Cleanup(func() {
		g.ch.Close()
		g.serve.Wait()
	})
	if err := b.up.Connect(nil, mine); err != nil {
		b.t.Fatal(err)
	}
	return g
}

func (g *gateway) run() {
	for g.ch.Receive(func(m wire.Message, _ *os.File) error {
		m.Payload = append([]byte(nil), m.Payload...)
		g.note(m)
		g.answer(m)
		return nil
	}) == nil {
	}
}

func (g *gateway) note(m wire.Message) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.got = append(g.got, m)
	close(g.came)
	g.came = make(chan struct{})
}

// await returns the first message of a kind.
func (g *gateway) await(kind wire.Kind) wire.Message {
	g.t.Helper()
	deadline := time.After(timeout)
	for {
		g.mu.Lock()
		came := g.came
		for _, m := range g.got {
			if m.Kind == kind {
				g.mu.Unlock()
				return m
			}
		}
		g.mu.Unlock()
		select {
		case <-came:
		case <-deadline:
			g.t.Fatalf("no %v came", kind)
		}
	}
}

func (g *gateway) send(m wire.Message) { _ = g.ch.Send(&m, -1) }

func (g *gateway) answer(m wire.Message) {
	switch m.Kind {
	case wire.Question:
		g.send(wire.Message{Kind: wire.Answer, Flow: m.Flow, Payload: append([]byte("answer to "), m.Payload...)})
	case wire.Echo:
		code, answered := wire.CodeOK, true
		if g.judge != nil {
			code, answered = g.judge(m)
		}
		switch {
		case code != wire.CodeOK:
			g.send(wire.Message{Kind: wire.Verdict, Flow: m.Flow, Code: code})
		case answered:
			g.send(wire.Message{Kind: wire.Echoed, Flow: m.Flow, Payload: m.Payload})
		}
	case wire.Dial:
		code, answered := wire.CodeOK, true
		if g.judge != nil {
			code, answered = g.judge(m)
		}
		switch {
		case !answered:
		case code != wire.CodeOK:
			g.send(wire.Message{Kind: wire.Verdict, Flow: m.Flow, Code: code})
		default:
			g.accept(m)
		}
	}
}

func (g *gateway) accept(m wire.Message) {
	mine, theirs, err := wire.FlowPair(m.Protocol)
	if err != nil {
		g.t.Error(err)
		return
	}
	raw, err := mine.SyscallConn()
	if err != nil {
		g.t.Error(err)
		return
	}
	cerr := raw.Control(func(fd uintptr) { err = g.ch.Send(&wire.Message{Kind: wire.Verdict, Flow: m.Flow}, int(fd)) })
	if cerr != nil || err != nil {
		g.t.Error(cerr, err)
	}
	mine.Close()
	g.serve.Go(func() {
		if m.Protocol == wire.UDP {
			g.datagrams(theirs)
			return
		}
		g.stream(m.Flow, m, theirs)
	})
}

// deliver hands a stream to a port of the guest, and returns the other end.
func (g *gateway) deliver(flow uint32, port uint16) *os.File {
	g.t.Helper()
	theirs, mine, err := wire.FlowPair(wire.TCP)
	if err != nil {
		g.t.Fatal(err)
	}
	defer theirs.Close()
	raw, err := theirs.SyscallConn()
	if err != nil {
		g.t.Fatal(err)
	}
	cerr := raw.Control(func(fd uintptr) { err = g.ch.Send(&wire.Message{Kind: wire.Deliver, Flow: flow, Port: port}, int(fd)) })
	if cerr != nil || err != nil {
		g.t.Fatal(cerr, err)
	}
	return mine
}

// finish ends a flow as a server's FIN does.
func (g *gateway) finish(flow uint32, f *os.File) {
	g.send(wire.Message{Kind: wire.Closed, Flow: flow})
	raw, err := f.SyscallConn()
	if err != nil {
		g.t.Error(err)
		return
	}
	_ = raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_WR) })
}

// outside is an address that is not the guest's.
var outside = netip.MustParseAddrPort("192.0.2.9:80")

// outside6 is one of IPv6.
var outside6 = netip.MustParseAddrPort("[2001:db8::9]:80")

func full(to netip.AddrPort) (tcpip.FullAddress, tcpip.NetworkProtocolNumber) {
	protocol := header.IPv4ProtocolNumber
	if to.Addr().Is6() {
		protocol = header.IPv6ProtocolNumber
	}
	return tcpip.FullAddress{Addr: tcpip.AddrFromSlice(to.Addr().AsSlice()), Port: to.Port()}, protocol
}

func (b *sandbox) dial(to netip.AddrPort) (*gonet.TCPConn, error) {
	if b.stacks {
		return b.dialBound(to)
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	addr, protocol := full(to)
	c, err := gonet.DialContextTCP(ctx, b.s, addr, protocol)
	if err != nil {
		return nil, err
	}
	return c, c.SetDeadline(time.Now().Add(timeout))
}

// dialBound is dial for a socket that is bound to an address first: its connection passes the stacks.
func (b *sandbox) dialBound(to netip.AddrPort) (*gonet.TCPConn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	addr, protocol := full(to)
	own := networks[0].address.Address
	if to.Addr().Is6() {
		own = networks[1].address.Address
	}
	c, err := gonet.DialTCPWithBind(ctx, b.s, tcpip.FullAddress{Addr: own}, addr, protocol)
	if err != nil {
		return nil, err
	}
	return c, c.SetDeadline(time.Now().Add(timeout))
}

// dialPort connects to a port of the guest, as package ports does.
func (b *sandbox) dialPort(port uint16, gone <-chan struct{}) (Stream, error) {
	e := newOuterEnd()
	ep, err := b.s.NewEndpoint(tcp.ProtocolNumber, ipv4.ProtocolNumber, &e.wq)
	if err != nil {
		return nil, errors.New(err.String())
	}
	e.begin(ep)
	ep.Connect(tcpip.FullAddress{Addr: tcpip.AddrFrom4([4]byte{127, 0, 0, 1}), Port: port})
	for ep.Readiness(waiter.WritableEvents|waiter.EventErr|waiter.EventHUp) == 0 {
		if err := wait(e.writable, gone); err != nil {
			return nil, err
		}
	}
	if err := ep.LastError(); err != nil {
		e.Close()
		return nil, errors.New(err.String())
	}
	return e, nil
}

func (b *sandbox) mustDial(to netip.AddrPort) *gonet.TCPConn {
	b.t.Helper()
	return b.must(b.dial(to))
}

func (b *sandbox) must(c *gonet.TCPConn, err error) *gonet.TCPConn {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
	return c
}
