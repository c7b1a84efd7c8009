package published

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/service/access"
	"ramet.dev/ramet/internal/service/audit"
	"ramet.dev/ramet/internal/storage/store"
)

const (
	// maxPorts bounds the published ports of a sandbox.
	maxPorts = 32
	// maxOpen bounds the open connections to a sandbox. Others wait to be accepted.
	maxOpen = 256
	// retryEvery is the default of Config.RetryEvery.
	retryEvery = 5 * time.Second
	// firstFree is the first port that programs of all users may listen on.
	firstFree = 1024
)

// Conn is a connection to a port of a sandbox. Each direction ends by itself.
type Conn interface {
	net.Conn
	CloseWrite() error
}

// Config is what a Publisher works with.
type Config struct {
	Store *store.Store
	// Find returns the id of the sandbox that ref, an id or a name, refers to for the
	// caller in ctx.
	Find func(ctx context.Context, ref string) (id string, err error)
	// Exists reports whether a sandbox was not destroyed.
	Exists func(id string) bool
	// Dial connects to a port of a sandbox, which is woken if it wakes by itself. ctx
	// bounds the call and not the connection.
	Dial func(ctx context.Context, id string, port uint16) (Conn, error)
	// Guard makes the handlers of ports with a token; nil if none may have one.
	Guard NewGuard
	// Tell publishes an event of a sandbox, and Audit takes entries about what the daemon does by
	// itself. Neither calls the publisher.
	Tell  func(id string, kind api.EventKind, e api.Event)
	Audit func(api.AuditEntry)
	// MaxOpen bounds the open connections to all sandboxes.
	MaxOpen int
	// RetryEvery is how often a port is tried that could not be listened on; 0 for the
	// default.
	RetryEvery time.Duration
	Log        *slog.Logger
}

// record is what is stored of a published port.
type record struct {
	Port   uint16         `json:"port"`
	Listen netip.AddrPort `json:"listen"`
	// Token is the SHA-256 of the token in hexadecimal digits, or empty.
	Token string `json:"token,omitempty"`
}

// digestOf returns what is stored of a token.
func digestOf(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// isToken reports whether text is the token of the port. It takes as long for any text.
func (r *record) isToken(text string) bool {
	return subtle.ConstantTimeCompare([]byte(digestOf(text)), []byte(r.Token)) == 1
}

// group is the published ports of a sandbox.
type group struct {
	id        string
	endpoints []*endpoint
	room      chan struct{} // has an element for each open connection
}

// stored returns the change that stores the group with the endpoints list.
func (g *group) stored(list []*endpoint) store.Change {
	change := store.Change{Table: store.Published, ID: g.id}
	if len(list) > 0 {
		records := make([]record, len(list))
		for i, e := range list {
			records[i] = e.record
		}
		change.Doc = records
	}
	return change
}

// Publisher is the published ports of all sandboxes. It implements service.PublishedPorts and is
// safe for concurrent use.
type Publisher struct {
	cfg    Config
	ctx    context.Context // ended by Close
	cancel context.CancelFunc
	wg     sync.WaitGroup
	room   chan struct{} // has an element for each open connection
	use    use

	mu     sync.Mutex
	groups map[string]*group
	closed bool
}

// Open returns the publisher of the stored ports, and listens on them. It drops those of sandboxes
// that do not exist.
func Open(ctx context.Context, cfg Config) (*Publisher, error) {
	p := &Publisher{cfg: cfg, groups: map[string]*group{}, room: make(chan struct{}, max(1, cfg.MaxOpen))}
	var changes []store.Change
	err := cfg.Store.Each(ctx, store.Published, func(id string, doc []byte) error {
		if !cfg.Exists(id) {
			changes = append(changes, store.Change{Table: store.Published, ID: id})
			return nil
		}
		var records []record
		if err := json.Unmarshal(doc, &records); err != nil {
			return api.Errorf(api.CodeCorrupt, "record of published ports of sandbox %s: %w", id, err)
		}
		g := p.newGroup(id)
		for _, r := range records {
			g.endpoints = append(g.endpoints, newEndpoint(p, g, r))
		}
		return nil
	})
	if err == nil {
		err = cfg.Store.Apply(ctx, changes...)
	}
	if err != nil {
		return nil, fmt.Errorf("read published ports: %w", err)
	}
	p.ctx, p.cancel = context.WithCancel(context.WithoutCancel(ctx))
	p.listenAll(true)
	p.wg.Go(p.retry)
	return p, nil
}

// Close ends all connections and listeners, which are stored and come back with the next Open.
func (p *Publisher) Close() {
	p.mu.Lock()
	p.closed = true
	for _, g := range p.groups {
		for _, e := range g.endpoints {
			e.end()
		}
	}
	p.mu.Unlock()
	p.cancel()
	p.wg.Wait()
}

// newGroup adds a group without ports. The caller holds mu, or is Open.
func (p *Publisher) newGroup(id string) *group {
	g := &group{id: id, room: make(chan struct{}, maxOpen)}
	p.groups[id] = g
	return g
}

// retry listens on ports that could not be listened on, until Close.
func (p *Publisher) retry() {
	ticker := time.NewTicker(cmp.Or(p.cfg.RetryEvery, retryEvery))
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			p.listenAll(false)
		case <-p.ctx.Done():
			return
		}
	}
}

// listenAll listens on all ports that are not listened on, and logs those for which that
// fails if log is set.
func (p *Publisher) listenAll(log bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	for _, g := range p.groups {
		for _, e := range g.endpoints {
			if e.listens() {
				continue
			}
			l, err := listen(p.ctx, e.record.Listen)
			if err == nil {
				e.start(l)
			} else if e.fail(err); log {
				p.cfg.Log.Warn("listen on a published port", "sandbox", g.id, "address", e.record.Listen.String(), "error", err)
			}
		}
	}
}

// listen listens on a port of the host.
func listen(ctx context.Context, at netip.AddrPort) (*net.TCPListener, error) {
	network := "tcp" // :: is all addresses, also those of IPv4
	if at.Addr().Is4() {
		network = "tcp4"
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, network, at.String())
	switch {
	case err == nil:
		return l.(*net.TCPListener), nil
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, api.Errorf(api.CodeConflict, "port %d of %s is in use, by another sandbox or program: choose another, or 0 for any that is free", at.Port(), at.Addr())
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return nil, api.Errorf(api.CodeUnsupported, "the user of the daemon may not listen on port %d of %s: choose one from %d, or see net.ipv4.ip_unprivileged_port_start in ip-sysctl", at.Port(), at.Addr(), firstFree)
	case errors.Is(err, syscall.EADDRNOTAVAIL), errors.Is(err, syscall.EAFNOSUPPORT), errors.Is(err, syscall.EINVAL):
		return nil, api.Invalid("address", "%s is not an address of this host", at.Addr())
	}
	return nil, fmt.Errorf("listen on %s: %w", at, err)
}

// PublishedPorts implements service.PublishedPorts.
func (p *Publisher) PublishedPorts(ctx context.Context, ref string) ([]api.PublishedPort, error) {
	id, err := p.cfg.Find(ctx, ref)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	list := []api.PublishedPort{}
	if g := p.groups[id]; g != nil {
		for _, e := range g.endpoints {
			list = append(list, e.view())
		}
	}
	return list, nil
}

// PublishPort implements service.PublishedPorts.
func (p *Publisher) PublishPort(ctx context.Context, ref string, req api.PublishRequest) (*api.PublishedPort, error) {
	if err := req.Valid(); err != nil {
		return nil, err
	}
	if req.Token != "" && p.cfg.Guard == nil {
		return nil, api.Errorf(api.CodeUnsupported, "this node publishes no ports with a token")
	}
	at, err := req.Listen()
	if err != nil {
		return nil, err
	}
	if err := mayListen(ctx, at); err != nil {
		return nil, err
	}
	id, err := p.cfg.Find(ctx, ref)
	if err != nil {
		return nil, err
	}
	out, err := p.publish(ctx, id, at, req)
	if err != nil {
		return nil, fmt.Errorf("publish port: %w", err)
	}
	return out, nil
}

// mayListen refuses addresses that other machines reach, and ports of the system, to all
// callers but the owner of the daemon.
func mayListen(ctx context.Context, at netip.AddrPort) error {
	if !at.Addr().IsLoopback() {
		return access.From(ctx).OwnerOnly("publishes ports on addresses other than loopback")
	}
	if at.Port() != 0 && at.Port() < firstFree {
		return access.From(ctx).OwnerOnly(fmt.Sprintf("publishes on ports below %d", firstFree))
	}
	return nil
}

// publish listens on a port of the host for a sandbox, and stores that.
func (p *Publisher) publish(ctx context.Context, id string, at netip.AddrPort, req api.PublishRequest) (*api.PublishedPort, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	// Remove is called after the sandbox is not listed any more, so that it finds what is
	// published after this check.
	if p.closed || !p.cfg.Exists(id) {
		return nil, api.NotFound("sandbox", id)
	}
	g := p.groups[id]
	if g == nil {
		g = p.newGroup(id)
	}
	if len(g.endpoints) >= maxPorts {
		return nil, api.Errorf(api.CodeLimit, "sandbox %s has %d published ports, the most that it may have: end one first", id, len(g.endpoints))
	}
	l, err := listen(ctx, at)
	if err != nil {
		return nil, err
	}
	r := record{Port: uint16(req.Port), Listen: netip.AddrPortFrom(at.Addr(), uint16(l.Addr().(*net.TCPAddr).Port))}
	if req.Token != "" {
		r.Token = digestOf(req.Token)
	}
	e := newEndpoint(p, g, r)
	list := append(slices.Clone(g.endpoints), e)
	if err := p.cfg.Store.Apply(ctx, g.stored(list)); err != nil {
		l.Close()
		return nil, err
	}
	g.endpoints = list
	e.start(l)
	audit.Of(ctx).Object(id)
	audit.Of(ctx).Set(audited(e))
	p.tell(e, api.EventPublished, 0)
	v := e.view()
	return &v, nil
}

// UnpublishPort implements service.PublishedPorts.
func (p *Publisher) UnpublishPort(ctx context.Context, ref string, hostPort int) error {
	id, err := p.cfg.Find(ctx, ref)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	g := p.groups[id]
	if g == nil {
		return notPublished(id, hostPort)
	}
	var kept, gone []*endpoint
	for _, e := range g.endpoints {
		if int(e.record.Listen.Port()) == hostPort {
			gone = append(gone, e)
		} else {
			kept = append(kept, e)
		}
	}
	if len(gone) == 0 {
		return notPublished(id, hostPort)
	}
	if err := p.cfg.Store.Apply(ctx, g.stored(kept)); err != nil {
		return fmt.Errorf("end a published port: %w", err)
	}
	g.endpoints = kept
	audit.Of(ctx).Object(id)
	for _, e := range gone {
		e.end()
		audit.Of(ctx).Set(audited(e))
		p.tell(e, api.EventUnpublished, 0)
	}
	return nil
}

func notPublished(id string, hostPort int) error {
	return api.Errorf(api.CodeNotFound, "sandbox %s publishes nothing on port %d of the host", id, hostPort)
}

// Remove ends the ports of a sandbox that is not listed any more, with their connections. It
// returns the change that forgets them.
func (p *Publisher) Remove(id string) store.Change {
	p.mu.Lock()
	defer p.mu.Unlock()
	if g := p.groups[id]; g != nil {
		for _, e := range g.endpoints {
			e.end()
		}
		delete(p.groups, id)
	}
	return store.Change{Table: store.Published, ID: id}
}
