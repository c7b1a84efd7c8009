package gateway

import (
	"cmp"
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
	"ramet.dev/ramet/internal/network/share"
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
	rate    [2]share.Pace // of all flows, up and down
	up      share.Paces   // rate, and those of shares
	down    share.Paces
	tenant  *tenant
	root    string // of its tree
	shares  share.Shares
	pending chan struct{}
	// treatments is nil if the gateway has no proxy.
	treatments Treatments

	ctx    context.Context // ends with the channel
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup // of flows, questions and echoes
	done   chan struct{}

	mu           sync.Mutex
	registration Registration   // guarded by mu
	base         *policy.Policy // of the registration; guarded by mu
	policy       *policy.Policy // base within the bounds of the tenant; guarded by mu
	// peer is the sandbox as rules of others name it. It changes under mu, and is read without.
	peer    atomic.Pointer[policy.Peer]
	flows   map[uint32]*flow // guarded by mu
	open    map[*flow]bool   // with those whose number is free again; guarded by mu
	inbound uint32           // last number; guarded by mu
}

// newSandbox returns a sandbox of a tenant that the caller has acquired, and whose changing it holds.
// release ends the use of both.
func newSandbox(g *Gateway, of *tenant, r Registration, base *policy.Policy, t Treatments, ch *wire.Channel) *sandbox {
	p := base.Under(of.bounds)
	s := &sandbox{
		g: g, channel: ch, treatments: t, names: dns.NewNames(), registration: r, base: base, policy: p,
		tenant: of, root: cmp.Or(r.Tree, r.sandbox()), dials: rate.NewLimiter(dialsPerSecond, dialsPerSecond),
		pending: make(chan struct{}, maxPending), flows: map[uint32]*flow{}, open: map[*flow]bool{}, done: make(chan struct{}),
	}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	s.shares = g.acquireShares(of, s.root)
	s.up, s.down = share.Paces{&s.rate[0]}, share.Paces{&s.rate[1]}
	for _, shared := range s.shares {
		s.up, s.down = append(s.up, shared.Up()), append(s.down, shared.Down())
	}
	s.dns = dns.NewClient(g.cfg.Upstream, siblings{g, r.Tenant}, s.names, names{p}, p.Limits().DNSPerS)
	s.dns.SetQuota(s.shares.Ask)
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
func peerOf(r *Registration) *policy.Peer { return &policy.Peer{Name: r.Name, Labels: r.Labels} }

func (s *sandbox) setRate(p *policy.Policy) {
	for i := range s.rate {
		s.rate[i].Set(p.Limits().RateMbit)
	}
}

// release ends the use of what the sandbox shares with others.
func (s *sandbox) release() {
	s.g.releaseShares(s.tenant, s.root)
	s.g.release(s.tenant)
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
	denied := ""
	if most := s.policy.Limits().Connections; len(s.open) >= most {
		denied = fmt.Sprintf("limits.connections: %d", most)
	} else if !taken {
		denied = s.shares.Take()
	}
	if !taken && denied == "" {
		s.flows[m.Flow] = f
		s.open[f], f.counts = true, true
	}
	s.mu.Unlock()
	switch {
	case taken:
		return fmt.Errorf("flow %d is open: %w", m.Flow, errProtocol)
	case denied != "":
		f.deny(denied, "", wire.CodeRefused)
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
	between, cut, err := s.put(r, p)
	append(cut, cutDenied(between)...).wait()
	return err
}

// rebound puts the bounds of the tenant in force, as replace does a registration.
func (s *sandbox) rebound(b *policy.Bounds) {
	s.mu.Lock()
	between, cut := s.enforce(s.base.Under(b))
	s.mu.Unlock()
	append(cut, cutDenied(between)...).wait()
}

// cutDenied cuts those flows that the policy of the other sandbox does not allow, and returns them.
func cutDenied(between []*flow) (cut revoked) {
	for _, f := range between {
		if !f.judgedThere() {
			f.cut(errReplaced)
			cut = append(cut, f)
		}
	}
	return cut
}

// put is replace for what the policy of s alone decides. It returns the flows from and to other
// sandboxes, whose lock is not taken while that of s is held, and those that were cut.
func (s *sandbox) put(r Registration, base *policy.Policy) (between []*flow, cut revoked, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := &s.registration
	r.ID, r.Tenant, r.Tree = was.ID, was.Tenant, was.Tree // which never change
	if s.treatments != nil {
		if err := s.treatments.Replace(&r, base); err != nil {
			return nil, nil, err
		}
	}
	if was, is := s.registration.sandbox(), r.sandbox(); was != is { // the sentry of a promoted child
		s.g.cfg.Log.Began(is)
		s.g.cfg.Log.Ended(was)
	}
	s.registration, s.base = r, base
	s.peer.Store(peerOf(&r))
	between, cut = s.enforce(base.Under(s.tenant.bounds))
	return between, cut, nil
}

// enforce puts a policy in force and cuts the flows that it does not allow. It returns those from and
// to other sandboxes, and those that were cut. The caller holds mu.
func (s *sandbox) enforce(p *policy.Policy) (between []*flow, cut revoked) {
	s.dns.SetPolicy(names{p}, p.Limits().DNSPerS)
	s.setRate(p)
	s.policy = p
	for f := range s.open {
		switch {
		case f.judged != nil && !f.judged(p):
			f.cut(errReplaced)
			cut = append(cut, f)
		case f.judgedThere != nil:
			between = append(between, f)
		}
	}
	return between, cut
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
