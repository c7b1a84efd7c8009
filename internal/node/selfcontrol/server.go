package selfcontrol

import (
	"context"
	"encoding/json"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/control"
	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/service/access"
	"ramet.dev/ramet/internal/service/audit"
)

// Sandboxes finds the sandboxes that make requests.
type Sandboxes interface {
	// In returns the sandbox that runs in s at this moment, or nil.
	In(s *launch.Sentry) Sandbox
}

// Sandbox is a sandbox that makes requests about itself.
type Sandbox interface {
	// View returns the sandbox's description, its tenant and its grant, as they are at
	// one moment.
	View() (v api.Sandbox, tenant string, g *Grant)
	// Children returns the living children that the sandbox made by self-requests and
	// that share the budget, oldest first.
	Children(budget string) []api.Sandbox
	// Snapshots returns those of ids that there still are, in the same order.
	Snapshots(ids []string) []Snapshot
	Fork(ctx context.Context, req api.ForkRequest, by *Request) (*api.ForkResult, error)
	Snapshot(ctx context.Context, req api.SnapshotRequest, by *Request) (*api.Snapshot, error)
	Rollback(ctx context.Context, snapshot string) error
	// Diff compares two sandboxes or snapshots.
	Diff(ctx context.Context, from, to string) (*api.Diff, error)
	// Tag stores the metadata, with its claimed keys, that change gives v. g is the sandbox's grant at that moment.
	Tag(ctx context.Context, change func(v *api.Sandbox, g *Grant) error) error
}

// Snapshot is a snapshot that a sandbox made by itself.
type Snapshot struct {
	ID    string
	Label string // the name that the sandbox gave it
}

// Request is a request that a sandbox made by itself. Each copy of the sandbox that is
// made for it has the waiting process told that it is in a copy.
type Request struct {
	ID     uint64 // 0 is none
	Label  string // of a snapshot
	Budget *Budget
}

// AnswerTo returns the answer that a copy of the sandbox gets that made a request. It is
// nil if there was no request.
func AnswerTo(request uint64, reply control.Reply) *wire.ControlAnswer {
	if request == 0 {
		return nil
	}
	return &wire.ControlAnswer{ID: request, Reply: encode(reply)}
}

// RestoredFrom returns what a sandbox is told that was made from a snapshot, or rolled back
// to it, if the snapshot was its own wish. label is what it calls the snapshot.
func RestoredFrom(snapshot, label string) func(*api.Sandbox) control.Reply {
	return func(sb *api.Sandbox) control.Reply {
		return control.Reply{Restored: &control.Restored{ID: sb.ID, Index: sb.Identity.ForkIndex, Snapshot: control.Snapshot{ID: snapshot, Name: label}}}
	}
}

func encode(reply control.Reply) json.RawMessage {
	out, err := json.Marshal(reply)
	if err != nil { // text and numbers always can be
		return json.RawMessage(`{"error":{"code":"internal","detail":"the answer cannot be encoded","exit_code":1}}`)
	}
	return out
}

var errNoGrant = api.Errorf(api.CodeWrongState, "this sandbox may not control itself")

// retryAfter is the time after which a call to a sentry that broke off is made again.
const retryAfter = time.Second

// Config is what a server works with.
type Config struct {
	Sandboxes Sandboxes
	Budgets   *Budgets
	// Audit records what a sandbox did to itself.
	Audit func(api.AuditEntry)
	Log   *slog.Logger
}

// Server answers the requests of sandboxes.
type Server struct {
	cfg Config

	mu     sync.Mutex
	served map[*launch.Sentry]bool
	loops  sync.WaitGroup
}

// NewServer returns a server that serves no sentry yet.
func NewServer(cfg Config) *Server {
	return &Server{cfg: cfg, served: map[*launch.Sentry]bool{}}
}

// Serve answers the requests of the sandbox in s, whichever sandbox that is at the time,
// until s ends or ctx does. It returns at once, and does nothing if s is served already.
// A sentry that was taken over can say no more here than its guest.
func (v *Server) Serve(ctx context.Context, s *launch.Sentry) {
	v.mu.Lock()
	running := v.served[s]
	v.served[s] = true
	v.mu.Unlock()
	if running {
		return
	}
	v.loops.Go(func() {
		defer func() {
			v.mu.Lock()
			defer v.mu.Unlock()
			delete(v.served, s)
		}()
		pace := rate.NewLimiter(requestsPerSecond, requestBurst)
		for {
			err := s.Control(ctx, func(line json.RawMessage, id uint64) json.RawMessage { return v.answer(ctx, s, pace, line, id) })
			select {
			case <-s.Done():
				return
			case <-ctx.Done():
				return
			case <-time.After(retryAfter):
				v.cfg.Log.Warn("serve a sandbox's own requests", "sentry", s.Key(), "error", err)
			}
		}
	})
}

// Wait waits until no sentry is served. The contexts of the calls to Serve have ended.
func (v *Server) Wait() { v.loops.Wait() }

// answer answers one request of the sandbox in s. The pace of s comes first: whether there
// is a budget, which has the pace of the whole tree, is only known after some work.
func (v *Server) answer(ctx context.Context, s *launch.Sentry, pace *rate.Limiter, line []byte, id uint64) (answer json.RawMessage) {
	// The guest chose what is worked on: a defect that it finds must not end the
	// daemon.
	defer func() {
		if p := recover(); p != nil {
			v.cfg.Log.Error("a sandbox's own request panicked", "sentry", s.Key(), "panic", p, "stack", string(debug.Stack()))
			answer = encode(control.Reply{Error: v.refusal(s, api.Errorf(api.CodeInternal, "panic: %v", p))})
		}
	}()
	if err := pace.Wait(ctx); err != nil {
		return encode(control.Reply{Error: v.refusal(s, err)})
	}
	reply, err := v.carryOut(ctx, s, line, id)
	if err == nil {
		out := encode(*reply)
		if len(out) <= control.MaxReply {
			return out
		}
		err = api.Errorf(api.CodeLimit, "it was done, but the answer has %d bytes, more than %d", len(out), control.MaxReply)
	}
	return encode(control.Reply{Error: v.refusal(s, err)})
}

// refusal returns err as the guest in s may see it. Details about the host go to the log
// only.
func (v *Server) refusal(s *launch.Sentry, err error) *control.Error {
	e := api.AsError(err)
	out := &control.Error{Code: string(e.Code), Detail: e.Detail, Field: e.Field, ExitCode: e.Code.ExitCode()}
	switch e.Code {
	case api.CodeInvalid, api.CodeNotFound, api.CodeConflict, api.CodeWrongState, api.CodeLimit, api.CodeTimeout, api.CodeCanceled:
	default:
		v.cfg.Log.Warn("a sandbox's own request failed", "sentry", s.Key(), "error", err)
		out.Detail = "the daemon could not do that: its log says why"
	}
	return out
}

// carryOut does what a request asks for.
func (v *Server) carryOut(ctx context.Context, s *launch.Sentry, line []byte, id uint64) (*control.Reply, error) {
	sandbox := v.cfg.Sandboxes.In(s)
	if sandbox == nil {
		return nil, api.Errorf(api.CodeNotFound, "the sandbox is gone")
	}
	view, tenant, grant := sandbox.View()
	ctx = access.With(ctx, access.Itself(tenant, view.ID))
	if grant == nil || view.SelfControl == nil {
		return nil, errNoGrant
	}
	budget := v.cfg.Budgets.Get(grant.Budget)
	if budget == nil {
		return nil, api.Errorf(api.CodeWrongState, "the budget of this sandbox is gone: what it was made from was deleted meanwhile")
	}
	if err := budget.pace.Wait(ctx); err != nil {
		return nil, err
	}
	req, err := control.Parse(line)
	if err != nil {
		return nil, api.Errorf(api.CodeInvalid, "not a request: %w", err)
	}
	r := &requester{sandbox: sandbox, view: view, grant: grant, budget: budget, id: id, refuse: func(err error) *control.Error { return v.refusal(s, err) }}
	do, cost, err := r.operation(req.Op)
	if err != nil {
		return nil, err
	}
	select {
	case budget.slots <- struct{}{}:
		defer func() { <-budget.slots }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if err := budget.pace.WaitN(ctx, cost); err != nil {
		return nil, err
	}
	ctx, note := audit.Begin(ctx, "self-"+string(req.Op), "")
	note.Object(view.ID)
	reply, err := do(ctx, req)
	if err != nil {
		note.Failed(api.CodeOf(err))
	}
	if req.Op != control.OpInfo {
		v.cfg.Audit(note.Entry())
	}
	return reply, err
}
