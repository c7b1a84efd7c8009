package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/network/dns"
	"ramet.dev/ramet/internal/network/policy"
	"ramet.dev/ramet/internal/network/wire"
)

const (
	// maxPending bounds the questions, and the echoes, of a sandbox that are under way; more are
	// lost, as datagrams are.
	maxPending = 128
	// dialsPerSecond bounds how many flows a sandbox asks for: its channel is read no faster.
	dialsPerSecond = 2000
	// sendTimeout bounds how long a sentry may read nothing. It is ended then: what waits for it
	// would wait for ever.
	sendTimeout = 30 * time.Second
)

// Why flows are cut.
var (
	errGone     = errors.New("the sandbox has ended")
	errReset    = errors.New("the guest reset the flow")
	errReplaced = errors.New("the policy does not allow it any more")
	errProtocol = errors.New("the sentry does not keep to the protocol")
)

// sandbox is one registered sandbox.
type sandbox struct {
	g       *Gateway
	channel *wire.Channel
	address netip.Addr // where others of the tenant reach it
	names   *dns.Names
	dns     *dns.Client
	dials   *rate.Limiter
	up      pace // bytes of all flows
	down    pace
	pending chan struct{}
	// treatments is nil if the gateway has no proxy.
	treatments Treatments

	ctx    context.Context // ends with the channel
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup // of flows, questions and echoes
	done   chan struct{}

	mu           sync.Mutex
	registration Registration   // guarded by mu
	policy       *policy.Policy // guarded by mu
	// peer is the sandbox as rules of others name it. It changes under mu, and is read without.
	peer    atomic.Pointer[policy.Peer]
	flows   map[uint32]*flow // guarded by mu
	open    map[*flow]bool   // with those whose number is free again; guarded by mu
	inbound uint32           // last number; guarded by mu
}

func newSandbox(g *Gateway, r Registration, p *policy.Policy, t Treatments, ch *wire.Channel) *sandbox {
	s := &sandbox{
		g: g, channel: ch, treatments: t, names: dns.NewNames(), registration: r, policy: p,
		dials:   rate.NewLimiter(dialsPerSecond, dialsPerSecond),
		pending: make(chan struct{}, maxPending), flows: map[uint32]*flow{}, open: map[*flow]bool{}, done: make(chan struct{}),
	}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	s.dns = dns.NewClient(g.cfg.Upstream, siblings{g, r.Tenant}, s.names, names{p}, p.Limits().DNSPerS)
	if g.cfg.Via != nil {
		s.dns.SetStandIn(g.cfg.standIn)
	}
	s.setRate(p)
	s.peer.Store(peerOf(&r))
	return s
}

// reg returns what is known of the sandbox.
func (s *sandbox) reg() Registration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.registration
}

// peerOf returns a sandbox as rules of others name it.
func peerOf(r *Registration) *policy.Peer { return &policy.Peer{Name: r.Name, Metadata: r.Metadata} }

func (s *sandbox) setRate(p *policy.Policy) {
	s.up.set(p.Limits().RateMbit)
	s.down.set(p.Limits().RateMbit)
}

// serve reads the channel until it ends, and then ends all that belongs to the sandbox.
func (s *sandbox) serve() {
	defer close(s.done)
	defer func() {
		r := s.reg()
		s.g.cfg.Log.Ended(r.sandbox())
	}()
	var err error
	for err == nil {
		err = s.channel.Receive(s.handle)
	}
	if errors.Is(err, errProtocol) {
		s.g.counters.protocolErrors.Add(1)
	}
	s.cancel(errGone)
	s.channel.Close()
	s.mu.Lock()
	for f := range s.open {
		f.cut(errGone)
	}
	s.mu.Unlock()
	s.wg.Wait()
	s.closeTreatments()
}

// handle begins what a message asks for. It never waits for anything but the limit of flows.
func (s *sandbox) handle(m wire.Message, _ *os.File) error {
	switch m.Kind {
	case wire.Dial:
		if err := s.dials.Wait(s.ctx); err != nil {
			return err
		}
		return s.dial(m)
	case wire.Question:
		message := append([]byte(nil), m.Payload...)
		s.begin(func() { s.question(m.Flow, message) })
	case wire.Echo:
		payload := append([]byte(nil), m.Payload...)
		s.begin(func() { s.echo(m.Flow, outer(m.Address), payload) })
	default:
		return s.tellFlow(m)
	}
	return nil
}

// begin runs f if not too much is under way.
func (s *sandbox) begin(f func()) {
	select {
	case s.pending <- struct{}{}:
		s.wg.Go(func() {
			defer func() { <-s.pending }()
			f()
		})
	default:
		s.g.counters.dropped.Add(1)
	}
}

// dial begins a flow, if the sandbox may have one more.
func (s *sandbox) dial(m wire.Message) error {
	f := newFlow(s, m.Flow, m.Protocol, outer(m.Address), m.Port)
	s.mu.Lock()
	taken := s.flows[m.Flow] != nil
	most := s.policy.Limits().Connections
	full := len(s.open) >= most
	if !taken && !full {
		s.flows[m.Flow] = f
		s.open[f] = true
	}
	s.mu.Unlock()
	switch {
	case taken:
		return fmt.Errorf("flow %d is open: %w", m.Flow, errProtocol)
	case full:
		f.deny(fmt.Sprintf("limits.connections: %d", most), "", wire.CodeRefused)
		return nil
	}
	s.wg.Go(func() {
		defer f.end()
		f.run()
	})
	return nil
}

// tellFlow passes what the sentry says about a flow to it. Flows may have ended meanwhile.
func (s *sandbox) tellFlow(m wire.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.flows[m.Flow]
	if f == nil {
		return nil
	}
	switch m.Kind {
	case wire.Accepted, wire.Refused:
		f.answer(m.Kind == wire.Accepted)
		if m.Kind == wire.Refused {
			delete(s.flows, m.Flow)
		}
	case wire.Closed:
		delete(s.flows, m.Flow)
		f.guestGone()
	case wire.Reset:
		delete(s.flows, m.Flow)
		f.cut(errReset)
	}
	return nil
}

// judge decides about a flow and records what was judged, so that a policy that comes later is asked
// about it.
func (s *sandbox) judge(f *flow, q policy.Question) policy.Decision {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.policy.Judge(&q)
	if d.Allowed {
		f.judged = func(p *policy.Policy) bool { return p.Keeps(&q, d.Treatment) }
	}
	return d
}

// current returns the policy in force.
func (s *sandbox) current() *policy.Policy {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.policy
}

// replace puts a registration in force and cuts the flows that it does not allow, and those that
// policies of other sandboxes do not allow under its new name. With an error nothing has changed.
func (s *sandbox) replace(r Registration, p *policy.Policy) error {
	between, err := s.put(r, p)
	for _, f := range between {
		if !f.judgedThere() {
			f.cut(errReplaced)
		}
	}
	return err
}

// put is replace for what the policy of s alone decides. It returns the flows from and to other
// sandboxes: whose lock is not taken while that of s is held.
func (s *sandbox) put(r Registration, p *policy.Policy) (between []*flow, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.ID, r.Tenant = s.registration.ID, s.registration.Tenant // which never change
	if s.treatments != nil {
		if err := s.treatments.Replace(&r, p); err != nil {
			return nil, err
		}
	}
	s.dns.SetPolicy(names{p}, p.Limits().DNSPerS)
	s.setRate(p)
	if was, is := s.registration.sandbox(), r.sandbox(); was != is { // the sentry of a promoted child
		s.g.cfg.Log.Began(is)
		s.g.cfg.Log.Ended(was)
	}
	s.registration, s.policy = r, p
	s.peer.Store(peerOf(&r))
	for f := range s.open {
		switch {
		case f.judged != nil && !f.judged(p):
			f.cut(errReplaced)
		case f.judgedThere != nil:
			between = append(between, f)
		}
	}
	return between, nil
}

func (s *sandbox) closeTreatments() {
	if s.treatments != nil {
		s.treatments.Close()
	}
}

// send tells the sentry something. A sentry that does not listen is ended.
func (s *sandbox) send(m *wire.Message, fd int) error {
	err := s.channel.SetWriteDeadline(time.Now().Add(sendTimeout))
	if err == nil {
		err = s.channel.Send(m, fd)
	}
	if err != nil {
		s.channel.Close()
	}
	return err
}

// log tells of a decision.
func (s *sandbox) log(e api.NetworkLogEntry) {
	switch {
	case e.Verdict == api.NetworkDenied:
		s.g.counters.denied.Add(1)
	case e.Verdict == api.NetworkHeld && e.DurationMS == 0:
		s.g.counters.held.Add(1)
	case e.DurationMS == 0:
		s.g.counters.allowed.Add(1)
	}
	r := s.reg()
	e.Sandbox = r.sandbox()
	if e.At.IsZero() {
		e.At = time.Now()
	}
	s.g.cfg.Log.Add(e)
}

// test judges without a flow. A name is judged as if it had been looked up, at a public address.
func (s *sandbox) test(host string, protocol policy.Protocol, port uint16) (api.NetworkTestResult, error) {
	p := s.current()
	q := policy.Question{Protocol: protocol, Port: port}
	addr, err := netip.ParseAddr(host)
	if api.IsHostName(host) {
		addr, err = hostAddress, nil
	}
	addr = outer(addr)
	if err != nil {
		name, ok := policy.CanonicalName(host)
		if !ok {
			return api.NetworkTestResult{}, api.Invalid("host", "%q is neither an address nor a name", host)
		}
		if d := p.JudgeName(name); !d.Allowed {
			return api.NetworkTestResult{Rule: d.String(), WouldAllow: p.WouldAllowName(name)}, nil
		}
		addr, q.Names, q.Seen, q.Host = anyAddress, []string{name}, true, name
	}
	q.Address = addr
	d := p.Judge(&q)
	r := api.NetworkTestResult{Allowed: d.Allowed, Rule: d.String()}
	if !d.Allowed {
		r.WouldAllow = p.WouldAllow(&q)
	}
	return r, nil
}
