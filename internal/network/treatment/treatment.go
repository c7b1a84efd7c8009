package treatment

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/network/ca"
	"ramet.dev/ramet/internal/network/gateway"
	"ramet.dev/ramet/internal/network/held"
	"ramet.dev/ramet/internal/network/policy"
	"ramet.dev/ramet/internal/network/proxy"
	"ramet.dev/ramet/internal/network/replay"
	"ramet.dev/ramet/internal/network/secrets"
	"ramet.dev/ramet/internal/storage/hostfs"
)

// Config says what treatments work with.
type Config struct {
	// FS and HeldDir are where requests are held. NoHold says why there is no directory: then names
	// whose writes are held are not reached.
	FS      hostfs.FS
	HeldDir string
	NoHold  string
	// Held and Recorded bound what is kept of a sandbox, and of the branches of a fork.
	Held     held.Limits
	Recorded replay.Limits
	// Roots are the authorities of servers; nil is those of the host.
	Roots *x509.CertPool
	// Own reports whether an address is one of the host.
	Own func(netip.Addr) bool
	// Reach connects to a port of a name as a policy lets it, within the bounds of a tenant.
	Reach func(ctx context.Context, tenant string, p *policy.Policy, name string, port uint16) (net.Conn, error)
}

// Proxy treats the requests of all sandboxes. It is safe for concurrent use.
type Proxy struct {
	cfg     Config
	queue   *held.Queue // nil if there is none
	noQueue error       // why

	ctx  context.Context // ends with the Proxy
	stop context.CancelFunc
	work sync.WaitGroup // releases

	mu     sync.Mutex
	closed bool
	http   *proxy.Proxy // made with the first flow; guarded by mu
	// sandboxes are those that are registered; those that came last are at the end.
	sandboxes []*sandbox // guarded by mu
	// lent are registrations for which requests of a sandbox are released, by its id.
	lent        map[string][]*state           // guarded by mu
	authorities map[[sha256.Size]byte]*shared // guarded by mu
	groups      map[groupKey]*group           // guarded by mu
}

// shared is the authority of a tree, for its sandboxes.
type shared struct {
	*ca.Authority
	key  [sha256.Size]byte
	uses int
}

// groupKey names a group of branches.
type groupKey struct{ tenant, group string }

// group is the branches of a fork that see one world.
type group struct {
	key      groupKey
	recorder *replay.Recorder
	branches map[string]int // by id of the sandbox: how many registrations there are
}

// New reads the requests that are held. A directory that cannot be read is no error: requests are not
// held then, and those in it wait.
func New(cfg Config) *Proxy {
	p := &Proxy{cfg: cfg, lent: map[string][]*state{}, authorities: map[[sha256.Size]byte]*shared{}, groups: map[groupKey]*group{}}
	p.ctx, p.stop = context.WithCancel(context.Background())
	if cfg.HeldDir == "" {
		p.noQueue = api.Errorf(api.CodeUnavailable, "requests cannot be held: %s", cfg.NoHold)
		return p
	}
	var err error
	if p.queue, err = held.Open(cfg.FS, cfg.HeldDir, p, cfg.Held); err != nil {
		p.queue, p.noQueue = nil, api.Errorf(api.CodeUnavailable, "requests cannot be held: %w", err)
	}
	return p
}

// NoHold returns why requests cannot be held, or nil.
func (p *Proxy) NoHold() error { return p.noQueue }

// Close ends what is under way. All sandboxes were closed before.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.closed = true
	http := p.http
	p.mu.Unlock()
	p.stop()
	if p.queue != nil {
		p.queue.Close()
	}
	p.work.Wait()
	if http == nil {
		return nil
	}
	return http.Close()
}

var errClosed = api.Errorf(api.CodeUnavailable, "the gateway ends")

// server returns what speaks HTTP.
func (p *Proxy) server() (*proxy.Proxy, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, errClosed
	}
	if p.http == nil {
		p.http = proxy.New(proxy.Config{Roots: p.cfg.Roots})
	}
	return p.http, nil
}

// state is a registration in a form that requests are served from.
type state struct {
	id      string // of the registration
	sandbox string
	tenant  string
	policy  *policy.Policy
	rules   map[string]*proxy.Rule // by the pattern of a treatment
	// authority and group are nil if there is none.
	authority *shared
	group     *group
}

// sandboxOf returns the sandbox of a registration, which is its id unless it names one.
func sandboxOf(r *gateway.Registration) string { return cmp.Or(r.Sandbox, r.ID) }

// newState makes the rules of a registration. Authority and group are acquired, until drop.
func (p *Proxy) newState(r *gateway.Registration, compiled *policy.Policy) (*state, error) {
	st := &state{id: r.ID, sandbox: sandboxOf(r), tenant: r.Tenant, policy: compiled}
	if !compiled.TreatsRequests() {
		return st, nil
	}
	given := make([]proxy.Secret, len(r.Secrets))
	for i, s := range r.Secrets {
		given[i] = proxy.Secret{Name: s.Name, Value: s.Value, Placeholder: s.Placeholder, Binding: s.Binding}
	}
	st.rules = map[string]*proxy.Rule{}
	records := false
	for _, t := range compiled.Treatments() {
		rule, err := p.newRule(t, given)
		if err != nil {
			return nil, err
		}
		st.rules[t.Pattern] = rule
		records = records || t.Record
	}
	var err error
	if st.authority, err = p.acquireAuthority(r.Authority); err != nil {
		return nil, err
	}
	if records && r.RecordGroup != "" {
		st.group = p.acquireGroup(groupKey{r.Tenant, r.RecordGroup}, st.sandbox)
	}
	return st, nil
}

// newRule makes the rule of a treatment. One that needs something that is not there lets nothing pass.
func (p *Proxy) newRule(t *policy.Treatment, given []proxy.Secret) (*proxy.Rule, error) {
	text := "rules." + t.Pattern
	if t.Hold != "" && p.queue == nil {
		return proxy.Closed(text, errors.New("its writes are held, and the gateway cannot hold requests")), nil
	}
	if t.Secret != nil {
		for _, name := range t.Secret.Names() {
			if !has(given, name) {
				return proxy.Closed(text, fmt.Errorf("there is no secret %q", name)), nil
			}
		}
	}
	rule, err := proxy.NewRule(t.Pattern, t.NetworkTreatment, given)
	if err != nil {
		return nil, api.Invalid("network.rules."+t.Pattern, "%v", err)
	}
	return rule, nil
}

func has(given []proxy.Secret, name string) bool {
	for i := range given {
		if given[i].Name == name && !given[i].Value.IsZero() {
			return true
		}
	}
	return false
}

// rule returns the rule of a treatment.
func (st *state) rule(pattern string) *proxy.Rule {
	if r := st.rules[pattern]; r != nil {
		return r
	}
	return proxy.Closed("rules."+pattern, errors.New("the policy treats the name in another way now"))
}

// acquireAuthority returns the authority of a tree, which is made once for all of its sandboxes.
func (p *Proxy) acquireAuthority(text secrets.Value) (*shared, error) {
	if text.IsZero() {
		return nil, nil
	}
	key := sha256.Sum256([]byte(text.Reveal()))
	p.mu.Lock()
	defer p.mu.Unlock()
	a := p.authorities[key]
	if a == nil {
		parsed, err := ca.Parse([]byte(text.Reveal()))
		if err != nil {
			return nil, api.Errorf(api.CodeInvalid, "the authority of the tree cannot be read")
		}
		a = &shared{Authority: parsed, key: key}
		p.authorities[key] = a
	}
	a.uses++
	return a, nil
}

// acquireGroup returns a group of branches with one more.
func (p *Proxy) acquireGroup(key groupKey, branch string) *group {
	p.mu.Lock()
	defer p.mu.Unlock()
	g := p.groups[key]
	if g == nil {
		g = &group{key: key, recorder: replay.NewRecorder(p.cfg.Recorded), branches: map[string]int{}}
		p.groups[key] = g
	}
	g.branches[branch]++
	return g
}

// drop gives back what newState has acquired. Flows that still have it go on with it.
func (p *Proxy) drop(st *state) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if a := st.authority; a != nil {
		if a.uses--; a.uses == 0 {
			delete(p.authorities, a.key)
		}
	}
	g := st.group
	if g == nil {
		return
	}
	if g.branches[st.sandbox]--; g.branches[st.sandbox] == 0 {
		delete(g.branches, st.sandbox)
		g.recorder.Forget(st.sandbox)
	}
	if len(g.branches) == 0 {
		delete(p.groups, g.key)
	}
}
