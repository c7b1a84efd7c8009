package host

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/network/control"
	"ramet.dev/ramet/internal/network/gateway"
	"ramet.dev/ramet/internal/network/held"
	"ramet.dev/ramet/internal/network/wire"
)

// Config says how a gateway is started.
type Config struct {
	// Dir is the runtime directory of the daemon, which only its user can enter.
	Dir string
	// Executable is a program that runs process.Main, and Build what identifies it.
	Executable string
	Build      string
	// ResolvConf and Hosts are the files of the host's resolver.
	ResolvConf, Hosts string
	// HeldDir is where requests are held, of the daemon's data; without it none are.
	HeldDir string
	// Held bounds what is held of a sandbox; zero for held.DefaultLimits.
	Held held.Limits
	// HTTPSProxy and NoProxy are the variables of the host by which the gateway reaches names.
	HTTPSProxy, NoProxy string
	// Bundle is a file with the authorities by which the gateway verifies servers, and is read when one
	// is started; empty for those of the machine. Without the file no server is trusted.
	Bundle string
	// Tenants are those that something bounds when the daemon begins. See Host.SetTenant.
	Tenants []gateway.Tenant
	Log     *slog.Logger
	// Grace is how long a gateway goes on that nobody needs.
	Grace time.Duration
	// Attend is called for each gateway that is found or started, in a goroutine of its own, if it is
	// there. ctx ends when the gateway has ended, or the daemon lets go of it. A fresh gateway was started just now.
	Attend func(ctx context.Context, c *control.Client, fresh bool)
	// Attach gives the sentry of a sandbox the end of a new channel, which Attach keeps nothing of.
	Attach func(ctx context.Context, id string, channel *os.File) error
}

// sandbox is one that has a network.
type sandbox struct {
	registration gateway.Registration
	// cut says that its sentry has no channel to the gateway that runs.
	cut bool
	// stale says that the gateway may have another registration: it was told, and has not answered. It is
	// told once more.
	stale bool
}

// Host has the gateway of a daemon. It is safe for concurrent use.
type Host struct {
	cfg    Config
	client *control.Client

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup // of what watches the gateway
	once   sync.Once      // of Close

	// turn has room for the one that changes which sandboxes there are, or the gateway.
	turn      chan struct{}
	running   bool // a gateway is watched; of who has the turn
	starting  bool // a goroutine tries to start one; of who has the turn
	sandboxes map[string]*sandbox
	gone      map[string]bool // sandboxes that have ended and that the gateway may have; of who has the turn
	tenants   tenants
	known     sync.Map // the ids of sandboxes, for those without the turn
	renewals  renewals // and ends, that the next one who has the turn takes over
	hello     control.Hello
	restarts  atomic.Int64  // of gateways that ended while sandboxes needed them
	again     chan struct{} // has one when what failed is to be tried again at once
}

// New returns a Host that has no gateway yet.
func New(cfg Config) *Host {
	h := &Host{cfg: cfg, client: control.NewClient(socket(cfg.Dir)), turn: make(chan struct{}, 1), sandboxes: map[string]*sandbox{}, gone: map[string]bool{}, again: make(chan struct{}, 1)}
	h.tenants = newTenants(cfg.Tenants)
	h.ctx, h.cancel = context.WithCancel(context.Background())
	return h
}

// Close stops watching. The gateway goes on with its sandboxes, for the next daemon.
func (h *Host) Close() {
	h.once.Do(func() {
		h.cancel()
		h.turn <- struct{}{} // nobody gets it after
		h.wg.Wait()
	})
}

// errClosed says that the daemon ends.
var errClosed = api.Errorf(api.CodeUnavailable, "the daemon ends")

// take waits for the turn.
func (h *Host) take(ctx context.Context) error {
	if h.ctx.Err() != nil {
		return errClosed
	}
	select {
	case h.turn <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-h.ctx.Done():
		return errClosed
	}
	if h.ctx.Err() != nil {
		<-h.turn
		return errClosed
	}
	h.absorb()
	return nil
}

// give gives the turn back. Renewals and ends whose callers did not wait for it are taken over.
func (h *Host) give() {
	<-h.turn
	h.settle()
}

// settle takes over renewals and ends, unless another has the turn: that one does it then.
func (h *Host) settle() {
	for h.renewals.waiting() {
		select {
		case h.turn <- struct{}{}:
			h.absorb()
			<-h.turn
		default:
			return
		}
	}
}

// absorb takes over renewals and ends. The gateway is told soon. The caller has the turn.
func (h *Host) absorb() {
	bounded, renewed, ended := h.renewals.take()
	for _, to := range bounded {
		h.tenants.set(to)
		if h.running {
			h.goOn()
		}
	}
	for _, r := range renewed {
		if s := h.sandboxes[r.ID]; s != nil && (s.stale || !reflect.DeepEqual(s.registration, r)) {
			s.registration, s.stale = r, true
			h.goOn()
		}
	}
	for _, id := range ended {
		if h.sandboxes[id] == nil {
			continue
		}
		delete(h.sandboxes, id)
		h.known.Delete(id)
		if h.running { // else the next gateway knows nothing of it
			h.gone[id] = true
			h.goOn()
		}
	}
}

// Ready starts the gateway if there is none.
func (h *Host) Ready(ctx context.Context) error {
	if err := h.take(ctx); err != nil {
		return err
	}
	defer h.give()
	return h.ensure(ctx)
}

// Put puts the registration of a sandbox in force. channel is the gateway's end of the channel whose
// other end the sentry has been given at its start, and stays the caller's. What the guest asks for
// waits in the channel until Put returns. A gateway that cannot be told is told later: what the guest
// asks for waits or is refused until then, and Put returns nil.
//
// Without a channel, a sandbox that has one keeps it: flows that the registration does not allow are
// cut when Put returns. One that has none is given one. With an error the registration that it had is in
// force, or as soon as the gateway answers: it may have put the new one in force meanwhile.
func (h *Host) Put(ctx context.Context, r gateway.Registration, channel *os.File) error {
	if err := h.take(ctx); err != nil {
		return err
	}
	defer h.give()
	s := h.sandboxes[r.ID]
	if channel == nil && s != nil {
		return h.replace(ctx, s, r)
	}
	err := h.ensure(ctx)
	switch {
	case err != nil:
	case channel != nil:
		err = h.add(ctx, r, channel)
	default:
		err = h.reattach(ctx, r)
	}
	if err != nil && (channel == nil || api.CodeOf(err) == api.CodeInvalid) {
		return err
	}
	h.keep(r, err != nil)
	if err != nil {
		h.cfg.Log.Warn("a sandbox has no network yet", "sandbox", r.Sandbox, "error", err)
		h.goOn()
	}
	return nil
}

// replace puts another registration of s in force. The caller has the turn.
func (h *Host) replace(ctx context.Context, s *sandbox, r gateway.Registration) error {
	if !s.stale && reflect.DeepEqual(s.registration, r) {
		return nil
	}
	if err := h.ensure(ctx); err != nil {
		return err
	}
	if !s.cut {
		if err := h.client.Replace(ctx, r); err != nil {
			if api.CodeOf(err) != api.CodeInvalid { // else it was refused
				s.stale = true
				h.goOn()
			}
			return err
		}
	}
	s.registration, s.stale = r, false
	return nil
}

// Renew puts a registration of a sandbox in force in place of the one that it has, if it has one. With an
// error the gateway may not know it yet: it is told as soon as it answers.
func (h *Host) Renew(ctx context.Context, r gateway.Registration) error {
	h.renewals.add(r)
	if err := h.take(ctx); err != nil {
		h.settle()
		return err
	}
	defer h.give()
	s := h.sandboxes[r.ID]
	if s == nil || !s.stale {
		return nil
	}
	err := h.ensure(ctx)
	if err == nil && s.stale {
		err = h.retell(ctx, s)
	}
	if err != nil {
		h.goOn()
	}
	return err
}

// retell tells the gateway of a sandbox once more, unless it is told with a new channel. One that the
// gateway does not know has ended. The caller has the turn.
func (h *Host) retell(ctx context.Context, s *sandbox) error {
	if !s.cut {
		if err := h.client.Replace(ctx, s.registration); err != nil && api.CodeOf(err) != api.CodeNotFound {
			return fmt.Errorf("tell the gateway of a sandbox once more: %w", err)
		}
	}
	s.stale = false
	return nil
}

// Has reports whether a sandbox has a registration. It does not wait.
func (h *Host) Has(id string) bool {
	_, has := h.known.Load(id)
	return has
}

// keep keeps a registration. The caller has the turn.
func (h *Host) keep(r gateway.Registration, cut bool) {
	delete(h.gone, r.ID) // add has removed it
	h.sandboxes[r.ID] = &sandbox{registration: r, cut: cut}
	h.known.Store(r.ID, struct{}{})
}

// register makes a channel, registers a sandbox with it and returns the sentry's end.
func (h *Host) register(ctx context.Context, r gateway.Registration) (*os.File, error) {
	ours, theirs, err := wire.Pair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	if err := h.add(ctx, r, theirs); err != nil {
		ours.Close()
		return nil, err
	}
	return ours, nil
}

// add registers a sandbox, in place of one that has its id: the channel of that is one of a daemon
// that died meanwhile.
func (h *Host) add(ctx context.Context, r gateway.Registration, channel *os.File) error {
	err := h.client.Add(ctx, r, channel)
	if api.CodeOf(err) == api.CodeConflict {
		if err = h.client.Remove(ctx, r.ID); err == nil || api.CodeOf(err) == api.CodeNotFound {
			err = h.client.Add(ctx, r, channel)
		}
	}
	if err != nil {
		return fmt.Errorf("register with the gateway: %w", err)
	}
	return nil
}

// Adopt takes over the sandboxes that an earlier daemon had, and that have a network. Those that the
// gateway knows keep their channels and flows, under the policy of the registration; others get a new
// channel. Sandboxes of the gateway that are not among them are removed. What fails is tried again
// later; the error says what failed first.
func (h *Host) Adopt(ctx context.Context, rs []gateway.Registration) (err error) {
	if err := h.take(ctx); err != nil {
		return err
	}
	defer h.give()
	if len(rs) == 0 && !exists(h.cfg.Dir) {
		return nil
	}
	for _, r := range rs {
		h.keep(r, true)
	}
	defer func() {
		if err != nil {
			h.goOn()
		}
	}()
	f, err := h.find(ctx)
	if err != nil {
		return err
	}
	err = h.tenants.tell(ctx, h.client)
	var known []string
	if err == nil {
		known, err = h.client.List(ctx)
	}
	if err == nil {
		err = h.adoptKnown(ctx, known)
	}
	_ = h.restore(ctx) // watch goes on with it
	h.attend(f)
	return err
}

// adoptKnown takes over the sandboxes that the gateway knows.
func (h *Host) adoptKnown(ctx context.Context, known []string) error {
	for _, id := range known {
		s := h.sandboxes[id]
		var err error
		if s == nil {
			err = h.client.Remove(ctx, id)
		} else if err = h.client.Replace(ctx, s.registration); err == nil {
			s.cut, s.stale = false, false
		}
		if err != nil && api.CodeOf(err) != api.CodeNotFound {
			return fmt.Errorf("take over a sandbox of the gateway: %w", err)
		}
	}
	return nil
}

// reattach registers a sandbox and gives its sentry the new channel.
func (h *Host) reattach(ctx context.Context, r gateway.Registration) error {
	end, err := h.register(ctx, r)
	if err != nil {
		return err
	}
	defer end.Close()
	if err := h.cfg.Attach(ctx, r.ID, end); err != nil {
		return fmt.Errorf("give the sandbox a new channel: %w", err)
	}
	return nil
}

// Remove ends the network of a sandbox. It is no error if it has none. With an error the gateway may
// have it still: it is told as soon as it answers.
func (h *Host) Remove(ctx context.Context, id string) error {
	h.renewals.end(id)
	if err := h.take(ctx); err != nil {
		h.settle()
		return err
	}
	defer h.give()
	return h.remove(ctx, id)
}

// remove tells the gateway of a sandbox that is gone. The caller has the turn.
func (h *Host) remove(ctx context.Context, id string) error {
	if !h.gone[id] {
		return nil
	}
	err := h.client.Remove(ctx, id)
	if err == nil || api.CodeOf(err) == api.CodeNotFound || !alive(h.cfg.Dir) {
		delete(h.gone, id)
		return nil
	}
	return fmt.Errorf("tell the gateway of the end of a sandbox: %w", err)
}

// Client returns what asks the gateway questions: Stats, Test and Log. They fail while there is none.
func (h *Host) Client() *control.Client { return h.client }

// Hello returns what the gateway says of itself; it is empty while there is none.
func (h *Host) Hello(ctx context.Context) (control.Hello, error) {
	if err := h.take(ctx); err != nil {
		return control.Hello{}, err
	}
	defer h.give()
	if !h.running {
		return control.Hello{}, nil
	}
	return h.hello, nil
}

// Restarts returns how many gateways have ended while sandboxes needed them.
func (h *Host) Restarts() int64 { return h.restarts.Load() }

// ensure makes sure that there is a gateway, which is watched and knows what bounds tenants. A new one is
// told of all sandboxes. The caller has the turn.
func (h *Host) ensure(ctx context.Context) error {
	if h.running {
		return h.tenants.tell(ctx, h.client)
	}
	f, err := h.find(ctx)
	if err != nil {
		return err
	}
	for _, s := range h.sandboxes {
		s.cut = s.cut || f.fresh
	}
	_ = h.restore(ctx) // watch goes on with it
	h.attend(f)
	return h.tenants.tell(ctx, h.client) // nearly always restore has
}

// find finds or starts a gateway, which the caller watches.
func (h *Host) find(ctx context.Context) (found, error) {
	f, err := find(ctx, h.ctx, h.cfg, h.client)
	if err == nil {
		h.hello, h.running = f.hello, true
		h.tenants.found(f.fresh)
		if f.fresh {
			clear(h.gone)
		}
	}
	return f, err
}

// restore gives sandboxes that are cut off a new channel, tells of those that are stale or gone, and reports
// whether that is all. One that has no channel has no network: what its guest asks for is refused. The
// caller has the turn.
func (h *Host) restore(ctx context.Context) bool {
	if err := h.tenants.tell(ctx, h.client); err != nil {
		h.cfg.Log.Warn("sandboxes wait until the gateway knows what bounds their tenants", "error", err)
		return false
	}
	all := true
	for id := range h.gone {
		if err := h.remove(ctx, id); err != nil {
			h.cfg.Log.Warn("a sandbox that has ended may have a network still", "sandbox", id, "error", err)
			all = false
		}
	}
	for id, s := range h.sandboxes {
		if s.stale && !s.cut {
			if err := h.retell(ctx, s); err != nil {
				h.cfg.Log.Warn("the network of a sandbox may not be the one that it is to have", "sandbox", id, "error", err)
				all = false
			}
		}
		if !s.cut {
			continue
		}
		if err := h.reattach(ctx, s.registration); err != nil {
			h.cfg.Log.Warn("a sandbox has no network", "sandbox", id, "error", err)
			all = false
			continue
		}
		s.cut, s.stale = false, false
	}
	return all
}

// Pauses between attempts to start a gateway.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = 10 * time.Second
)

// goOn has what failed tried again: by the goroutine that watches the gateway, or by one that starts
// it. The caller has the turn.
func (h *Host) goOn() {
	if h.running || h.starting {
		select {
		case h.again <- struct{}{}:
		default: // it is told already
		}
		return
	}
	h.starting = true
	h.wg.Go(h.start)
}

// attend has the gateway watched. The caller has the turn.
func (h *Host) attend(f found) {
	h.wg.Go(func() { h.watch(f.ended) })
	if h.cfg.Attend == nil {
		return
	}
	h.wg.Go(func() {
		ctx, cancel := context.WithCancel(h.ctx)
		defer cancel()
		h.wg.Go(func() {
			select {
			case <-f.ended:
				cancel()
			case <-ctx.Done():
			}
		})
		h.cfg.Attend(ctx, h.client, f.fresh)
	})
}

// watch waits for the end of the gateway and starts another one, if a sandbox needs it. Until then it
// goes on to restore sandboxes: one that is paused, for example, takes no channel.
func (h *Host) watch(ended <-chan struct{}) {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		var later <-chan time.Time
		if h.take(h.ctx) != nil {
			return // the daemon ends
		}
		if !h.restore(h.ctx) {
			later = time.After(pause)
		}
		h.give()
		select {
		case <-ended:
			if h.take(h.ctx) != nil {
				return
			}
			h.running, h.starting = false, true
			if len(h.sandboxes) > 0 {
				h.restarts.Add(1)
				h.cfg.Log.Warn("the gateway has ended; another one is started", "sandboxes", len(h.sandboxes))
			}
			h.give()
			h.start()
			return
		case <-h.again:
			pause = firstPause
		case <-later: // never, if all have a channel
		}
	}
}

// start starts a gateway, if a sandbox needs it.
func (h *Host) start() {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		if h.take(h.ctx) != nil {
			return // the daemon ends
		}
		err := error(nil)
		if len(h.sandboxes) > 0 {
			err = h.ensure(h.ctx) // which watches it
		}
		h.starting = err != nil && !h.running
		done := !h.starting // else watch goes on
		h.give()
		if done {
			return
		}
		h.cfg.Log.Error("start the gateway", "error", err)
		select {
		case <-time.After(pause):
		case <-h.ctx.Done():
			return
		}
	}
}
