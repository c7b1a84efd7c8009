package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/network/dns"
	"ramet.dev/ramet/internal/network/policy"
	"ramet.dev/ramet/internal/network/secrets"
	"ramet.dev/ramet/internal/network/wire"
)

// Registration is what the gateway knows of a sandbox.
type Registration struct {
	// ID is that of the sentry: a sandbox that gets another state goes on in another sentry, and the
	// gateway serves both for a moment.
	ID string `json:"id"`
	// Sandbox is the id of the sandbox that runs in it, as the log and the names of sandboxes tell
	// it; ID if it is empty.
	Sandbox string `json:"sandbox,omitempty"`
	// Parent is the sandbox that it was forked or restored from. Its programs know addresses that
	// Parent was given for names.
	Parent string `json:"parent,omitempty"`
	// Tenant is whose it is: sandboxes reach others of the same tenant only. Tree is the root of
	// its tree.
	Tenant string `json:"tenant,omitempty"`
	Tree   string `json:"tree,omitempty"`
	// Name and Labels are those that rules about sandboxes name.
	Name   string      `json:"name,omitempty"`
	Labels api.Labels  `json:"metadata,omitempty"`
	Policy policy.Spec `json:"policy"`
	// Authority is that of the tree, with its key, as package ca writes it. It is needed if the
	// policy treats requests.
	Authority secrets.Value `json:"-"`
	// Secrets are those that the policy's treatments name. A name whose secrets are not all here is
	// not reached.
	Secrets []Secret `json:"secrets,omitempty"`
	// RecordGroup names those sandboxes of the tenant that see the same answers where the policy has
	// them recorded: the branches of a fork. Without it nothing is recorded.
	RecordGroup string `json:"record_group,omitempty"`
}

// Secret is a secret that is put into requests of a sandbox. Its value is in no JSON of it.
type Secret struct {
	Name  string        `json:"name"`
	Value secrets.Value `json:"-"`
	// Placeholder is what the guest has in its place, if it has something.
	Placeholder string          `json:"placeholder,omitempty"`
	Binding     secrets.Binding `json:"binding"`
}

// sandbox returns the id of the sandbox.
func (r *Registration) sandbox() string { return cmp.Or(r.Sandbox, r.ID) }

// Treated is a flow of HTTP whose requests are looked at, each.
type Treated struct {
	// Name is the host that the guest named, and Port the one that it dialed.
	Name string
	Port uint16
	// TLS says that the guest begins with a handshake.
	TLS bool
	// Treatment is that of requests to the name, or nil: then all of them pass that name it.
	Treatment *policy.Treatment
	// Rule is the rule that has allowed the flow.
	Rule string
	// Dial connects to the address that was judged.
	Dial func(ctx context.Context) (net.Conn, error)
	// Log tells of a request. What the flow and the sandbox are is filled in.
	Log func(api.NetworkLogEntry)
}

// Proxy treats requests.
type Proxy interface {
	// New returns what treats the requests of a sandbox whose policy is p. With an error the sandbox
	// is not registered.
	New(r *Registration, p *policy.Policy) (Treatments, error)
}

// Treatments treat the requests of one sandbox.
type Treatments interface {
	// Replace puts another registration in force, for requests that begin from then on. With an
	// error nothing has changed. It does not block.
	Replace(r *Registration, p *policy.Policy) error
	// Serve takes a connection over. It returns when the connection has ended, or ctx has.
	Serve(ctx context.Context, guest net.Conn, t Treated) error
	// Close is called after all calls of Serve have returned.
	Close()
}

// Log takes what is said about sandboxes. It must not block.
type Log interface {
	Add(api.NetworkLogEntry)
	// Began and Ended say that the gateway begins to serve a sandbox, and has ended to. In between it
	// may begin once more: a sandbox that gets another state goes on in another sentry.
	Began(sandbox string)
	Ended(sandbox string)
}

// Config says what the gateway works with.
type Config struct {
	// Upstream answers questions about names.
	Upstream *dns.Upstream
	// Log is told of each decision, and of the end of each flow.
	Log Log
	// Proxy treats requests. Without it flows of HTTP are denied whose requests have to be looked at.
	Proxy Proxy
	// Via returns what connects to a port of a name in place of the address that was judged, or nil
	// if the address is dialed: hosts may reach others by a proxy only. Nil is never.
	Via func(name string, port uint16) func(ctx context.Context) (net.Conn, error)
	// Dial opens sockets; nil is that of package net.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Own reports whether an address is one of the host.
	Own func(netip.Addr) bool
}

// Gateway serves the sandboxes that are registered. It is safe for concurrent use.
type Gateway struct {
	cfg      Config
	counters counters

	mu        sync.Mutex
	sandboxes map[string]*sandbox // guarded by mu
	tenants   map[string]*tenant  // guarded by mu
	addresses map[netip.Addr]*sandbox
	next      uint32 // of addresses; guarded by mu
	left      []left // those that left last are at the end; guarded by mu
	closed    bool
	wg        sync.WaitGroup // of sandboxes
}

// The errors of a registration.
var (
	ErrUnknown = api.Errorf(api.CodeNotFound, "the gateway has no such sandbox")
	errClosed  = errors.New("the gateway is closed")
	errTaken   = api.Errorf(api.CodeConflict, "the gateway has the sandbox")
)

// New returns a gateway without sandboxes.
func New(cfg Config) *Gateway {
	if cfg.Dial == nil {
		cfg.Dial = (&net.Dialer{}).DialContext
	}
	return &Gateway{cfg: cfg, sandboxes: map[string]*sandbox{}, tenants: map[string]*tenant{}, addresses: map[netip.Addr]*sandbox{}}
}

// Add registers a sandbox and serves its channel, which it takes over, until the sandbox is removed
// or its sentry has ended. The policy is in force before the first message is read.
func (g *Gateway) Add(r Registration, channel *os.File) error {
	compiled, err := policy.Compile(r.Policy, g.cfg.Own)
	if err != nil {
		channel.Close()
		return err
	}
	ch, err := wire.GatewayChannel(channel)
	if err != nil {
		return err
	}
	var treatments Treatments
	if g.cfg.Proxy != nil {
		if treatments, err = g.cfg.Proxy.New(&r, compiled); err != nil {
			ch.Close()
			return err
		}
	}
	t := g.acquire(r.Tenant)
	t.changing.Lock()
	defer t.changing.Unlock()
	s := newSandbox(g, t, r, compiled, treatments, ch)
	if err := g.begin(s); err != nil {
		ch.Close()
		s.closeTreatments()
		s.release()
		return err
	}
	return nil
}

// begin has a sandbox served until its channel ends.
func (g *Gateway) begin(s *sandbox) error {
	r := s.reg()
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.closed:
		return errClosed
	case g.sandboxes[r.ID] != nil:
		return errTaken
	}
	for _, other := range g.sandboxes {
		if o := other.reg(); o.Tenant == r.Tenant && (o.sandbox() == r.sandbox() || o.sandbox() == r.Parent) {
			s.inherit(other.names)
		}
	}
	for _, gone := range g.left {
		if gone.tenant == r.Tenant && (gone.sandbox == r.sandbox() || gone.sandbox == r.Parent) {
			s.inherit(gone.names)
		}
	}
	g.sandboxes[r.ID] = s
	s.address = g.freeAddress()
	g.addresses[s.address] = s
	g.cfg.Log.Began(r.sandbox())
	g.wg.Go(func() {
		s.serve()
		g.forget(s)
		s.release()
	})
	return nil
}

// freeAddress returns an address of those that other sandboxes reach a sandbox at: they are set
// aside for measurements between networks (RFC 2544), and no network routes them. The caller holds
// mu.
func (g *Gateway) freeAddress() netip.Addr {
	for {
		g.next = (g.next + 1) % (1 << 16)
		a := netip.AddrFrom4([4]byte{198, 18, byte(g.next >> 8), byte(g.next)})
		if g.next != 0 && g.addresses[a] == nil {
			return a
		}
	}
}

// forget removes a sandbox whose channel has ended.
func (g *Gateway) forget(s *sandbox) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if r := s.reg(); g.sandboxes[r.ID] == s {
		delete(g.sandboxes, r.ID)
		g.leave(&r, s.names)
	}
	delete(g.addresses, s.address)
}

// Replace puts what is known of a sandbox in force. Flows that its policy does not allow any more are
// cut before Replace returns; with an error nothing has changed.
func (g *Gateway) Replace(r Registration) error {
	compiled, err := policy.Compile(r.Policy, g.cfg.Own)
	if err != nil {
		return err
	}
	s, err := g.sandbox(r.ID)
	if err != nil {
		return err
	}
	s.tenant.changing.Lock()
	defer s.tenant.changing.Unlock()
	return s.replace(r, compiled)
}

// Remove cuts all flows of a sandbox and closes its channel. It returns when nothing of it is left.
func (g *Gateway) Remove(id string) error {
	s, err := g.sandbox(id)
	if err != nil {
		return err
	}
	s.channel.Close()
	<-s.done
	g.forget(s)
	return nil
}

// Test judges a connection of a sandbox as if the guest asked for it, by a name or an address.
func (g *Gateway) Test(id, host string, protocol policy.Protocol, port uint16) (api.NetworkTestResult, error) {
	s, err := g.sandbox(id)
	if err != nil {
		return api.NetworkTestResult{}, err
	}
	if name, ok := policy.CanonicalName(host); ok && isSibling(name) {
		return g.testSibling(s, name, protocol, port), nil
	}
	return s.test(host, protocol, port)
}

// testSibling judges a connection to another sandbox by the policies of both.
func (g *Gateway) testSibling(s *sandbox, name string, protocol policy.Protocol, port uint16) api.NetworkTestResult {
	target := siblings{g, s.reg().Tenant}.named(strings.TrimSuffix(name, siblingDomain))
	switch {
	case target == nil:
		return api.NetworkTestResult{Rule: "no sandbox of the tenant that has a network has this name"}
	case protocol != policy.TCP:
		return api.NetworkTestResult{Rule: "other sandboxes are reached over TCP only"}
	}
	peer := target.peer.Load()
	d := s.current().JudgeTarget(peer, port)
	if !d.Allowed {
		return api.NetworkTestResult{Rule: d.String()}
	}
	if there := target.current().JudgeSource(s.peer.Load(), port); !there.Allowed {
		return api.NetworkTestResult{Rule: notAccepted + there.String()}
	}
	return api.NetworkTestResult{Allowed: true, Rule: d.String()}
}

// IDs returns the registered sandboxes.
func (g *Gateway) IDs() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	ids := make([]string, 0, len(g.sandboxes))
	for id := range g.sandboxes {
		ids = append(ids, id)
	}
	return ids
}

// Close removes all sandboxes and waits for what serves them.
func (g *Gateway) Close() {
	g.mu.Lock()
	g.closed = true
	for _, s := range g.sandboxes {
		s.channel.Close()
	}
	g.mu.Unlock()
	g.wg.Wait()
}

func (g *Gateway) sandbox(id string) (*sandbox, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.sandboxes[id]
	if s == nil {
		return nil, fmt.Errorf("%s: %w", id, ErrUnknown)
	}
	return s, nil
}

// at returns the sandbox that others reach at an address, or nil.
func (g *Gateway) at(a netip.Addr) *sandbox {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.addresses[a]
}

// hostAddress is where a guest reaches the loopback address of the host, if a rule names that: it is
// the router of the guest's interface, as in other networks in user space.
var hostAddress = netip.AddrFrom4([4]byte{10, 0, 2, 2})

// outer returns the address that stands behind one of the guest's.
func outer(a netip.Addr) netip.Addr {
	if a == hostAddress {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	return a
}

// siblingDomain is the domain of the names of sandboxes.
const siblingDomain = ".sandbox"

func isSibling(name string) bool { return strings.HasSuffix(name, siblingDomain) }

// siblings knows the names of sandboxes of one tenant.
type siblings struct {
	g      *Gateway
	tenant string
}

// Sibling implements dns.Siblings: NAME.sandbox, or ID.sandbox. The host's own loopback is a
// sibling, too.
func (b siblings) Sibling(name string) (netip.Addr, bool) {
	if api.IsHostName(name) {
		return hostAddress, true
	}
	name, is := strings.CutSuffix(name, siblingDomain)
	if !is {
		return netip.Addr{}, false
	}
	if s := b.named(name); s != nil {
		return s.address, true
	}
	return netip.Addr{}, true
}

// named returns the sandbox with a name or id, or nil.
func (b siblings) named(name string) *sandbox {
	b.g.mu.Lock()
	defer b.g.mu.Unlock()
	for _, s := range b.g.sandboxes {
		if r := s.reg(); r.Tenant == b.tenant && (strings.EqualFold(r.Name, name) || strings.EqualFold(r.sandbox(), name)) {
			return s
		}
	}
	return nil
}
