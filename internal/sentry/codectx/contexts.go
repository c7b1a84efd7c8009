package codectx

import (
	"context"
	"fmt"
	"slices"
	"sync"
	gotime "time"

	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
	"gvisor.dev/gvisor/pkg/state"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/interp"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/sentry/gate"
	"ramet.dev/ramet/internal/sentry/kern"
	"ramet.dev/ramet/internal/sentry/saved"
	"ramet.dev/ramet/internal/sentry/spawn"
)

const (
	// StateKey names the contexts in the kernel's saved state.
	StateKey = "ramet.contexts"
	// maxContexts bounds the contexts of a sandbox.
	maxContexts = 64
	// maxWaiting bounds the runs that wait for one context.
	maxWaiting = 64
)

// Contexts are the interpreters of a sandbox. They are part of the saved state.
// What is saved is only changed within an access to the gate, or by operations that have
// entered it.
type Contexts struct {
	mu   sync.Mutex // not saved
	list []*codeContext
	made int64 // how many names were made up

	// Not saved.
	k       *kern.Kernel
	gate    *gate.Gate
	spawner *spawn.Spawner
}

// New returns no contexts. The caller saves them with the kernel k under StateKey.
func New(k *kern.Kernel, g *gate.Gate, s *spawn.Spawner) *Contexts {
	c := &Contexts{}
	c.Thaw(k, g, s)
	return c
}

// Thaw readies contexts that were loaded with the kernel k.
func (cs *Contexts) Thaw(k *kern.Kernel, g *gate.Gate, s *spawn.Spawner) {
	cs.k, cs.gate, cs.spawner = k, g, s
}

// codeContext is one context: an interpreter at a time, and the queue of runs for it.
type codeContext struct {
	// Saved and constant.
	name, language string
	cwd, user      string
	env            map[string]string
	created        int64 // nanoseconds since 1970

	// Saved, and changed by the run that has the turn, with Contexts.mu.
	in       *interpreter // nil until it is first needed
	restarts int64

	// Of the run that has the turn, not saved.
	unseeded bool     // the interpreter has the generators of its parent
	seeding  *seeding // that was asked to change this, if not nil

	turns turns // not saved
	ended bool  // removed; guarded by Contexts.mu, not saved
}

// interpreter is one process that runs the cells of a context.
type interpreter struct {
	// Saved. The sentry's ends of its pipes are nil when it has ended.
	tg                                *kernel.ThreadGroup
	pid                               int32
	requests, answers, stdout, stderr *vfs.FileDescription

	mu sync.Mutex // not saved; below the gate's accesses
	// Saved and guarded by mu.
	unsent  []byte          // of a request
	split   interp.Splitter // the part of an answer that was read
	hello   []byte          // the part of its first answer that was read
	rest    []byte          // the part of its last answer about its signals and generators that was read
	ready   bool            // that was read
	version string
	last    uint32 // number of the last request
	busy    uint32 // number of the request that it serves, 0 for none
	// calm is whether it said last that no signal runs code of the user's, and generators
	// are the random generators that it said it has.
	calm       bool
	generators []string
	over       bool // it has ended, with status
	status     uint32

	// Not saved.
	k       *kern.Kernel
	gate    *gate.Gate
	writing sync.Mutex    // held while a request waits to be written; above the gate's accesses
	current *run          // guarded by mu
	exited  chan struct{} // closed when the process has exited
	said    chan struct{} // closed when it is ready
	done    chan struct{} // closed when it is over and its pipes are closed
}

// prepare makes what is not saved.
func (in *interpreter) prepare(k *kern.Kernel, g *gate.Gate) {
	in.k, in.gate = k, g
	in.exited, in.said, in.done = make(chan struct{}), make(chan struct{}), make(chan struct{})
	if in.ready {
		close(in.said)
	}
}

// find returns a context by name.
func (cs *Contexts) find(name string) (*codeContext, error) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if i := cs.indexLocked(name); i >= 0 {
		return cs.list[i], nil
	}
	return nil, api.NotFound("context", name)
}

func (cs *Contexts) indexLocked(name string) int {
	return slices.IndexFunc(cs.list, func(x *codeContext) bool { return x.name == name })
}

// add enters a context that has no interpreter yet. Without a name one is made up.
func (cs *Contexts) add(name string, spec *wire.ContextSpec) (*codeContext, error) {
	if err := cs.gate.EnterRunning(); err != nil {
		return nil, err
	}
	defer cs.gate.Leave()
	if _, ok := interp.ProgramOf(spec.Language); !ok {
		return nil, api.Invalid("language", "%q is not python, node or bash", spec.Language)
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if len(cs.list) >= maxContexts {
		return nil, api.Errorf(api.CodeLimit, "the sandbox has %d contexts already", maxContexts)
	}
	for name == "" {
		cs.made++
		if n := fmt.Sprintf("%s-%d", spec.Language, cs.made); cs.indexLocked(n) < 0 {
			name = n
		}
	}
	if cs.indexLocked(name) >= 0 {
		return nil, api.Errorf(api.CodeNameTaken, "a context %q exists", name)
	}
	x := &codeContext{
		name: name, language: string(spec.Language), cwd: spec.Cwd, user: spec.User, env: spec.Env, created: gotime.Now().UnixNano(),
	}
	cs.list = append(cs.list, x)
	return x, nil
}

// List lists the contexts, the oldest first.
func (cs *Contexts) List() []api.Context {
	cs.mu.Lock()
	list := slices.Clone(cs.list)
	cs.mu.Unlock()
	all := []api.Context{}
	for _, c := range list {
		all = append(all, *cs.describe(c))
	}
	return all
}

func (cs *Contexts) describe(c *codeContext) *api.Context {
	cs.mu.Lock()
	in, restarts := c.in, c.restarts
	cs.mu.Unlock()
	out := &api.Context{
		Name: c.name, Language: c.language, State: api.ContextEnded, Cwd: c.cwd,
		Waiting: c.turns.count(), Restarts: int(restarts), CreatedAt: gotime.Unix(0, c.created),
	}
	if in == nil {
		return out
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.over {
		return out
	}
	out.PID, out.Version, out.State = int(in.pid), in.version, api.ContextIdle
	if in.busy != 0 || !in.ready {
		out.State = api.ContextBusy
	}
	return out
}

// Make makes a context and starts its interpreter.
func (cs *Contexts) Make(req *wire.Context, gone <-chan struct{}) (*api.Context, error) {
	c, err := cs.add(req.Name, &req.ContextSpec)
	if err != nil {
		return nil, err
	}
	if err := c.turns.take(gone); err != nil {
		return nil, err
	}
	_, err = cs.started(c)
	c.turns.give()
	if err != nil {
		cs.remove(c)
		return nil, err
	}
	return cs.describe(c), nil
}

// Interrupt ends the run that has the turn in a context, whether it has begun or not, and
// reports whether there is one.
func (cs *Contexts) Interrupt(name string) (*wire.Interrupted, error) {
	c, err := cs.find(name)
	if err != nil {
		return nil, err
	}
	return &wire.Interrupted{Interrupted: c.turns.interrupt()}, nil
}

// Restart gives a context a new interpreter. The run that has the turn ends with the old
// interpreter; runs that wait get the new one.
func (cs *Contexts) Restart(name string, gone <-chan struct{}) (*api.Context, error) {
	c, err := cs.find(name)
	if err != nil {
		return nil, err
	}
	if in := cs.interpreterOf(c); in != nil {
		in.kill()
		in.awaitEnd()
	}
	if err := c.turns.take(gone); err != nil {
		return nil, err
	}
	defer c.turns.give()
	if _, err := cs.started(c); err != nil {
		return nil, err
	}
	return cs.describe(c), nil
}

// End ends a context.
func (cs *Contexts) End(name string) error {
	c, err := cs.find(name)
	if err != nil {
		return err
	}
	cs.remove(c)
	return nil
}

// remove takes a context from the list and ends its interpreter. A fork comes
// before or after both: nobody could end the interpreter in a child that has no such
// context.
func (cs *Contexts) remove(c *codeContext) {
	cs.gate.BeginIO()
	cs.mu.Lock()
	cs.list = slices.DeleteFunc(cs.list, func(x *codeContext) bool { return x == c })
	c.ended = true
	in := c.in
	cs.mu.Unlock()
	if in != nil {
		in.kill()
	}
	cs.gate.EndIO()
	if in != nil {
		in.awaitEnd()
	}
}

func (cs *Contexts) interpreterOf(c *codeContext) *interpreter {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return c.in
}

// The methods below are what gVisor's state package asks of saved types.

// StateTypeName implements state.Type.
func (*Contexts) StateTypeName() string { return "ramet.dev/ramet/internal/sentry/codectx.Contexts" }

// StateFields implements state.Type.
func (*Contexts) StateFields() []string { return []string{"list", "made"} }

// StateSave implements state.SaverLoader.
func (cs *Contexts) StateSave(sink state.Sink) {
	sink.Save(0, &cs.list)
	sink.Save(1, &cs.made)
}

// StateLoad implements state.SaverLoader.
func (cs *Contexts) StateLoad(_ context.Context, src state.Source) {
	src.Load(0, &cs.list)
	src.Load(1, &cs.made)
}

func (*codeContext) StateTypeName() string {
	return "ramet.dev/ramet/internal/sentry/codectx.codeContext"
}
func (*codeContext) StateFields() []string {
	return []string{"name", "language", "cwd", "user", "env", "created", "in", "restarts"}
}
func (c *codeContext) fields() []any {
	return []any{&c.name, &c.language, &c.cwd, &c.user, &c.env, &c.created, &c.in, &c.restarts}
}
func (c *codeContext) StateSave(sink state.Sink)                     { saved.Save(sink, c.fields()) }
func (c *codeContext) StateLoad(_ context.Context, src state.Source) { saved.Load(src, c.fields()) }

func (*interpreter) StateTypeName() string {
	return "ramet.dev/ramet/internal/sentry/codectx.interpreter"
}
func (*interpreter) StateFields() []string {
	return []string{
		"tg", "pid", "requests", "answers", "stdout", "stderr", "unsent", "head", "kind", "run", "left", "hello", "ready", "version", "last", "busy",
		"over", "status", "rest", "calm", "generators",
	}
}
func (in *interpreter) fields() []any {
	return []any{
		&in.tg, &in.pid, &in.requests, &in.answers, &in.stdout, &in.stderr, &in.unsent,
		&in.split.Head, (*byte)(&in.split.Kind), &in.split.Run, &in.split.Left,
		&in.hello, &in.ready, &in.version, &in.last, &in.busy, &in.over, &in.status,
		&in.rest, &in.calm, &in.generators,
	}
}
func (in *interpreter) StateSave(sink state.Sink)                     { saved.Save(sink, in.fields()) }
func (in *interpreter) StateLoad(_ context.Context, src state.Source) { saved.Load(src, in.fields()) }

func init() {
	state.Register((*Contexts)(nil))
	state.Register((*codeContext)(nil))
	state.Register((*interpreter)(nil))
}
