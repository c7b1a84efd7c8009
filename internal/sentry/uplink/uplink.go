package uplink

import (
	"context"
	"os"
	"sync"
	"sync/atomic"
	gotime "time"

	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/network/wire"
	"ramet.dev/ramet/internal/sentry/gate"
	"ramet.dev/ramet/internal/sentry/paired"
)

// gatewayTime is how long a flow that begins waits for a gateway: one that ended comes back.
const gatewayTime = 5 * gotime.Second

// Guest is what an uplink needs of the sandbox.
type Guest interface {
	// NetStack returns the guest's network stack.
	NetStack() *stack.Stack
}

// Uplink is the way of one guest to the outside, which it may have or not.
type Uplink struct {
	guest Guest
	gate  *gate.Gate
	// dial connects to a port that a process of the guest listens on, for streams from outside.
	dial func(port uint16, gone <-chan struct{}) (Stream, error)

	changing sync.Mutex // one change at a time
	mu       sync.Mutex
	line     *line         // nil without an interface
	exchange *exchange     // nil without a gateway
	changed  chan struct{} // closed when exchange changes
	inbound  sync.WaitGroup
}

// New returns the uplink of a guest that has no interface.
func New(guest Guest, g *gate.Gate, dial func(port uint16, gone <-chan struct{}) (Stream, error)) *Uplink {
	return &Uplink{guest: guest, gate: g, dial: dial, changed: make(chan struct{})}
}

// Connected reports whether the guest has an interface.
func (u *Uplink) Connected() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.line != nil
}

// Connect lets the guest reach the gateway at the other end of channel, which it takes over, in
// place of another one: the flows of that are reset. link is plugged into the guest's stack
// already; nil plugs in a new one unless there is one.
func (u *Uplink) Connect(link *Link, channel *os.File) error {
	u.changing.Lock()
	defer u.changing.Unlock()
	x, err := newExchange(channel)
	if err != nil {
		return api.Errorf(api.CodeInvalid, "channel of the network: %w", err)
	}
	if !u.Connected() {
		if link == nil {
			link = NewLink()
			if err := u.plugIn(link); err != nil {
				x.ch.Close()
				return err
			}
		}
		l := newLine(link, u.gate, u.awaitExchange)
		u.mu.Lock()
		u.line = l
		u.mu.Unlock()
	}
	u.use(x)
	u.inbound.Go(func() { x.serve(u.deliver) })
	if p := paired.Of(u.guest.NetStack()); p != nil {
		p.Use(u.guest.NetStack(), way{u}, NIC)
	}
	return nil
}

// Inherit is Connect for a child, whose link is plugged in. Nothing runs yet. Questions to name
// servers that were under way are refused: their answers come to the parent, and a resolver would
// wait for its own for seconds.
func (u *Uplink) Inherit(link *Link, channel *os.File) error {
	if err := u.Connect(link, channel); err != nil {
		return err
	}
	for _, id := range questionsOf(u.guest.NetStack()) {
		if o := u.line.make(); o != nil {
			id = stack.TransportEndpointID{LocalAddress: id.RemoteAddress, LocalPort: id.RemotePort, RemoteAddress: id.LocalAddress, RemotePort: id.LocalPort}
			o.unreachable(id, header.UDPProtocolNumber, quotedPorts(id), wire.CodeRefused)
		}
	}
	return nil
}

func (u *Uplink) plugIn(link *Link) error {
	u.gate.BeginIO()
	defer u.gate.EndIO()
	return link.PlugIn(u.guest.NetStack())
}

// Disconnect takes the interface from the guest. All flows are reset.
func (u *Uplink) Disconnect() error {
	u.changing.Lock()
	defer u.changing.Unlock()
	u.use(nil)
	u.inbound.Wait()
	u.mu.Lock()
	l := u.line
	u.line = nil
	u.mu.Unlock()
	if l == nil {
		return nil
	}
	l.close()
	u.gate.BeginIO()
	defer u.gate.EndIO()
	return Unplug(u.guest.NetStack())
}

// use puts x in the place of the exchange that there is, which ends.
func (u *Uplink) use(x *exchange) {
	u.mu.Lock()
	old := u.exchange
	u.exchange = x
	close(u.changed)
	u.changed = make(chan struct{})
	u.mu.Unlock()
	if old != nil {
		old.close()
	}
}

// awaitExchange returns the exchange. It waits for one that lives until stop, but not long.
func (u *Uplink) awaitExchange(stop <-chan struct{}) *exchange {
	timeout := gotime.NewTimer(gatewayTime)
	defer timeout.Stop()
	for {
		u.mu.Lock()
		x, changed := u.exchange, u.changed
		u.mu.Unlock()
		if x != nil {
			select {
			case <-x.over:
			default:
				return x
			}
		}
		select {
		case <-changed:
		case <-stop:
			return nil
		case <-timeout.C:
			return nil
		}
	}
}

// deliver connects a stream from outside with a port of the guest.
func (u *Uplink) deliver(fl *flow, port uint16, f *os.File) {
	u.inbound.Go(func() {
		s, err := u.dial(port, fl.x.over)
		if err != nil {
			f.Close()
			fl.tell(wire.Refused)
			fl.forget()
			return
		}
		fl.tell(wire.Accepted)
		runRelay(fl, s, f)
	})
}

// line is a link that is plugged in, and what is at its far end.
type line struct {
	link    *Link
	gate    *gate.Gate
	gateway func(stop <-chan struct{}) *exchange

	making   sync.Once
	outer    atomic.Pointer[outer] // made with the first packet
	outward  worker
	homeward worker
}

// worker is a goroutine that ends when it is told.
type worker struct {
	cancel context.CancelFunc
	done   chan struct{}
}

func startWorker(run func(context.Context)) worker {
	ctx, cancel := context.WithCancel(context.Background())
	w := worker{cancel, make(chan struct{})}
	go func() {
		defer close(w.done)
		run(ctx)
	}()
	return w
}

func (w *worker) stop() {
	w.cancel()
	<-w.done
}

func newLine(link *Link, g *gate.Gate, gateway func(stop <-chan struct{}) *exchange) *line {
	l := &line{link: link, gate: g, gateway: gateway}
	l.outward = startWorker(func(ctx context.Context) { carry(ctx, link.guest.Endpoint, l.leave) })
	return l
}

// leave hands a packet of the guest to the outer stack.
func (l *line) leave(protocol tcpip.NetworkProtocolNumber, pkt *stack.PacketBuffer) {
	o := l.make()
	if o == nil {
		return
	}
	if id, ok := connectsToMany(protocol, pkt); ok {
		o.unreachable(id, header.TCPProtocolNumber, quotedPorts(id), wire.CodeNetUnreachable)
		return
	}
	l.link.outer.InjectInbound(protocol, pkt)
}

// make returns the outer stack, which it makes if there is none yet; nil if that fails.
func (l *line) make() *outer {
	l.making.Do(func() {
		o, err := newOuter(l.link.outer, l.gateway)
		if err != nil {
			log.Warningf("Network of the sandbox: %v", err)
			return
		}
		l.homeward = startWorker(func(ctx context.Context) { carry(ctx, l.link.outer, l.arrive) })
		l.outer.Store(o)
	})
	return l.outer.Load()
}

// arrive hands a packet to the guest, but not while its kernel is saved.
func (l *line) arrive(protocol tcpip.NetworkProtocolNumber, pkt *stack.PacketBuffer) {
	l.gate.BeginIO()
	defer l.gate.EndIO()
	l.link.guest.arrive(protocol, pkt)
}

// close resets the connections of the guest. The exchange has ended.
func (l *line) close() {
	if o := l.outer.Load(); o != nil {
		o.close() // while packets are carried: some of its goroutines wait for them
	}
	l.outward.stop()
	o := l.outer.Load()
	if o == nil {
		return
	}
	o.close()
	l.homeward.stop()
	o.destroy()
}
