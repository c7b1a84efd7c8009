package gateway

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/network/policy"
	"ramet.dev/ramet/internal/network/relay"
	"ramet.dev/ramet/internal/network/wire"
)

// flow is one that a sandbox asked for, or that is delivered to it.
type flow struct {
	s        *sandbox
	id       uint32
	protocol wire.Protocol
	address  netip.Addr // invalid if it is delivered
	port     uint16
	began    time.Time

	ctx    context.Context
	cancel context.CancelCauseFunc
	// judged asks a policy whether the flow may stay open; nil before one was asked. It is guarded
	// by the lock of the sandbox.
	judged func(*policy.Policy) bool
	// judgedThere asks the policy of the other sandbox, of a flow between two; nil for others. It
	// is set like judged, and called without a lock.
	judgedThere func() bool

	// counts is set if the flow counts for what the sandbox shares with others: of one between two
	// sandboxes only one end does. It is guarded by the lock of the sandbox.
	counts   bool
	answered chan bool // of a flow that is delivered: whether the guest accepts it

	rule, name string      // that decided, and of the server; of the goroutine of the flow
	listed     atomic.Bool // the log says that it was allowed, and not how it ended

	connecting sync.RWMutex // read-locked while a connection is being made

	mu    sync.Mutex
	relay *relay.Relay  // guarded by mu
	gone  bool          // the sentry has ended the flow; guarded by mu
	ended chan struct{} // closed when gone is set
	told  bool          // the sentry was told of the end; guarded by mu
}

func newFlow(s *sandbox, id uint32, p wire.Protocol, addr netip.Addr, port uint16) *flow {
	f := &flow{s: s, id: id, protocol: p, address: addr, port: port, began: time.Now(), answered: make(chan bool, 1), ended: make(chan struct{})}
	f.ctx, f.cancel = context.WithCancelCause(s.ctx)
	return f
}

// run serves the flow until it has ended.
func (f *flow) run() {
	switch target := f.s.g.at(f.address); {
	case f.protocol == wire.UDP:
		f.runUDP()
	case f.port == namePort:
		f.serveNames(f.ctx)
	case target != nil:
		f.deliver(target)
	default:
		f.runTCP()
	}
}

// namePort is where name servers listen. Whatever the address is, the gateway answers.
const namePort = 53

// cut ends the flow, from any goroutine. It does not block.
func (f *flow) cut(cause error) {
	f.cancel(cause)
	f.mu.Lock()
	defer f.mu.Unlock()
	if cause == errReset || cause == errGone {
		defer f.setGone() // when the relay knows
	}
	if f.relay != nil {
		f.relay.Abort(cause)
	}
}

// dialFor makes a connection of f to a server, or gives it up when f is cut.
func dialFor(ctx context.Context, f *flow, dial dialer) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	// Package http dials on when who asked for the connection has left.
	stop := context.AfterFunc(f.ctx, cancel)
	defer stop()
	f.connecting.RLock()
	defer f.connecting.RUnlock()
	if err := context.Cause(f.ctx); err != nil {
		return nil, err
	}
	c, err := dial(ctx)
	if err == nil && context.Cause(f.ctx) != nil {
		c.Close()
		return nil, context.Cause(f.ctx)
	}
	return c, err
}

// revoked are flows that a policy does not allow any more.
type revoked []*flow

// wait waits until connections that flows were making have been given up: none reaches its server later. The
// caller holds no lock.
func (r revoked) wait() {
	for _, f := range r {
		f.connecting.Lock()
		//lint:ignore SA2001 it was only waited for
		f.connecting.Unlock()
	}
}

// guestGone says that the guest has closed its end.
func (f *flow) guestGone() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.setGone()
	if f.relay != nil {
		f.relay.GuestGone()
	} else {
		f.cancel(errGone)
	}
}

// setGone notes that the sentry has ended the flow. The caller holds mu.
func (f *flow) setGone() {
	if !f.gone {
		f.gone = true
		close(f.ended)
	}
}

// wordTimeout is how long a sentry may take to say how a flow has ended whose pair it has closed.
const wordTimeout = 5 * time.Second

// awaitWord waits until the sentry, which has closed its end of the pair, has said how the flow has
// ended, or has ended itself: the host closes the pairs and the channel of a sentry in any order.
func (f *flow) awaitWord(ctx context.Context) {
	late := time.NewTimer(wordTimeout)
	defer late.Stop()
	select {
	case <-f.ended:
	case <-ctx.Done():
	case <-late.C:
	}
}

// answer says whether the guest accepts a flow that is delivered.
func (f *flow) answer(accepted bool) {
	select {
	case f.answered <- accepted:
	default: // a second answer
	}
}

// free makes the number of the flow free again.
func (f *flow) free() {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	if f.s.flows[f.id] == f {
		delete(f.s.flows, f.id)
	}
}

// end forgets the flow.
func (f *flow) end() {
	if f.listed.Load() { // nothing has passed
		f.logEnd(0, 0)
	}
	f.free()
	f.cancel(nil)
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	delete(f.s.open, f)
	if f.counts {
		f.counts = false
		f.s.shares.Give()
	}
}

// deny refuses the flow before it was opened.
func (f *flow) deny(rule, would string, code wire.Code) {
	logDenied(f, rule, would)
	f.verdict(code)
}

// verdict tells the sentry that the flow was not opened.
func (f *flow) verdict(code wire.Code) {
	f.free()
	f.mu.Lock()
	gone := f.gone
	f.mu.Unlock()
	if !gone {
		_ = f.s.send(&wire.Message{Kind: wire.Verdict, Flow: f.id, Code: code}, -1) // the channel has ended
	}
}

// open gives the sentry one end of a pair, and returns the other.
func (f *flow) open() (*os.File, error) {
	theirs, ours, err := wire.FlowPair(f.protocol)
	if err != nil {
		f.verdict(wire.CodeNetUnreachable)
		return nil, err
	}
	defer theirs.Close()
	if err = context.Cause(f.ctx); err == nil {
		err = control(theirs, func(fd int) error {
			return f.s.send(&wire.Message{Kind: wire.Verdict, Flow: f.id}, fd)
		})
	} else {
		f.verdict(wire.CodeRefused)
	}
	if err != nil {
		ours.Close()
		return nil, err
	}
	return ours, nil
}

// control calls f with the descriptor of a file, which stays in the poller: Fd would make it block.
func control(file *os.File, f func(fd int) error) error {
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var ferr error
	err = raw.Control(func(fd uintptr) { ferr = f(int(fd)) })
	return errors.Join(err, ferr)
}

// accept is open for what serves the flow as a connection.
func accept(f *flow) (*guestConn, error) {
	end, err := f.open()
	if err != nil {
		return nil, err
	}
	return connOf(f, end)
}

// tell sends the last word about the stream to the sentry, once: that the server has ended it, or has
// reset it. It comes before the end of the pair shows.
func (f *flow) tell(kind wire.Kind) {
	f.mu.Lock()
	silent := f.told && kind == wire.Closed || f.gone
	f.told = true
	f.mu.Unlock()
	if !silent {
		_ = f.s.send(&wire.Message{Kind: kind, Flow: f.id}, -1) // the channel has ended
	}
}

func (f *flow) tellClosed() { f.tell(wire.Closed) }

// carry runs the relay between the ends of a flow until it has ended.
func (f *flow) carry(guest, server relay.Socket, opts relay.Options) error {
	opts.Up, opts.Down = &f.s.up, &f.s.down
	opts.ServerEnded, opts.GuestHungUp = f.tellClosed, f.awaitWord
	r, err := relay.New(guest, server, opts)
	if err != nil {
		f.tell(wire.Reset)
		return err
	}
	defer r.Close()
	f.attach(r)
	err = r.Run()
	up, down := r.Bytes()
	if err != nil {
		f.tell(wire.Reset)
	} else {
		f.tellClosed()
	}
	if err != errDenied { // which has a line of its own
		f.logEnd(up, down)
	}
	return err
}

// attach makes r what carries the flow; what happened to the flow before reaches it.
func (f *flow) attach(r *relay.Relay) {
	f.mu.Lock()
	f.relay = r
	gone := f.gone
	f.mu.Unlock()
	switch cause := context.Cause(f.ctx); {
	case f.s.ctx.Err() != nil: // its guest may live on, and keeps its end of the pair
		r.Abort(errGone)
	case cause != nil && cause != errGone:
		r.Abort(cause)
	case gone:
		r.GuestGone()
	}
}

// entry returns the line of the log about the flow.
func (f *flow) entry(v api.NetworkVerdict) api.NetworkLogEntry {
	e := api.NetworkLogEntry{Flow: uint64(f.id), Name: f.name, Port: f.port, Protocol: "tcp", Verdict: v, Rule: f.rule}
	if f.protocol == wire.UDP {
		e.Protocol = "udp"
	}
	if f.address.IsValid() {
		e.Address = f.address.String()
	}
	return e
}

// logAllowed tells that the flow is allowed. Another line tells of its end, however it ends.
func logAllowed(f *flow) {
	f.listed.Store(true)
	f.s.log(f.entry(api.NetworkAllowed))
}

// logDenied tells that the flow is denied; its end, if it was allowed until then.
func logDenied(f *flow, rule, would string) {
	f.listed.Store(false)
	e := f.entry(api.NetworkDenied)
	e.Rule, e.WouldAllow = rule, would
	f.s.log(e)
}

func (f *flow) logEnd(up, down int64) {
	f.listed.Store(false)
	e := f.entry(api.NetworkAllowed)
	e.BytesOut, e.BytesIn = up, down
	e.DurationMS = max(float64(time.Since(f.began))/float64(time.Millisecond), 0.001)
	f.s.g.counters.bytesOut.Add(up)
	f.s.g.counters.bytesIn.Add(down)
	f.s.log(e)
}

// codeOf returns how the guest learns that a server was not reached.
func codeOf(err error) wire.Code {
	for errno, code := range map[unix.Errno]wire.Code{
		unix.ECONNREFUSED: wire.CodeRefused, unix.EHOSTUNREACH: wire.CodeHostUnreachable, unix.ENETUNREACH: wire.CodeNetUnreachable,
		unix.EACCES: wire.CodeProhibited, unix.EPERM: wire.CodeProhibited, unix.ETIMEDOUT: wire.CodeTimedOut,
	} {
		if errors.Is(err, errno) {
			return code
		}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return wire.CodeTimedOut
	}
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return wire.CodeTimedOut
	}
	return wire.CodeHostUnreachable
}

// codeFor returns how the guest learns that the policy denies a flow.
func codeFor(d policy.Decision) wire.Code {
	if d.Failure == policy.Refused {
		return wire.CodeRefused
	}
	return wire.CodeProhibited
}
