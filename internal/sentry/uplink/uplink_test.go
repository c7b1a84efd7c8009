package uplink

import (
	"bytes"
	"context"
	"crypto/sha256"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/transport/icmp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"

	"ramet.dev/ramet/internal/network/wire"
)

// noise returns bytes that are the same in each run.
func noise(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{7}).Read(b) // it never fails
	return b
}

// echoes sends back what comes, until its end.
func echoes(g *gateway) func(uint32, wire.Message, *os.File) {
	return func(fl uint32, _ wire.Message, f *os.File) {
		defer f.Close()
		_, _ = io.Copy(f, f) // the guest may reset it
		g.finish(fl, f)
		_, _ = io.Copy(io.Discard, f)
	}
}

func TestStreamsGoBothWays(t *testing.T) { bothWays(t, testStreamsGoBothWays) }

func testStreamsGoBothWays(t *testing.T, b *sandbox) {
	g := &gateway{}
	g.stream = echoes(g)
	b.connect(g)
	data := noise(5 << 20)
	for _, to := range []netip.AddrPort{outside, outside6} {
		c := b.mustDial(to)
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := c.Write(data); err != nil {
				t.Error(err)
			}
			if err := c.CloseWrite(); err != nil {
				t.Error(err)
			}
		})
		back, err := io.ReadAll(c)
		wg.Wait()
		if err != nil || sha256.Sum256(back) != sha256.Sum256(data) {
			t.Errorf("%v: %d of %d bytes came back, or others: %v", to, len(back), len(data), err)
		}
		c.Close()
		if m := g.await(wire.Dial); m.Protocol != wire.TCP || m.Port != 80 || m.Address != outside.Addr() {
			t.Errorf("the gateway was asked for %+v", m)
		}
	}
	g.await(wire.Closed)
}

func TestDenials(t *testing.T) { bothWays(t, testDenials) }

func testDenials(t *testing.T, b *sandbox) {
	codes := map[uint16]wire.Code{
		1: wire.CodeRefused, 2: wire.CodeHostUnreachable, 3: wire.CodeNetUnreachable, 4: wire.CodeProhibited, 5: wire.CodeTimedOut,
	}
	b.connect(&gateway{judge: func(m wire.Message) (wire.Code, bool) { return codes[m.Port], true }})
	for port, want := range map[uint16][2]string{
		1: {"connection was refused", "connection was refused"},
		2: {"no route to host", "no route to host"},
		3: {"network is unreachable", "network is unreachable"},
		4: {"connection was refused", "connection was refused"},
		5: {"no route to host", "no route to host"},
	} {
		for i, to := range []netip.Addr{outside.Addr(), outside6.Addr()} {
			began := time.Now()
			_, err := b.dial(netip.AddrPortFrom(to, port))
			if err == nil || !strings.Contains(err.Error(), want[i]) {
				t.Errorf("port %d of %v: %v, want %s", port, to, err, want[i])
			}
			if d := time.Since(began); d > time.Second { // the first SYN is not sent again before
				t.Errorf("port %d of %v: it took %v", port, to, d)
			}
		}
	}
}

// TestConnectionsToManyAreRefused at once: a stack drops their packets.
func TestConnectionsToManyAreRefused(t *testing.T) {
	b := newSandbox(t)
	b.connect(&gateway{judge: func(wire.Message) (wire.Code, bool) { return wire.CodeOK, true }})
	for _, to := range []string{"224.0.0.1", "239.1.2.3", "255.255.255.255", "10.0.2.255", "ff05::1"} {
		began := time.Now()
		_, err := b.dial(netip.AddrPortFrom(netip.MustParseAddr(to), 80))
		if err == nil || !strings.Contains(err.Error(), "unreachable") && !strings.Contains(err.Error(), "no route") {
			t.Errorf("%s: %v", to, err)
		}
		if d := time.Since(began); d > time.Second {
			t.Errorf("%s: it took %v", to, d)
		}
	}
}

func TestFloodOfConnections(t *testing.T) {
	b := newSandbox(t)
	g := b.connect(&gateway{judge: func(m wire.Message) (wire.Code, bool) { return wire.CodeRefused, m.Port == 1 }})
	defer g.ch.Close()
	addr, protocol := full(netip.AddrPortFrom(outside.Addr(), 5))
	for range maxStreams {
		go func() {
			_, _ = gonet.DialTCPWithBind(context.Background(), b.s, tcpip.FullAddress{Addr: networks[0].address.Address}, addr, protocol)
		}() // it ends with the channel
	}
	deadline := time.Now().Add(timeout)
	for {
		l := b.up.line.outer.Load()
		if l != nil && l.streams.Load() == maxStreams {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the flood does not arrive")
		}
		runtime.Gosched()
	}
	if _, err := b.dialBound(netip.AddrPortFrom(outside.Addr(), 5)); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("one more connection: %v", err)
	}
}

func TestResetsOfServers(t *testing.T) { bothWays(t, testResetsOfServers) }

func testResetsOfServers(t *testing.T, b *sandbox) {
	data := noise(1 << 20)
	g := &gateway{}
	g.stream = func(fl uint32, _ wire.Message, f *os.File) {
		defer f.Close()
		if _, err := f.Write(data); err != nil {
			t.Error(err)
		}
		g.send(wire.Message{Kind: wire.Reset, Flow: fl})
	}
	b.connect(g)
	c := b.mustDial(outside)
	defer c.Close()
	n, err := io.Copy(io.Discard, c)
	if err == nil || !strings.Contains(err.Error(), "reset by peer") {
		t.Errorf("after %d of %d bytes: %v", n, len(data), err)
	}
}

// TestTheDeathOfAGatewayIsNoEnd closes pairs and channel in both orders, as the host may.
func TestTheDeathOfAGatewayIsNoEnd(t *testing.T) {
	for _, halfClosed := range []bool{false, true} {
		bothWays(t, func(t *testing.T, b *sandbox) { testTheDeathOfAGateway(t, b, halfClosed) })
	}
}

func testTheDeathOfAGateway(t *testing.T, b *sandbox, halfClosed bool) {
	die := make(chan struct{})
	g := &gateway{}
	g.stream = func(_ uint32, _ wire.Message, f *os.File) {
		if _, err := f.Write([]byte("half")); err != nil {
			t.Error(err)
		}
		<-die
		f.Close()
		g.ch.Close()
	}
	b.connect(g)
	c := b.mustDial(outside)
	if halfClosed {
		if err := c.CloseWrite(); err != nil {
			t.Fatal(err)
		}
	}
	buf := make([]byte, 4)
	if _, err := io.ReadFull(c, buf); err != nil {
		t.Fatal(err)
	}
	close(die)
	if n, err := c.Read(buf); err == nil || err == io.EOF {
		t.Errorf("after the death of the gateway: %d bytes, %v", n, err)
	}
	c.Close()
}

func TestResetsOfGuests(t *testing.T) {
	b := newSandbox(t)
	g := &gateway{stream: func(_ uint32, _ wire.Message, f *os.File) {
		defer f.Close()
		_, _ = io.Copy(io.Discard, f)
	}}
	b.connect(g)
	c := b.must(b.dialBound(outside))
	for _, ep := range outboundOf(b.s) {
		ep.Abort()
	}
	g.await(wire.Reset)
	c.Close()
}

// TestGuestThatReadsNothing measures how much of a server's data is taken from it.
func TestGuestThatReadsNothing(t *testing.T) { bothWays(t, testGuestThatReadsNothing) }

func testGuestThatReadsNothing(t *testing.T, b *sandbox) {
	wrote := make(chan int)
	g := &gateway{stream: func(_ uint32, _ wire.Message, f *os.File) {
		defer f.Close()
		total := 0
		for buf := make([]byte, 64<<10); ; {
			if err := f.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
				t.Error(err)
			}
			n, err := f.Write(buf)
			if total += n; err != nil {
				break
			}
		}
		wrote <- total
	}}
	b.connect(g)
	c := b.mustDial(outside)
	defer c.Close()
	if n := <-wrote; n > 16<<20 || n < 64<<10 {
		t.Errorf("%d KiB were taken", n>>10)
	}
}

func TestQuestions(t *testing.T) {
	b := newSandbox(t)
	b.connect(&gateway{})
	for _, server := range []string{"10.0.2.3:53", "192.0.2.1:53", "[2001:db8::1]:53"} {
		addr, protocol := full(netip.MustParseAddrPort(server))
		c, err := gonet.DialUDP(b.s, nil, &addr, protocol)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.SetDeadline(time.Now().Add(timeout)); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if _, err := c.Write([]byte("question")); err != nil {
				t.Fatal(err)
			}
			var buf [100]byte
			if n, err := c.Read(buf[:]); string(buf[:n]) != "answer to question" || err != nil {
				t.Errorf("%s: %q, %v", server, buf[:n], err)
			}
		}
		c.Close()
	}
}

func TestDatagrams(t *testing.T) {
	b := newSandbox(t)
	g := b.connect(&gateway{
		judge: func(m wire.Message) (wire.Code, bool) {
			if m.Port == 443 {
				return wire.CodeRefused, true
			}
			return wire.CodeOK, true
		},
		datagrams: func(f *os.File) {
			defer f.Close()
			buf := make([]byte, 64<<10)
			for {
				n, err := f.Read(buf)
				if err != nil || n == 0 || string(buf[:n]) == "end" {
					return
				}
				if _, err := f.Write(buf[:n]); err != nil {
					t.Error(err)
				}
			}
		},
	})
	for _, to := range []netip.AddrPort{outside, outside6} {
		addr, protocol := full(to)
		c, err := gonet.DialUDP(b.s, nil, &addr, protocol)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.SetDeadline(time.Now().Add(timeout)); err != nil {
			t.Fatal(err)
		}
		for _, size := range []int{1, 1400, 60000} {
			want := noise(size)
			if _, err := c.Write(want); err != nil {
				t.Fatal(err)
			}
			buf := make([]byte, 64<<10)
			if n, err := c.Read(buf); !bytes.Equal(buf[:n], want) || err != nil {
				t.Errorf("%v: %d of %d bytes, or others: %v", to, n, size, err)
			}
		}
		if _, err := c.Write([]byte("end")); err != nil {
			t.Fatal(err)
		}
		g.await(wire.Closed)
		c.Close()

		addr.Port = 443
		e := newOuterEnd()
		ep, terr := b.s.NewEndpoint(udp.ProtocolNumber, protocol, &e.wq)
		if terr != nil {
			t.Fatal(terr)
		}
		e.begin(ep)
		if err := ep.Connect(addr); err != nil {
			t.Fatal(err)
		}
		if _, err := ep.Write(strings.NewReader("x"), tcpip.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
		select {
		case <-e.readable.C:
		case <-time.After(timeout):
		}
		if _, refused := ep.LastError().(*tcpip.ErrConnectionRefused); !refused {
			t.Errorf("%v: a datagram to port 443 is not refused", to)
		}
		e.Close()
	}
}

// TestEchoes pings as a process does: with a datagram socket of ICMP.
func TestEchoes(t *testing.T) {
	b := newSandbox(t)
	b.connect(&gateway{judge: func(m wire.Message) (wire.Code, bool) { return wire.CodeOK, true }})
	for _, to := range []netip.AddrPort{outside, outside6} {
		addr, network := full(netip.AddrPortFrom(to.Addr(), 0))
		transport := icmp.ProtocolNumber4
		if to.Addr().Is6() {
			transport = icmp.ProtocolNumber6
		}
		for _, payload := range []string{"", "answered", strings.Repeat("large", 10000)} {
			e := newOuterEnd()
			ep, terr := b.s.NewEndpoint(transport, network, &e.wq)
			if terr != nil {
				t.Fatal(terr)
			}
			e.begin(ep)
			if err := ep.Connect(addr); err != nil {
				t.Fatal(err)
			}
			h := header.ICMPv4(make([]byte, header.ICMPv4MinimumSize))
			h.SetType(header.ICMPv4Echo)
			if transport == icmp.ProtocolNumber6 {
				header.ICMPv6(h).SetType(header.ICMPv6EchoRequest)
			}
			h.SetSequence(7)
			if _, err := ep.Write(strings.NewReader(string(h)+payload), tcpip.WriteOptions{}); err != nil {
				t.Fatal(err)
			}
			select {
			case <-e.readable.C:
			case <-time.After(timeout):
				t.Errorf("%v: nothing comes of a ping with %d bytes", to.Addr(), len(payload))
			}
			var got bytes.Buffer
			_, err := ep.Read(&got, tcpip.ReadOptions{})
			if err != nil || got.Len() != len(h)+len(payload) || got.String()[len(h):] != payload || header.ICMPv4(got.Bytes()).Sequence() != 7 {
				t.Errorf("%v: a ping with %d bytes is answered with %d: %v", to.Addr(), len(payload), got.Len(), err)
			}
			e.Close()
		}
	}
}

func TestIdleSandboxHasNoOuterStack(t *testing.T) {
	b := newSandbox(t)
	before := runtime.NumGoroutine()
	g := b.connect(&gateway{judge: func(wire.Message) (wire.Code, bool) { return wire.CodeRefused, true }})
	if n := runtime.NumGoroutine() - before; n > 3 { // one of them is the gateway's
		t.Errorf("it has %d goroutines", n)
	}
	if b.up.line.outer.Load() != nil {
		t.Error("it has an outer stack")
	}
	if _, err := b.dial(outside); err == nil {
		t.Error("connected")
	}
	g.await(wire.Dial)
	if b.up.line.outer.Load() != nil {
		t.Error("it has an outer stack after a connection that needs none")
	}
	if _, err := b.dialBound(outside); err == nil {
		t.Error("connected")
	}
	if b.up.line.outer.Load() == nil {
		t.Error("it has no outer stack after a packet")
	}
}

func TestAnotherGateway(t *testing.T) { bothWays(t, testAnotherGateway) }

func testAnotherGateway(t *testing.T, b *sandbox) {
	first := &gateway{}
	first.stream = echoes(first)
	b.connect(first)
	c := b.mustDial(outside)
	defer c.Close()
	second := &gateway{}
	second.stream = echoes(second)
	b.connect(second)
	if n, err := c.Read(make([]byte, 1)); err == nil || !strings.Contains(err.Error(), "reset by peer") {
		t.Errorf("a connection of the first gateway: %d, %v", n, err)
	}
	d := b.mustDial(outside)
	defer d.Close()
	second.await(wire.Dial)
}

// TestGatewayThatComesBack lets a connection begin while there is no gateway.
func TestGatewayThatComesBack(t *testing.T) { bothWays(t, testGatewayThatComesBack) }

func testGatewayThatComesBack(t *testing.T, b *sandbox) {
	first := b.connect(&gateway{})
	first.ch.Close()
	first.serve.Wait()
	<-b.up.exchange.over
	connected := make(chan error)
	go func() {
		c, err := b.dial(outside)
		if err == nil {
			c.Close()
		}
		connected <- err
	}()
	second := &gateway{}
	second.stream = echoes(second)
	b.connect(second)
	if err := <-connected; err != nil {
		t.Error(err)
	}
}

func TestDisconnect(t *testing.T) { bothWays(t, testDisconnect) }

func testDisconnect(t *testing.T, b *sandbox) {
	g := &gateway{judge: func(m wire.Message) (wire.Code, bool) { return wire.CodeOK, m.Port != 5 }}
	g.stream = echoes(g)
	b.connect(g)
	c := b.mustDial(outside)
	defer c.Close()
	hanging := make(chan error)
	go func() {
		_, err := b.dial(netip.AddrPortFrom(outside.Addr(), 5))
		hanging <- err
	}()
	for {
		if m := g.await(wire.Dial); m.Port == 5 {
			break
		}
		g.mu.Lock()
		g.got = g.got[1:]
		g.mu.Unlock()
	}
	if err := b.up.Disconnect(); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Read(make([]byte, 1)); err == nil || !strings.Contains(err.Error(), "reset by peer") {
		t.Errorf("a connection: %d, %v", n, err)
	}
	if err := <-hanging; err == nil {
		t.Error("a connection that was being made is made")
	}
	began := time.Now()
	if _, err := b.dial(outside); err == nil || time.Since(began) > timeout/2 {
		t.Errorf("connect without a network: %v after %v", err, time.Since(began))
	}
	if n := len(b.s.RegisteredEndpoints()); n != 0 {
		t.Errorf("%d endpoints are left", n)
	}
	if b.s.HasNIC(NIC) || b.up.Connected() {
		t.Error("the interface is left")
	}
}

func TestDeliver(t *testing.T) {
	b := newSandbox(t)
	g := b.connect(&gateway{})
	l, err := gonet.ListenTCP(b.s, tcpip.FullAddress{Port: 8000}, header.IPv4ProtocolNumber)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	served := make(chan error)
	go func() {
		c, err := l.Accept()
		if err == nil {
			_, err = io.Copy(c, c)
			c.Close()
		}
		served <- err
	}()
	f := g.deliver(wire.FirstInbound, 8000)
	defer f.Close()
	g.await(wire.Accepted)
	data := noise(1 << 20)
	go func() {
		_, _ = f.Write(data) // what comes back tells
		g.finish(wire.FirstInbound, f)
	}()
	back, err := io.ReadAll(f)
	if err != nil || !bytes.Equal(back, data) {
		t.Errorf("%d of %d bytes came back, or others: %v", len(back), len(data), err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
	g.await(wire.Closed)
	none := g.deliver(wire.FirstInbound+1, 8001)
	defer none.Close()
	if m := g.await(wire.Refused); m.Flow != wire.FirstInbound+1 {
		t.Errorf("flow %d is refused", m.Flow)
	}
}

// TestInheritedQuestions has a stack that is connected with a name server inherit its uplink.
func TestInheritedQuestions(t *testing.T) {
	b := newSandbox(t)
	link := NewLink()
	if err := link.PlugIn(b.s); err != nil {
		t.Fatal(err)
	}
	for port, refused := range map[uint16]bool{dnsPort: true, 443: false} {
		for _, to := range []netip.AddrPort{outside, outside6} {
			addr, protocol := full(netip.AddrPortFrom(to.Addr(), port))
			e := newOuterEnd()
			ep, terr := b.s.NewEndpoint(udp.ProtocolNumber, protocol, &e.wq)
			if terr != nil {
				t.Fatal(terr)
			}
			e.begin(ep)
			defer e.Close()
			if err := ep.Connect(addr); err != nil {
				t.Fatal(err)
			}
			defer func() {
				if refused {
					select {
					case <-e.readable.C:
					case <-time.After(timeout):
					}
				}
				if _, is := ep.LastError().(*tcpip.ErrConnectionRefused); is != refused {
					t.Errorf("port %d: a question under way is refused: %v", port, is)
				}
			}()
		}
	}
	mine, theirs, err := wire.Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	if err := b.up.Inherit(link, mine); err != nil {
		t.Fatal(err)
	}
}
