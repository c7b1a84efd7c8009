package guest

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
)

const (
	// contextsKey names the contexts in the kernel's saved state.
	contextsKey = "ramet.contexts"
	// maxContexts bounds the contexts of a sandbox.
	maxContexts = 64
	// maxWaiting bounds the runs that wait for one context.
	maxWaiting = 64
)

// contexts are the interpreters of a sandbox. They are part of the saved state.
// What is saved is only changed by who holds Guest.io or Guest.ops for reading.
type contexts struct {
	mu   sync.Mutex // not saved
	list []*codeContext
	made int64 // how many names were made up
}

func newContexts() *contexts { return &contexts{} }

// codeContext is one context: an interpreter at a time, and those who wait for it.
type codeContext struct {
	// Saved and constant.
	name, language string
	cwd, user      string
	env            map[string]string
	created        int64 // nanoseconds since 1970

	// Saved, and changed by who has the turn, with contexts.mu.
	in       *interpreter // nil until it is first needed
	restarts int64

	// Of who has the turn, not saved.
	unseeded bool     // the interpreter has the generators of its parent
	seeding  *seeding // that was asked to change this, if not nil

	turns turns // not saved
	ended bool  // removed; guarded by contexts.mu, not saved
}

// interpreter is one process that runs the cells of a context.
type interpreter struct {
	// Saved. The sentry's ends of its pipes are nil when it has ended.
	tg                                *kernel.ThreadGroup
	pid                               int32
	requests, answers, stdout, stderr *vfs.FileDescription

	mu sync.Mutex // not saved; below Guest.io
	// Saved and guarded by mu.
	unsent  []byte          // of a request
	split   interp.Splitter // what was read of an answer
	hello   []byte          // what was read of its first one
	rest    []byte          // what was read of the last one that says how it rests
	ready   bool            // that was read
	version string
	last    uint32 // number of the last request
	busy    uint32 // number of the request that it serves, 0 for none
	// calm says that it said last that no signal runs code of the user's, and
	// generators are those that it said it has.
	calm       bool
	generators []string
	over       bool // it has ended, with status
	status     uint32

	// Not saved.
	writing sync.Mutex    // held by who waits until a request can be written; above Guest.io
	current *run          // guarded by mu
	exited  chan struct{} // closed when the process has exited
	said    chan struct{} // closed when it is ready
	done    chan struct{} // closed when it is over and nobody uses its pipes any more
}

// prepare makes what is not saved.
func (in *interpreter) prepare() {
	in.exited, in.said, in.done = make(chan struct{}), make(chan struct{}), make(chan struct{})
	if in.ready {
		close(in.said)
	}
}

// turns is a queue: one has the turn, the others get it in the order in which they
// came.
type turns struct {
	mu      sync.Mutex
	taken   bool
	waiting []chan struct{}
	stop    chan struct{} // has an item when what runs shall end, nil until somebody uses it
}

var errQueue = api.Errorf(api.CodeLimit, "%d runs wait for this context already", maxWaiting)

// take waits for the turn, or for gone.
func (t *turns) take(gone <-chan struct{}) error {
	t.mu.Lock()
	if !t.taken {
		t.taken = true
		t.mu.Unlock()
		return nil
	}
	if len(t.waiting) >= maxWaiting {
		t.mu.Unlock()
		return errQueue
	}
	mine := make(chan struct{})
	t.waiting = append(t.waiting, mine)
	t.mu.Unlock()
	select {
	case <-mine:
		return nil
	case <-gone:
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := slices.Index(t.waiting, mine); i >= 0 {
		t.waiting = slices.Delete(t.waiting, i, i+1)
	} else {
		t.nextLocked() // it was given at the same moment
	}
	return errGone
}

// give hands the turn to who comes next.
func (t *turns) give() {
	t.forget()
	t.pass()
}

// pass is give by one who prepared what the next runs: an interrupt is for that.
func (t *turns) pass() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.nextLocked()
}

func (t *turns) nextLocked() {
	if len(t.waiting) == 0 {
		t.taken = false
		t.forgetLocked()
		return
	}
	close(t.waiting[0])
	t.waiting = t.waiting[1:]
}

func (t *turns) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.waiting)
}

// interrupt has what runs end, or what who has the turn is about to run. It reports
// whether somebody has the turn.
func (t *turns) interrupt() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.taken {
		return false
	}
	select {
	case t.stopLocked() <- struct{}{}:
	default: // it was asked for already
	}
	return true
}

// interrupts is for who has the turn: it has an item after interrupt.
func (t *turns) interrupts() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.stopLocked()
}

func (t *turns) stopLocked() chan struct{} {
	if t.stop == nil {
		t.stop = make(chan struct{}, 1)
	}
	return t.stop
}

// forget drops an interrupt: what it was for is over.
func (t *turns) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forgetLocked()
}

func (t *turns) forgetLocked() {
	select {
	case <-t.stop:
	default:
	}
}

// find returns a context by name.
func (c *contexts) find(name string) (*codeContext, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := c.indexLocked(name); i >= 0 {
		return c.list[i], nil
	}
	return nil, api.NotFound("context", name)
}

func (c *contexts) indexLocked(name string) int {
	return slices.IndexFunc(c.list, func(x *codeContext) bool { return x.name == name })
}

// add enters a context that has no interpreter yet. Without a name one is made up.
func (g *Guest) addContext(name string, spec *wire.ContextSpec) (*codeContext, error) {
	g.ops.RLock()
	defer g.ops.RUnlock()
	if g.paused {
		return nil, errPaused
	}
	if _, ok := interp.ProgramOf(spec.Language); !ok {
		return nil, api.Invalid("language", "%q is not python, node or bash", spec.Language)
	}
	c := g.contexts
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.list) >= maxContexts {
		return nil, api.Errorf(api.CodeLimit, "the sandbox has %d contexts already", maxContexts)
	}
	for name == "" {
		c.made++
		if n := fmt.Sprintf("%s-%d", spec.Language, c.made); c.indexLocked(n) < 0 {
			name = n
		}
	}
	if c.indexLocked(name) >= 0 {
		return nil, api.Errorf(api.CodeNameTaken, "a context %q exists", name)
	}
	x := &codeContext{
		name: name, language: string(spec.Language), cwd: spec.Cwd, user: spec.User, env: spec.Env, created: gotime.Now().UnixNano(),
	}
	c.list = append(c.list, x)
	return x, nil
}

// Contexts lists the contexts, the oldest first.
func (g *Guest) Contexts() []api.Context {
	g.contexts.mu.Lock()
	list := slices.Clone(g.contexts.list)
	g.contexts.mu.Unlock()
	all := []api.Context{}
	for _, c := range list {
		all = append(all, *g.describeContext(c))
	}
	return all
}

func (g *Guest) describeContext(c *codeContext) *api.Context {
	g.contexts.mu.Lock()
	in, restarts := c.in, c.restarts
	g.contexts.mu.Unlock()
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

// MakeContext makes a context and starts its interpreter.
func (g *Guest) MakeContext(req *wire.Context, gone <-chan struct{}) (*api.Context, error) {
	c, err := g.addContext(req.Name, &req.ContextSpec)
	if err != nil {
		return nil, err
	}
	if err := c.turns.take(gone); err != nil {
		return nil, err
	}
	_, err = g.started(c)
	c.turns.give()
	if err != nil {
		g.removeContext(c)
		return nil, err
	}
	return g.describeContext(c), nil
}

// InterruptContext ends what a context runs, or is about to, and reports whether that
// is anything.
func (g *Guest) InterruptContext(name string) (*wire.Interrupted, error) {
	c, err := g.contexts.find(name)
	if err != nil {
		return nil, err
	}
	return &wire.Interrupted{Interrupted: c.turns.interrupt()}, nil
}

// RestartContext gives a context a new interpreter. What it runs ends with the old
// one; those who wait get the new one.
func (g *Guest) RestartContext(name string, gone <-chan struct{}) (*api.Context, error) {
	c, err := g.contexts.find(name)
	if err != nil {
		return nil, err
	}
	if in := g.interpreterOf(c); in != nil {
		g.killInterpreter(in)
		in.awaitEnd()
	}
	if err := c.turns.take(gone); err != nil {
		return nil, err
	}
	defer c.turns.give()
	if _, err := g.started(c); err != nil {
		return nil, err
	}
	return g.describeContext(c), nil
}

// EndContext ends a context.
func (g *Guest) EndContext(name string) error {
	c, err := g.contexts.find(name)
	if err != nil {
		return err
	}
	g.removeContext(c)
	return nil
}

// removeContext takes a context from the list and ends its interpreter. A fork comes
// before or after both: nobody could end the interpreter in a child that has no such
// context.
func (g *Guest) removeContext(c *codeContext) {
	g.io.RLock()
	g.contexts.mu.Lock()
	g.contexts.list = slices.DeleteFunc(g.contexts.list, func(x *codeContext) bool { return x == c })
	c.ended = true
	in := c.in
	g.contexts.mu.Unlock()
	if in != nil {
		g.killInterpreter(in)
	}
	g.io.RUnlock()
	if in != nil {
		in.awaitEnd()
	}
}

func (g *Guest) interpreterOf(c *codeContext) *interpreter {
	g.contexts.mu.Lock()
	defer g.contexts.mu.Unlock()
	return c.in
}

// The methods below are what gVisor's state package asks of saved types.

func (*contexts) StateTypeName() string { return "ramet.dev/ramet/internal/sentry/guest.contexts" }
func (*contexts) StateFields() []string { return []string{"list", "made"} }
func (c *contexts) StateSave(sink state.Sink) {
	sink.Save(0, &c.list)
	sink.Save(1, &c.made)
}
func (c *contexts) StateLoad(_ context.Context, src state.Source) {
	src.Load(0, &c.list)
	src.Load(1, &c.made)
}

func (*codeContext) StateTypeName() string {
	return "ramet.dev/ramet/internal/sentry/guest.codeContext"
}
func (*codeContext) StateFields() []string {
	return []string{"name", "language", "cwd", "user", "env", "created", "in", "restarts"}
}
func (c *codeContext) fields() []any {
	return []any{&c.name, &c.language, &c.cwd, &c.user, &c.env, &c.created, &c.in, &c.restarts}
}
func (c *codeContext) StateSave(sink state.Sink) {
	for i, f := range c.fields() {
		sink.Save(i, f)
	}
}
func (c *codeContext) StateLoad(_ context.Context, src state.Source) {
	for i, f := range c.fields() {
		src.Load(i, f)
	}
}

func (*interpreter) StateTypeName() string {
	return "ramet.dev/ramet/internal/sentry/guest.interpreter"
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
func (in *interpreter) StateSave(sink state.Sink) {
	for i, f := range in.fields() {
		sink.Save(i, f)
	}
}
func (in *interpreter) StateLoad(_ context.Context, src state.Source) {
	for i, f := range in.fields() {
		src.Load(i, f)
	}
}

func init() {
	state.Register((*contexts)(nil))
	state.Register((*codeContext)(nil))
	state.Register((*interpreter)(nil))
}
