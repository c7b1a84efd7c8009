package node

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"time"

	"golang.org/x/time/rate"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/control"
	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/server/audit"
	"ramet.dev/ramet/internal/service/access"
)

// selfRequest is a request that a sandbox made by itself. What is made for it tells the
// process that waits for the answer that it is not the one who asked.
type selfRequest struct {
	id   uint64 // of the request
	name string // of a snapshot, in words of the sandbox
	// grant is what it is paid from.
	grant *budget
}

// answerTo returns what a copy of the sandbox that made the request is told.
func answerTo(request uint64, reply control.Reply) *wire.ControlAnswer {
	if request == 0 {
		return nil
	}
	return &wire.ControlAnswer{ID: request, Reply: encode(reply)}
}

func encode(reply control.Reply) json.RawMessage {
	out, err := json.Marshal(reply)
	if err != nil { // text and numbers always can be
		return json.RawMessage(`{"error":{"code":"internal","detail":"the answer cannot be encoded","exit_code":1}}`)
	}
	return out
}

var errNoRight = api.Errorf(api.CodeWrongState, "this sandbox may not control itself")

// retryControl is how long it takes until a call that broke off is made again.
const retryControl = time.Second

// control serves the requests of the sandbox in s, whichever that is at the time,
// until s ends or the node is closed. A sentry that was taken over can say no
// more here than its guest.
func (m *Node) control(s *launch.Sentry) {
	m.mu.Lock()
	running := m.controlled[s]
	m.controlled[s] = true
	m.mu.Unlock()
	if running {
		return
	}
	m.watchers.Add(1)
	go func() {
		defer m.watchers.Done()
		defer func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			delete(m.controlled, s)
		}()
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		ended := make(chan struct{})
		defer func() { <-ended }()
		defer cancel()
		go func() {
			defer close(ended)
			select {
			case <-m.closing:
				cancel()
			case <-ctx.Done():
			}
		}()
		pace := rate.NewLimiter(requestsPerSecond, requestBurst)
		for {
			err := s.Control(ctx, func(line json.RawMessage, id uint64) json.RawMessage { return m.serve(ctx, s, pace, line, id) })
			select {
			case <-s.Done():
				return
			case <-ctx.Done():
				return
			case <-time.After(retryControl):
				m.log.Warn("serve a sandbox's own requests", "sentry", s.Key(), "error", err)
			}
		}
	}()
}

// requester is a sandbox that asks for something, and what it may do.
type requester struct {
	m     *Node
	b     *instance
	grant *budget
	right *controlGrant
	view  api.Sandbox
	id    uint64 // of the request
}

// serve answers one request of the sandbox in s, at the pace of s: whether there is
// a budget, and so a pace of its tree, is only known after some work.
func (m *Node) serve(ctx context.Context, s *launch.Sentry, pace *rate.Limiter, line []byte, id uint64) (answer json.RawMessage) {
	// The guest chose what is worked on: a defect that it finds must not end the
	// daemon.
	defer func() {
		if v := recover(); v != nil {
			m.log.Error("a sandbox's own request panicked", "sentry", s.Key(), "panic", v, "stack", string(debug.Stack()))
			answer = encode(control.Reply{Error: m.refusal(s.Key(), api.Errorf(api.CodeInternal, "panic: %v", v))})
		}
	}()
	if err := pace.Wait(ctx); err != nil {
		return encode(control.Reply{Error: m.refusal(s.Key(), err)})
	}
	reply, err := m.carryOut(ctx, s, line, id)
	if err == nil {
		out := encode(*reply)
		if len(out) <= control.MaxReply {
			return out
		}
		err = api.Errorf(api.CodeLimit, "it was done, but the answer has %d bytes, more than %d", len(out), control.MaxReply)
	}
	return encode(control.Reply{Error: m.refusal(s.Key(), err)})
}

// refusal returns err as a guest may see it: what concerns the host stays here.
func (m *Node) refusal(key string, err error) *control.Error {
	e := api.AsError(err)
	out := &control.Error{Code: string(e.Code), Detail: e.Detail, Field: e.Field, ExitCode: e.Code.ExitCode()}
	switch e.Code {
	case api.CodeInvalid, api.CodeNotFound, api.CodeConflict, api.CodeWrongState, api.CodeLimit, api.CodeTimeout, api.CodeCanceled:
	default:
		m.log.Warn("a sandbox's own request failed", "sentry", key, "error", err)
		out.Detail = "the daemon could not do that: its log says why"
	}
	return out
}

func (m *Node) carryOut(ctx context.Context, s *launch.Sentry, line []byte, id uint64) (*control.Reply, error) {
	b := m.boxOf(s)
	if b == nil {
		return nil, api.Errorf(api.CodeNotFound, "the sandbox is gone")
	}
	b.mu.Lock()
	r := &requester{m: m, b: b, right: b.rec.Control, view: b.rec.Sandbox, id: id}
	b.mu.Unlock()
	ctx = access.With(ctx, access.Itself(b.tenant(), b.id))
	if r.right == nil || r.view.SelfControl == nil {
		return nil, errNoRight
	}
	if r.grant = m.budget(r.right.Grant); r.grant == nil {
		return nil, api.Errorf(api.CodeWrongState, "the budget of this sandbox is gone: what it was made from was deleted meanwhile")
	}
	if err := r.grant.pace.Wait(ctx); err != nil {
		return nil, err
	}
	req, err := control.Parse(line)
	if err != nil {
		return nil, api.Errorf(api.CodeInvalid, "not a request: %w", err)
	}
	cost, do := 0, r.info
	switch req.Op {
	case control.OpInfo:
	case control.OpTag:
		do = r.tag
	case control.OpFork:
		cost, do = costlyRequest, r.fork
	case control.OpSnapshot:
		cost, do = costlyRequest, r.snapshot
	case control.OpRollback:
		cost, do = costlyRequest, r.rollback
	case control.OpDiff:
		cost, do = costlyRequest, r.diff
	default:
		return nil, api.Invalid("op", "%.100q is not info, fork, snapshot, rollback, diff or tag", req.Op)
	}
	select {
	case r.grant.slots <- struct{}{}:
		defer func() { <-r.grant.slots }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if err := r.grant.pace.WaitN(ctx, cost); err != nil {
		return nil, err
	}
	ctx, note := audit.Begin(ctx, "self-"+string(req.Op), "")
	note.Object(b.id)
	reply, err := do(ctx, req)
	if err != nil {
		note.Failed(api.CodeOf(err))
	}
	if req.Op != control.OpInfo {
		m.AppendAudit(note.Entry())
	}
	return reply, err
}

// boxOf returns the sandbox that runs in s, or nil.
func (m *Node) boxOf(s *launch.Sentry) *instance {
	for _, b := range m.all() {
		b.mu.Lock()
		found := b.sentry == s
		b.mu.Unlock()
		if found {
			return b
		}
	}
	return nil
}

// maxListed bounds the children that info lists: the youngest.
const maxListed = 200

func (r *requester) info(context.Context, *control.Request) (*control.Reply, error) {
	used, depth := r.grant.used(), r.view.SelfControl.Depth
	out := &control.Info{
		ID: r.b.id, Name: r.view.Name, Index: r.view.Identity.ForkIndex, Parent: r.view.Parent,
		Metadata: maps.Clone(r.view.Metadata), Snapshots: []control.Snapshot{}, Children: []control.Child{},
		Budget: control.Budget{
			Forks:     control.Left{Limit: used.Forks, Left: used.Forks - used.UsedForks},
			Depth:     control.Left{Limit: depth, Left: depth},
			Snapshots: control.Left{Limit: used.Snapshots, Left: used.Snapshots - used.UsedSnapshots},
		},
	}
	if out.Metadata == nil {
		out.Metadata = map[string]string{}
	}
	for _, s := range r.snapshots() {
		out.Snapshots = append(out.Snapshots, control.Snapshot{ID: s.id, Name: s.rec.Label})
	}
	children := r.children()
	for _, c := range children[max(0, len(children)-maxListed):] {
		out.Children = append(out.Children, control.Child{ID: c.ID, Index: c.Identity.ForkIndex})
	}
	return &control.Reply{Info: out}, nil
}

// children returns the living sandboxes that this one made, oldest first.
func (r *requester) children() []api.Sandbox {
	var list []api.Sandbox
	for _, b := range r.m.all() {
		b.mu.Lock()
		own := b.rec.Control
		v := b.rec.Sandbox
		b.mu.Unlock()
		if own != nil && own.Made && own.Grant == r.grant.id && v.Parent == r.b.id {
			list = append(list, v)
		}
	}
	slices.SortFunc(list, func(a, b api.Sandbox) int { return a.CreatedAt.Compare(b.CreatedAt) })
	return list
}

// snapshots returns those that this one may return to, oldest first.
func (r *requester) snapshots() []*snapshot {
	r.m.mu.Lock()
	defer r.m.mu.Unlock()
	var list []*snapshot
	for _, id := range r.right.Snapshots {
		if s, ok := r.m.snaps[id]; ok {
			list = append(list, s)
		}
	}
	return list
}

// ownSnapshot finds one by id or name; the last one of that name, and the last of
// all if ref is empty.
func (r *requester) ownSnapshot(field, ref string) (*snapshot, error) {
	list := r.snapshots()
	for _, s := range slices.Backward(list) {
		if ref == "" || s.id == ref || s.rec.Label == ref {
			return s, nil
		}
	}
	e := api.Errorf(api.CodeNotFound, "no snapshot %.100q that this sandbox made", ref)
	if ref == "" {
		e = api.Errorf(api.CodeNotFound, "this sandbox has made no snapshot")
	}
	e.Field = field
	return nil, e
}

func (r *requester) fork(ctx context.Context, req *control.Request) (*control.Reply, error) {
	count := 1
	if req.Count != nil {
		count = *req.Count
	}
	if count < 1 || count > maxSelfForks {
		return nil, api.Invalid("count", "%d is not from 1 to %d", count, maxSelfForks)
	}
	if err := r.right.mayChange(r.view.Metadata, additions(req.Metadata)); err != nil {
		return nil, err
	}
	if r.view.SelfControl.Depth < 1 {
		return nil, api.Errorf(api.CodeLimit, "depth: this sandbox is of the last generation that may be made, and 1 more was asked for")
	}
	done, err := r.grant.reserve(count, 0)
	if err != nil {
		return nil, err
	}
	defer done()
	res, err := r.m.fork(ctx, r.b, api.ForkRequest{Count: count, Metadata: req.Metadata}, &selfRequest{id: r.id, grant: r.grant})
	if err != nil {
		return nil, err
	}
	out := &control.Reply{}
	for i, c := range res.Children {
		if c.Error != nil {
			e := r.m.refusal(r.b.id, c.Error)
			e.Detail = e.Detail[:min(len(e.Detail), 200)]
			out.Children = append(out.Children, control.Child{Index: i, Error: e})
			continue
		}
		out.Children = append(out.Children, control.Child{ID: c.Sandbox.ID, Index: i})
	}
	return out, nil
}

func (r *requester) snapshot(ctx context.Context, req *control.Request) (*control.Reply, error) {
	if req.Name != "" {
		if err := api.ValidName("name", req.Name); err != nil {
			return nil, err
		}
	}
	done, err := r.grant.reserve(0, 1)
	if err != nil {
		return nil, err
	}
	defer done()
	snap, err := r.m.snapshot(ctx, r.b, api.SnapshotRequest{Memory: req.Memory}, &selfRequest{id: r.id, name: req.Name, grant: r.grant})
	if err != nil {
		return nil, err
	}
	return &control.Reply{Snapshot: &control.Snapshot{ID: snap.ID, Name: req.Name}}, nil
}

func (r *requester) rollback(ctx context.Context, req *control.Request) (*control.Reply, error) {
	s, err := r.ownSnapshot("snapshot", req.Snapshot)
	if err != nil {
		return nil, err
	}
	if _, err := r.m.Rollback(ctx, r.b.id, s.id); err != nil {
		return nil, err
	}
	return &control.Reply{Restored: &control.Restored{ID: r.b.id}}, nil // nobody is there to hear it
}

const (
	// maxListedChanges bounds the changes of a diff that are told.
	maxListedChanges = 1000
	maxListedBytes   = 60 << 10
	// diffTimeout bounds the comparison.
	diffTimeout = 30 * time.Second
)

func (r *requester) diff(ctx context.Context, req *control.Request) (*control.Reply, error) {
	ctx, cancel := context.WithTimeout(ctx, diffTimeout)
	defer cancel()
	from, to := r.b.id, req.With
	if !slices.ContainsFunc(r.children(), func(c api.Sandbox) bool { return c.ID == req.With }) {
		s, err := r.ownSnapshot("with", req.With)
		if err != nil {
			return nil, err
		}
		from, to = s.id, r.b.id
	}
	d, err := r.m.Diff(ctx, from, to, api.DiffRequest{})
	if err != nil {
		return nil, err
	}
	out := &control.Diff{From: d.From, To: d.To, Changes: []control.Change{}}
	size := 0
	for _, c := range d.Changes {
		change := control.Change{Kind: string(c.Kind), Path: c.Path, Exact: api.ExactBytes(c.Path), Old: c.OldPath, OldExact: api.ExactBytes(c.OldPath)}
		text, err := json.Marshal(change)
		if err != nil {
			return nil, fmt.Errorf("encode a change: %w", err)
		}
		if size += len(text) + 1; len(out.Changes) == maxListedChanges || size > maxListedBytes {
			break
		}
		out.Changes = append(out.Changes, change)
	}
	out.Truncated = len(d.Changes) - len(out.Changes)
	return &control.Reply{Diff: out}, nil
}

func (r *requester) tag(ctx context.Context, req *control.Request) (*control.Reply, error) {
	change := additions(req.Set)
	for _, k := range req.Remove {
		change[k] = nil
	}
	if len(change) == 0 {
		return nil, api.Invalid("set", "there is nothing to set or remove")
	}
	out := &control.Reply{}
	err := r.m.edit(ctx, r.b, func(rec *record) (err error) {
		if rec.Control == nil {
			return errNoRight
		}
		if err := rec.Control.mayChange(rec.Sandbox.Metadata, change); err != nil {
			return err
		}
		if rec.Sandbox.Metadata, err = api.ChangeMetadata(rec.Sandbox.Metadata, change); err != nil {
			return err
		}
		out.Tagged = &control.Tagged{Metadata: rec.Sandbox.Metadata}
		rec.Control = rec.Control.retagged(change, true)
		return nil
	})
	return out, err
}
