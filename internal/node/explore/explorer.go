package explore

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/node/background"
	"ramet.dev/ramet/internal/service/access"
)

// Label is the key of the metadata of attempts that has the id of their exploration.
const Label = "ramet/exploration"

// keptExplorations is how many explorations of a tenant are kept that have ended.
const keptExplorations = 100

// Sandboxes is what explorations do with sandboxes. Callers are in contexts, as everywhere.
type Sandboxes interface {
	// Source returns a sandbox that the caller sees, its tenant, and the ids of its ancestors with
	// its own at the end.
	Source(ctx context.Context, ref string) (sandbox api.Sandbox, tenant string, line []string, err error)
	Fork(ctx context.Context, ref string, req api.ForkRequest) (*api.ForkResult, error)
	Exec(ctx context.Context, ref string, req api.ExecRequest, streams api.ExecIO) (*api.ExecResult, error)
	RunCode(ctx context.Context, ref string, req api.RunCodeRequest, streams api.RunIO) (*api.RunResult, error)
	Contexts(ctx context.Context, ref string) ([]api.Context, error)
	WriteFile(ctx context.Context, ref string, req api.WriteRequest, from io.Reader) (*api.FileInfo, error)
	// ReadFile returns at most the last limit bytes of a file.
	ReadFile(ctx context.Context, ref, path string, limit int) ([]byte, error)
	Diff(ctx context.Context, from, to string, req api.DiffRequest) (*api.Diff, error)
	Merge(ctx context.Context, into string, req api.MergeRequest) (*api.MergeResult, error)
	Promote(ctx context.Context, child string) (*api.Sandbox, error)
	Update(ctx context.Context, ref string, req api.UpdateRequest) (*api.Sandbox, error)
	// Destroy ends a sandbox, whoever sees it. It is a CodeNotFound error if there is none.
	Destroy(id, reason string) error
	// Labelled returns the sandboxes of a tenant that have a value in their metadata, each with
	// the ids of its ancestors and its own at the end.
	Labelled(tenant, key, value string) map[string][]string
	// PrivateMiB returns the memory of a sandbox that it shares with no other.
	PrivateMiB(ctx context.Context, ref string) (float64, error)
}

// Records stores explorations.
type Records interface {
	Save(ctx context.Context, id string, doc any) error
	Remove(ctx context.Context, id string) error
	Each(ctx context.Context, fn func(id string, doc []byte) error) error
}

// Config is what an Explorer works with.
type Config struct {
	Sandboxes Sandboxes
	Records   Records
	Audit     func(api.AuditEntry)
	Log       *slog.Logger
}

// Explorer is the service of explorations. It is safe for concurrent use.
type Explorer struct {
	cfg   Config
	group *background.Group // leads explorations
	end   context.CancelCauseFunc
	ctx   context.Context // ends when the daemon does

	mu   sync.Mutex
	runs map[string]*run
}

var (
	errCanceled  = api.Errorf(api.CodeCanceled, "the exploration was canceled")
	errDaemon    = api.Errorf(api.CodeUnavailable, "the daemon ended")
	errTimeLimit = api.Errorf(api.CodeTimeout, "the time limit of the exploration has passed")
)

// Open reads the explorations of earlier daemons. Resume ends those that had not ended.
func Open(ctx context.Context, cfg Config) (*Explorer, error) {
	e := &Explorer{cfg: cfg, group: background.New(ctx), runs: map[string]*run{}}
	e.ctx, e.end = context.WithCancelCause(e.group.Context())
	err := cfg.Records.Each(ctx, func(id string, doc []byte) error {
		r := &run{table: table{explorer: e, changed: make(chan struct{})}, over: make(chan struct{})}
		if err := json.Unmarshal(doc, &r.rec); err != nil {
			return fmt.Errorf("read exploration %s: %w", id, err)
		}
		r.restarted, r.base = true, max(time.Now().UnixMicro(), r.rec.Exploration.Seq+1)
		r.rec.Exploration.Seq = r.base
		if r.rec.Exploration.State.Final() {
			close(r.over)
			r.event(api.ExplorationEvent{Kind: api.ExplorationChanged})
		}
		e.runs[id] = r
		return nil
	})
	return e, err
}

// Resume ends the explorations that an earlier daemon left: attempts that were to be compared with
// others are destroyed, and winners that were being promoted or merged still are.
func (e *Explorer) Resume() {
	for _, r := range e.all() {
		if !r.rec.Exploration.State.Final() {
			e.group.Go(func(context.Context) { r.lead(e.ctx, func(ctx context.Context) { r.resume(ctx) }) })
		}
	}
}

// Close ends all explorations, and waits for them.
func (e *Explorer) Close() {
	e.end(errDaemon)
	e.group.Wait()
}

// Explore begins an exploration of a sandbox. It returns when the first attempts were forked, and
// the error if they were not; then there is no exploration. The exploration goes on by itself, also
// if ctx ends.
func (e *Explorer) Explore(ctx context.Context, ref string, plan api.ExplorePlan) (*api.Exploration, error) {
	source, tenant, line, err := e.cfg.Sandboxes.Source(ctx, ref)
	if err != nil {
		return nil, err
	}
	if err := access.From(ctx).MayMake("sandboxes"); err != nil {
		return nil, err
	}
	if err := plan.Valid(); err != nil {
		return nil, err
	}
	r, err := newRun(e, source, tenant, line, plan.Completed())
	if err != nil {
		return nil, err
	}
	if err := e.add(ctx, r); err != nil {
		return nil, fmt.Errorf("explore: %w", err)
	}
	own := context.WithoutCancel(ctx)
	e.group.Go(func(context.Context) {
		ctx, cancel := context.WithCancelCause(own)
		defer cancel(nil)
		defer context.AfterFunc(e.ctx, func() { cancel(context.Cause(e.ctx)) })()
		r.lead(ctx, r.explore)
	})
	// Also for a caller that has gone: one that asks again with its idempotency key finds this
	// exploration, and does not begin another one.
	<-r.begun
	if r.refused != nil {
		return nil, fmt.Errorf("explore: %w", r.refused)
	}
	return r.view(), nil
}

// add lists a new exploration, and forgets those of its tenant that ended long ago.
func (e *Explorer) add(ctx context.Context, r *run) error {
	e.mu.Lock()
	if e.ctx.Err() != nil {
		e.mu.Unlock()
		return errDaemon
	}
	e.runs[r.id()] = r
	var old []*run
	for _, o := range e.runs {
		if o.rec.Tenant == r.rec.Tenant && o.isOver() {
			old = append(old, o)
		}
	}
	e.mu.Unlock()
	slices.SortFunc(old, func(a, b *run) int { return b.rec.Exploration.CreatedAt.Compare(a.rec.Exploration.CreatedAt) })
	for _, o := range old[min(keptExplorations, len(old)):] {
		e.forget(ctx, o)
	}
	if err := r.save(ctx); err != nil {
		e.forget(ctx, r)
		return err
	}
	return nil
}

// forget removes an exploration that has ended, or has not begun.
func (e *Explorer) forget(ctx context.Context, r *run) {
	e.mu.Lock()
	delete(e.runs, r.id())
	e.mu.Unlock()
	if err := e.cfg.Records.Remove(context.WithoutCancel(ctx), r.id()); err != nil {
		e.cfg.Log.Warn("forget an exploration", "id", r.id(), "error", err)
	}
}

func (e *Explorer) all() []*run {
	e.mu.Lock()
	defer e.mu.Unlock()
	list := make([]*run, 0, len(e.runs))
	for _, r := range e.runs {
		list = append(list, r)
	}
	return list
}

// find returns the exploration called id, if the caller sees it.
func (e *Explorer) find(ctx context.Context, id string) (*run, error) {
	if !api.IsID(api.KindExploration, id) {
		return nil, api.Invalid("id", "%q is not the id of an exploration, such as xpl_jlpofkb4jzkxl33l", id)
	}
	caller := access.From(ctx)
	if err := caller.Known(); err != nil {
		return nil, err
	}
	e.mu.Lock()
	r := e.runs[id]
	e.mu.Unlock()
	if r == nil || !caller.Sees(r.rec.Tenant, r.rec.Line) {
		return nil, api.NotFound("exploration", id)
	}
	return r, nil
}

// SandboxGone ends the explorations of a sandbox that was destroyed, or promoted to its parent: there is
// nothing any more that their results are for.
func (e *Explorer) SandboxGone(id string) {
	for _, r := range e.all() {
		if r.rec.Exploration.Sandbox == id {
			r.stop(api.Errorf(api.CodeSandboxDied, "the explored sandbox %s is gone", id))
		}
	}
}

// Explorations returns the explorations that the caller sees and that match, in any order, without
// outputs and comparisons.
func (e *Explorer) Explorations(ctx context.Context, filter api.ExplorationFilter) ([]api.Exploration, error) {
	caller := access.From(ctx)
	if err := caller.Known(); err != nil {
		return nil, err
	}
	of := filter.Sandbox
	if of != "" {
		source, _, _, err := e.cfg.Sandboxes.Source(ctx, of)
		switch {
		case err == nil:
			of = source.ID
		case !api.IsID(api.KindSandbox, of): // an id may be of a sandbox that is gone
			return nil, err
		}
	}
	list := []api.Exploration{}
	for _, r := range e.all() {
		if !caller.Sees(r.rec.Tenant, r.rec.Line) {
			continue
		}
		x := r.view()
		if of != "" && x.Sandbox != of || filter.State != "" && x.State != filter.State {
			continue
		}
		for i := range x.Children {
			x.Children[i] = brief(&x.Children[i])
		}
		list = append(list, *x)
	}
	return list, nil
}

// GetExploration returns an exploration. With wait, it returns when that has ended.
func (e *Explorer) GetExploration(ctx context.Context, id string, wait bool) (*api.Exploration, error) {
	r, err := e.find(ctx, id)
	if err != nil {
		return nil, err
	}
	if wait {
		select {
		case <-r.over:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-e.ctx.Done(): // r may be left to the next daemon
			return nil, context.Cause(e.ctx)
		}
	}
	return r.view(), nil
}

// ExplorationEvents calls each with the events of an exploration after since, in order, and with
// follow also with those to come, until it has ended. It calls began before the first one.
func (e *Explorer) ExplorationEvents(ctx context.Context, id string, since int64, follow bool, began func(), each func(api.ExplorationEvent) error) error {
	r, err := e.find(ctx, id)
	if err != nil {
		return err
	}
	began()
	return r.read(ctx, since, follow, each)
}

// CancelExploration stops an exploration, and returns it when its attempts are gone. It changes
// nothing of one that has ended, and waits for one that is finishing.
func (e *Explorer) CancelExploration(ctx context.Context, id string) (*api.Exploration, error) {
	r, err := e.find(ctx, id)
	if err != nil {
		return nil, err
	}
	r.stop(errCanceled)
	return e.GetExploration(ctx, id, true)
}

// RemoveExploration forgets an exploration, after it was canceled if it had not ended. Attempts
// that it kept stay.
func (e *Explorer) RemoveExploration(ctx context.Context, id string) error {
	if _, err := e.CancelExploration(ctx, id); err != nil {
		return err
	}
	r, err := e.find(ctx, id)
	if err != nil {
		return err
	}
	e.forget(ctx, r)
	return nil
}
