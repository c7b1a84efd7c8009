package host

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/network/control"
	"ramet.dev/ramet/internal/network/gateway"
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
	Log               *slog.Logger
	// Grace is how long a gateway goes on that nobody needs.
	Grace time.Duration
	// Attach gives the sentry of a sandbox the end of a new channel, which Attach keeps nothing of.
	Attach func(ctx context.Context, id string, channel *os.File) error
}

// sandbox is one that has a network.
type sandbox struct {
	registration gateway.Registration
	// cut says that its sentry has no channel to the gateway that runs.
	cut bool
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
	sandboxes map[string]*sandbox
	hello     control.Hello
}

// New returns a Host that has no gateway yet.
func New(cfg Config) *Host {
	h := &Host{cfg: cfg, client: control.NewClient(socket(cfg.Dir)), turn: make(chan struct{}, 1), sandboxes: map[string]*sandbox{}}
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
		h.give()
		return errClosed
	}
	return nil
}

func (h *Host) give() { <-h.turn }

// Connect registers a sandbox and returns the sentry's end of its channel. Its policy is in force. The
// caller gives the end to the sentry and closes it; Remove undoes Connect.
func (h *Host) Connect(ctx context.Context, r gateway.Registration) (*os.File, error) {
	if err := h.take(ctx); err != nil {
		return nil, err
	}
	defer h.give()
	if err := h.ensure(ctx); err != nil {
		return nil, err
	}
	end, err := h.register(ctx, r)
	if err != nil {
		return nil, err
	}
	h.sandboxes[r.ID] = &sandbox{registration: r}
	return end, nil
}

// register makes a channel and registers a sandbox with it, in place of one that has its id: its
// channel is that of a sentry which is gone, or of a daemon that died meanwhile.
func (h *Host) register(ctx context.Context, r gateway.Registration) (*os.File, error) {
	ours, theirs, err := wire.Pair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	err = h.client.Add(ctx, r, theirs)
	if api.CodeOf(err) == api.CodeConflict {
		if err = h.client.Remove(ctx, r.ID); err == nil || api.CodeOf(err) == api.CodeNotFound {
			err = h.client.Add(ctx, r, theirs)
		}
	}
	if err != nil {
		ours.Close()
		return nil, fmt.Errorf("register with the gateway: %w", err)
	}
	return ours, nil
}

// Adopt takes over the sandboxes that an earlier daemon had, and that have a network. Those that the
// gateway knows keep their channels and flows, under the policy of the registration; others get a new
// channel. Sandboxes of the gateway that are not among them are removed. Adopt returns why sandboxes
// have no network, by id.
func (h *Host) Adopt(ctx context.Context, rs []gateway.Registration) (map[string]error, error) {
	if err := h.take(ctx); err != nil {
		return nil, err
	}
	defer h.give()
	if len(rs) == 0 && !exists(h.cfg.Dir) {
		return nil, nil
	}
	if err := h.ensure(ctx); err != nil {
		return nil, err
	}
	known, err := h.client.List(ctx)
	if err != nil {
		return nil, err
	}
	failed := map[string]error{}
	for _, r := range rs {
		h.sandboxes[r.ID] = &sandbox{registration: r}
		if err := h.adopt(ctx, r, slices.Contains(known, r.ID)); err != nil {
			failed[r.ID] = err
		}
	}
	for _, id := range known {
		if h.sandboxes[id] == nil {
			if err := h.client.Remove(ctx, id); err != nil && api.CodeOf(err) != api.CodeNotFound {
				return failed, fmt.Errorf("remove a sandbox that is gone: %w", err)
			}
		}
	}
	return failed, nil
}

// adopt puts one registration in force.
func (h *Host) adopt(ctx context.Context, r gateway.Registration, known bool) error {
	if known {
		err := h.client.Replace(ctx, r)
		if err == nil || api.CodeOf(err) != api.CodeNotFound {
			return err
		}
	}
	return h.reattach(ctx, r)
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

// Replace puts a registration in force. Flows that it does not allow are cut when Replace returns. With
// an error nothing has changed.
func (h *Host) Replace(ctx context.Context, r gateway.Registration) error {
	if err := h.take(ctx); err != nil {
		return err
	}
	defer h.give()
	s := h.sandboxes[r.ID]
	if s == nil {
		return fmt.Errorf("%s: %w", r.ID, gateway.ErrUnknown)
	}
	if err := h.ensure(ctx); err != nil {
		return err
	}
	if err := h.client.Replace(ctx, r); err != nil {
		return err
	}
	s.registration = r
	return nil
}

// Remove ends the network of a sandbox. It is no error if it has none.
func (h *Host) Remove(ctx context.Context, id string) error {
	if err := h.take(ctx); err != nil {
		return err
	}
	defer h.give()
	if h.sandboxes[id] == nil {
		return nil
	}
	delete(h.sandboxes, id)
	if !h.running {
		return nil // the next gateway knows nothing of it
	}
	err := h.client.Remove(ctx, id)
	if api.CodeOf(err) == api.CodeNotFound || err != nil && !alive(h.cfg.Dir) {
		return nil
	}
	return err
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

// ensure makes sure that there is a gateway, which is watched. A new one is told of all sandboxes. The
// caller has the turn.
func (h *Host) ensure(ctx context.Context) error {
	if h.running {
		return nil
	}
	f, err := find(ctx, h.ctx, h.cfg, h.client)
	if err != nil {
		return err
	}
	h.hello, h.running = f.hello, true
	for _, s := range h.sandboxes {
		s.cut = f.fresh
	}
	_ = h.restore(ctx) // watch goes on with it
	h.wg.Go(func() { h.watch(f.ended) })
	return nil
}

// restore gives sandboxes that are cut off a new channel, and reports whether all have one. One that
// has none has no network: what its guest asks for is refused. The caller has the turn.
func (h *Host) restore(ctx context.Context) bool {
	all := true
	for id, s := range h.sandboxes {
		if !s.cut {
			continue
		}
		if err := h.reattach(ctx, s.registration); err != nil {
			h.cfg.Log.Warn("a sandbox has no network", "sandbox", id, "error", err)
			all = false
			continue
		}
		s.cut = false
	}
	return all
}

// Pauses between attempts to start a gateway.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = 10 * time.Second
)

// watch waits for the end of the gateway and starts another one, if a sandbox needs it. Until then it
// goes on to restore sandboxes: one that is being made has no sentry yet that takes a channel.
func (h *Host) watch(ended <-chan struct{}) {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		var again <-chan time.Time
		if h.take(h.ctx) != nil {
			return // the daemon ends
		}
		if !h.restore(h.ctx) {
			again = time.After(pause)
		}
		h.give()
		select {
		case <-ended:
			h.startAgain()
			return
		case <-again: // never, if all have a channel
		}
	}
}

// startAgain starts a gateway in place of one that has ended.
func (h *Host) startAgain() {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		if h.take(h.ctx) != nil {
			return // the daemon ends
		}
		h.running = false
		err := error(nil)
		if len(h.sandboxes) > 0 {
			h.cfg.Log.Warn("the gateway has ended; another one is started", "sandboxes", len(h.sandboxes))
			err = h.ensure(h.ctx) // which watches it
		}
		h.give()
		if err == nil {
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
