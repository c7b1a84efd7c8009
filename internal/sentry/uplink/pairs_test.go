package uplink

import (
	"bytes"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	gvisor "gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"

	"ramet.dev/ramet/internal/network/wire"
	"ramet.dev/ramet/internal/sentry/paired"
)

// rawEnd is a socket of a guest, as a test uses it.
func (b *sandbox) rawEnd() *end {
	b.t.Helper()
	e := newOuterEnd()
	ep, err := b.s.NewEndpoint(tcp.ProtocolNumber, ipv4.ProtocolNumber, &e.wq)
	if err != nil {
		b.t.Fatal(err)
	}
	e.begin(ep)
	return e
}

// connected is a rawEnd that is connected to the outside.
func (b *sandbox) connected() *end {
	b.t.Helper()
	e := b.rawEnd()
	addr, _ := full(outside)
	if _, started := e.ep.Connect(addr).(*tcpip.ErrConnectStarted); !started {
		b.t.Fatal("it does not begin to connect")
	}
	b.awaitReady(e, waiter.WritableEvents)
	if err := e.ep.LastError(); err != nil {
		b.t.Fatal(err)
	}
	return e
}

func (b *sandbox) awaitReady(e *end, mask waiter.EventMask) {
	b.t.Helper()
	deadline := time.Now().Add(timeout)
	for e.ep.Readiness(mask) == 0 {
		if time.Now().After(deadline) {
			b.t.Fatalf("it is not ready for %#x", mask)
		}
		select {
		case <-e.readable.C:
		case <-e.writable.C:
		case <-time.After(10 * time.Millisecond): // the events may have been for the other
		}
	}
}

// eventually waits until what nothing tells of is true.
func (b *sandbox) eventually(what string, is func() bool) {
	b.t.Helper()
	for deadline := time.Now().Add(timeout); !is(); {
		if time.Now().After(deadline) {
			b.t.Fatal(what)
		}
		time.Sleep(time.Millisecond)
	}
}

// TestEndsOfPairs checks what the gateway hears when a guest closes its socket.
func TestEndsOfPairs(t *testing.T) {
	for name, c := range map[string]struct {
		server func(g *gateway, fl uint32, f *os.File) // before the guest closes it
		guest  func(b *sandbox, e *end)
		after  func(g *gateway, fl uint32, f *os.File) // then
		want   wire.Kind
	}{
		"the server ended first": {
			server: func(g *gateway, fl uint32, f *os.File) { g.finish(fl, f) },
			guest:  func(b *sandbox, e *end) { b.awaitReady(e, waiter.EventRdHUp) },
			want:   wire.Closed,
		},
		"the guest ended first": {after: func(g *gateway, fl uint32, f *os.File) {
			if got, err := io.ReadAll(f); len(got) != 0 || err != nil { // the guest's end shows first
				g.t.Errorf("the guest sent %q, %v", got, err)
			}
			g.finish(fl, f)
		}, want: wire.Closed},
		"bytes come after the end": {after: func(g *gateway, _ uint32, f *os.File) {
			if _, err := f.Write([]byte("late")); err != nil {
				g.t.Error(err)
			}
		}, want: wire.Reset},
		"bytes are not read": {
			server: func(g *gateway, _ uint32, f *os.File) {
				if _, err := f.Write([]byte("early")); err != nil {
					g.t.Error(err)
				}
			},
			guest: func(b *sandbox, e *end) { b.awaitReady(e, waiter.ReadableEvents) },
			want:  wire.Reset,
		},
		"it is reset": {
			guest: func(_ *sandbox, e *end) {
				e.ep.SocketOptions().SetLinger(tcpip.LingerOption{Enabled: true})
			},
			want: wire.Reset,
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newSandbox(t)
			closed := make(chan struct{})
			g := &gateway{}
			g.stream = func(fl uint32, _ wire.Message, f *os.File) {
				defer f.Close()
				if c.server != nil {
					c.server(g, fl, f)
				}
				<-closed
				if c.after != nil {
					c.after(g, fl, f)
				}
			}
			b.connect(g)
			e := b.connected()
			if c.guest != nil {
				c.guest(b, e)
			}
			e.Close()
			close(closed)
			g.await(c.want)
			b.eventually("it is counted until its descriptor is closed", func() bool {
				p := paired.Of(b.s)
				return p.Streams() == 0 && p.Open() == 0
			})
		})
	}
}

// TestLastBytesOfAGuest: what a guest sent before it closed its socket arrives.
func TestLastBytesOfAGuest(t *testing.T) {
	b := newSandbox(t)
	got := make(chan []byte, 1)
	g := &gateway{}
	g.stream = func(fl uint32, _ wire.Message, f *os.File) {
		defer f.Close()
		all, err := io.ReadAll(f)
		if err != nil {
			t.Error(err)
		}
		got <- all
		g.finish(fl, f)
	}
	b.connect(g)
	data := noise(100 << 10)
	e := b.connected()
	if err := e.Write(data, nil); err != nil {
		t.Fatal(err)
	}
	e.Close()
	if all := <-got; !bytes.Equal(all, data) {
		t.Errorf("%d of %d bytes arrived, or others", len(all), len(data))
	}
	g.await(wire.Closed)
}

// TestTheEndWaitsForTheWord: the end of the pair is none before the gateway has said so.
func TestTheEndWaitsForTheWord(t *testing.T) {
	b := newSandbox(t)
	say := make(chan struct{})
	g := &gateway{}
	g.stream = func(fl uint32, _ wire.Message, f *os.File) {
		if _, err := f.Write([]byte("all")); err != nil {
			t.Error(err)
		}
		f.Close()
		<-say
		g.send(wire.Message{Kind: wire.Closed, Flow: fl})
	}
	b.connect(g)
	e := b.connected()
	defer e.Close()
	b.awaitReady(e, waiter.ReadableEvents)
	buf := make([]byte, 10)
	if n, err := e.Read(buf, nil); string(buf[:n]) != "all" || err != nil {
		t.Errorf("%q, %v", buf[:n], err)
	}
	if ready := e.ep.Readiness(waiter.ReadableEvents | waiter.EventRdHUp | waiter.EventHUp); ready != 0 {
		t.Errorf("it is ready for %#x before the gateway's word", ready)
	}
	w := tcpip.SliceWriter(buf)
	if _, err := e.ep.Read(&w, tcpip.ReadOptions{}); !wouldBlock(err) {
		t.Errorf("before the gateway's word: %v", err)
	}
	close(say)
	b.awaitReady(e, waiter.ReadableEvents)
	if n, err := e.Read(buf, nil); n != 0 || err != io.EOF {
		t.Errorf("%d, %v", n, err)
	}
}

func wouldBlock(err tcpip.Error) bool {
	_, is := err.(*tcpip.ErrWouldBlock)
	return is
}

// TestPairsLeaveNothing: descriptors are closed on both sides.
func TestPairsLeaveNothing(t *testing.T) {
	b := newSandbox(t)
	g := &gateway{}
	g.stream = echoes(g)
	b.connect(g)
	b.mustDial(outside).Close()
	count := func() int {
		fds, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(fds)
	}
	p := paired.Of(b.s)
	settle := func() { b.eventually("connections are left", func() bool { return p.Streams() == 0 }) }
	settle()
	before := count()
	for range 1000 {
		c := b.mustDial(outside)
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
	settle()
	b.eventually("descriptors are left", func() bool { return count() <= before }) // the gateway's goroutines close its own
	if now := count(); now > before || p.Streams() != 0 || p.Open() != 0 {
		t.Errorf("%d descriptors, were %d; %d streams, %d open", now, before, p.Streams(), p.Open())
	}
	b.up.exchange.mu.Lock()
	defer b.up.exchange.mu.Unlock()
	if n := len(b.up.exchange.flows); n != 0 {
		t.Errorf("%d flows are left", n)
	}
}

// TestConnectAgain: a socket whose connection was refused can be connected.
func TestConnectAgain(t *testing.T) {
	b := newSandbox(t)
	var allowed atomic.Bool
	g := &gateway{judge: func(wire.Message) (wire.Code, bool) {
		if allowed.Load() {
			return wire.CodeOK, true
		}
		return wire.CodeRefused, true
	}}
	g.stream = echoes(g)
	b.connect(g)
	e := b.rawEnd()
	defer e.Close()
	addr, _ := full(outside)
	if _, started := e.ep.Connect(addr).(*tcpip.ErrConnectStarted); !started {
		t.Fatal("it does not begin")
	}
	if _, under := e.ep.Connect(addr).(*tcpip.ErrAlreadyConnecting); !under && e.ep.Readiness(waiter.EventHUp) == 0 {
		t.Error("it is not being connected")
	}
	b.awaitReady(e, waiter.EventHUp)
	if err := e.ep.SocketOptions().GetLastError(); err == nil || !strings.Contains(err.String(), "refused") {
		t.Errorf("SO_ERROR is %v", err)
	}
	allowed.Store(true)
	if _, started := e.ep.Connect(addr).(*tcpip.ErrConnectStarted); !started {
		t.Fatal("it does not begin again")
	}
	b.awaitReady(e, waiter.WritableEvents)
	if err := e.ep.Connect(addr); err != nil {
		t.Errorf("connected: %v", err)
	}
	if _, is := e.ep.Connect(addr).(*tcpip.ErrAlreadyConnected); !is {
		t.Error("it may be connected twice")
	}
	if err := e.ep.Listen(1); err == nil {
		t.Error("a connected socket listens")
	}
	if at, err := e.ep.GetLocalAddress(); err != nil || at.Addr != networks[0].address.Address || at.Port == 0 {
		t.Errorf("it is at %v, %v", at, err)
	}
	if to, err := e.ep.GetRemoteAddress(); err != nil || to.Addr != addr.Addr || to.Port != addr.Port {
		t.Errorf("it is connected to %v, %v", to, err)
	}
}

// TestFiltersOfTheGuest: a guest that has rules for packets has its packets filtered.
func TestFiltersOfTheGuest(t *testing.T) {
	b := newSandbox(t)
	g := &gateway{}
	g.stream = echoes(g)
	b.connect(g)
	b.mustDial(outside).Close()
	tables := b.s.IPTables()
	tables.ForceReplaceTable(0, tables.GetTable(0, false), false)
	b.mustDial(outside).Close()
	if b.up.line.outer.Load() == nil {
		t.Error("its connections pass its filters by")
	}
}

// TestOpenPairsAreTaken out of a guest that is saved, and are there again afterwards.
func TestOpenPairsAreTaken(t *testing.T) {
	b := newSandbox(t)
	g := &gateway{}
	g.stream = echoes(g)
	b.connect(g)
	e := b.connected()
	defer e.Close()
	at, ok := e.ep.(*paired.End).OpenAt()
	if !ok {
		t.Fatal("it is not open")
	}
	giveBack := takePort(b.s, e.ep.(*paired.End).Endpoint.(*tcp.Endpoint))
	other := b.rawEnd()
	if err := other.ep.Bind(at); err != nil {
		t.Errorf("its port is not free in a child: %v", err)
	}
	other.Close()
	giveBack()
	again := b.rawEnd()
	defer again.Close()
	if err := again.ep.Bind(at); err == nil {
		t.Error("its port is free")
	}
	b.gate.LockIO()
	TakeConnections(gvisor.Background(), b.s, func() []*kernel.SocketRecord { return nil }, nil)()
	b.gate.UnlockIO()
	if err := e.Write([]byte("x"), nil); err != nil {
		t.Error(err)
	}
	if n, err := e.Read(make([]byte, 9), make(chan struct{})); n != 1 || err != nil {
		t.Errorf("%d bytes came back: %v", n, err)
	}
}
