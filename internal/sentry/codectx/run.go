package codectx

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	gotime "time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/interp"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/sentry/gate"
	"ramet.dev/ramet/internal/sentry/kern"
	"ramet.dev/ramet/internal/sentry/stages"
)

const (
	// maxResults bounds the results of one run, in bytes.
	maxResults = 32 << 20
	// resultCost is what a result counts besides its length, because its collector keeps
	// something of each.
	resultCost = 1 << 10
	// interruptTimeout is how long a run may take to end after its timeout.
	interruptTimeout = 2 * gotime.Second
	// goneTimeout is how long a cell may take to end after its caller went away, which is no
	// fault of the cell's: a call of a library that cannot be interrupted may end, and the
	// interpreter keeps its variables.
	goneTimeout = 10 * gotime.Second
	// seedTimeout is how long a fork waits until interpreters have new seeds.
	seedTimeout = 2 * gotime.Second
	// unreadTimeout is how long a caller may take to read a packet while others
	// wait for the context.
	unreadTimeout = 10 * gotime.Second
	// unreadCheck is how often it is looked whether the caller reads.
	unreadCheck = gotime.Second
)

// RunIO connects a run to its caller. After an error nothing is passed on any
// more. The data are valid until the call returns.
type RunIO struct {
	Output func(wire.Stream, []byte) error
	Part   func(interp.Part) error
	Cut    func()          // makes these calls fail, also a call that waits; does not wait itself
	Gone   <-chan struct{} // closed when the caller went away
}

// run is one request to an interpreter.
type run struct {
	id   uint32
	kind interp.Kind
	io   RunIO // used by the goroutine that reads from the interpreter
	size int   // of the results that were passed on
	amid bool  // a part of the present result was seen
	drop bool  // the present result is dropped

	passing atomic.Int64 // since when something waits to be passed on, in nanoseconds since 1970; 0 if nothing does

	done      chan struct{} // closed when it is over; the fields below do not change after that
	truncated bool
	unread    bool // not all was passed on
	died      *wire.Exited
}

func newRun(rio RunIO) *run {
	return &run{io: rio, done: make(chan struct{})}
}

// output passes on what was printed. A nil run drops it.
func (r *run) output(stream wire.Stream, data []byte) {
	if r != nil && r.io.Output != nil {
		r.pass(func() error { return r.io.Output(stream, data) })
	}
}

// pass passes something on.
func (r *run) pass(do func() error) {
	r.passing.Store(gotime.Now().UnixNano())
	defer r.passing.Store(0)
	if do() != nil {
		r.io.Output, r.io.Part, r.unread = nil, nil, true
	}
}

// unreadFor is how long something has been waiting to be passed on.
func (r *run) unreadFor() gotime.Duration {
	if since := r.passing.Load(); since != 0 {
		return gotime.Since(gotime.Unix(0, since))
	}
	return 0
}

// cut notes that the caller does not read: nothing is passed on any more.
func (r *run) cut() {
	if r.io.Cut != nil {
		r.io.Cut()
	}
}

// part passes on a part of an answer, unless it is too much.
func (r *run) part(p interp.Part) {
	if p.Kind == interp.KindResult {
		if !r.amid {
			size := len(p.Data) + p.Left + resultCost
			if r.drop = r.size+size > maxResults; r.drop {
				r.truncated = true
			} else {
				r.size += size
			}
		}
		if r.amid = !p.Last; r.drop {
			return
		}
	}
	if r.io.Part != nil {
		r.pass(func() error { return r.io.Part(p) })
	}
}

var errUnread = api.Errorf(api.CodeTimeout, "the output was not read, so the run was interrupted and the rest of it dropped")

// Run does one run in a context, after the runs that came before. It returns when the run is
// over, also if the caller went away: then the run is interrupted, and a cell that goes on
// is ended with its interpreter.
func (cs *Contexts) Run(req *wire.Run, payload []byte, rio RunIO) (*wire.Ran, error) {
	c, err := cs.find(req.Context)
	if err != nil && req.Make != nil {
		c, err = cs.add(req.Context, req.Make)
		if api.CodeOf(err) == api.CodeNameTaken { // at the same moment
			c, err = cs.find(req.Context)
		}
	}
	if err != nil {
		return nil, err
	}
	if req.Make != nil && string(req.Make.Language) != c.language {
		return nil, api.Invalid("language", "the context %q is of %s", c.name, c.language)
	}
	if err := c.turns.take(rio.Gone); err != nil {
		return nil, err
	}
	defer c.turns.give()
	in, err := cs.started(c)
	if err != nil {
		if cs.interpreterOf(c) == nil {
			cs.remove(c) // it never had an interpreter
		}
		return nil, err
	}
	began := gotime.Now()
	late := cs.gate.Clock.After(gotime.Duration(req.TimeoutMS) * gotime.Millisecond)
	defer late.Stop()
	r := newRun(rio)
	if c.unseeded {
		told, err := cs.seed(c, in, late, rio.Gone)
		if err != nil {
			return nil, err
		}
		if len(told.Failed) > 0 {
			r.output(wire.Stderr, fmt.Appendf(nil, "ramet: of this context, which was inherited, these have no new random seed: %s\n", strings.Join(told.Failed, "; ")))
		}
	}
	if err := in.begin(r, req.Kind, payload); err != nil {
		return nil, err
	}
	timedOut := cs.awaitRun(c, in, r, late, rio.Gone)
	if r.unread && r.died == nil {
		return nil, errUnread
	}
	return &wire.Ran{TimedOut: timedOut, Truncated: r.truncated, Died: r.died, DurationMS: stages.Millis(gotime.Since(began))}, nil
}

// begin sends a request. The caller has the turn.
func (in *interpreter) begin(r *run, kind interp.Kind, payload []byte) error {
	in.gate.Enter()
	paused := in.gate.Paused()
	in.gate.Leave()
	if paused {
		return gate.ErrPaused
	}
	in.gate.BeginIO()
	in.mu.Lock()
	if in.over {
		in.mu.Unlock()
		in.gate.EndIO()
		r.died = exited(0)
		close(r.done)
		return nil
	}
	in.last++
	in.busy, r.id, r.kind, in.current = in.last, in.last, kind, r
	in.unsent = interp.AppendFrame(nil, kind, r.id, payload)
	in.mu.Unlock()
	in.gate.EndIO()
	if left, err := in.flushOnce(); left > 0 && (err == nil || kern.WouldBlock(err)) {
		go in.flush()
	}
	return nil
}

// awaitRun waits for the end of a run, and interrupts it when late is over, when its caller
// goes away, when an interrupt is asked for, or when its caller does not read and holds other
// runs up. A caller that does not read is cut off then, because the interpreter waits for it.
// A run that goes on after the first two is killed: it has no caller to end it.
func (cs *Contexts) awaitRun(c *codeContext, in *interpreter, r *run, late *gate.Wait, gone <-chan struct{}) (timedOut bool) {
	overdue, hopeless := late.C, cs.gate.Clock.After(0)
	defer func() { hopeless.Stop() }()
	i := interruption{in: in, run: r, language: interp.Language(c.language)}
	check := gotime.NewTicker(unreadCheck)
	defer check.Stop()
	stopped := false
	for {
		select {
		case <-r.done:
			return timedOut
		case <-overdue:
			timedOut, overdue = true, nil
			hopeless.Stop()
			hopeless = cs.gate.Clock.After(interruptTimeout)
			i.begin()
		case <-gone:
			gone = nil
			// A run that only reads variables is not worth their loss before its timeout, and a
			// run whose time is over gets no more of it.
			if (r.kind == interp.KindCell || r.kind == interp.KindSilent) && hopeless.C == nil {
				hopeless = cs.gate.Clock.After(goneTimeout)
			}
			i.begin()
		case <-c.turns.interrupts():
			stopped = true
			i.begin()
		case <-i.written:
			i.wasAsked()
		case <-i.again:
			i.signal()
		case <-check.C:
			if d := r.unreadFor(); stopped && d > interruptTimeout || d > unreadTimeout && c.turns.count() > 0 {
				r.cut()
				i.begin()
			}
		case <-hopeless.C:
			hopeless = cs.gate.Clock.After(interruptTimeout)
			if r.unreadFor() > interruptTimeout/2 {
				r.cut()
			} else {
				in.kill()
			}
		}
	}
}

// seeding is a request to an inherited interpreter to seed its generators anew.
type seeding struct {
	run    *run
	answer []byte // until run is done, of the goroutine that reads from the interpreter
}

// seed gives the generators of an inherited interpreter new seeds. The interpreter reads the
// request when it has the time: if that is after late, or after gone, the next run waits for
// it. The caller has the turn.
func (cs *Contexts) seed(c *codeContext, in *interpreter, late *gate.Wait, gone <-chan struct{}) (*api.Reseed, error) {
	s := c.seeding
	if s == nil {
		var bytes [32]byte
		rand.Read(bytes[:]) // never fails: crypto/rand ends the program instead
		s = &seeding{}
		s.run = newRun(RunIO{Part: func(p interp.Part) error {
			s.answer = append(s.answer, p.Data...)
			return nil
		}})
		if err := in.begin(s.run, interp.KindSeed, hex.AppendEncode(nil, bytes[:])); err != nil {
			return nil, err
		}
		c.seeding = s
	}
	select {
	case <-s.run.done:
	case <-late.C:
		return nil, api.Errorf(api.CodeTimeout, "the interpreter of context %s, which was inherited, has not taken its new random seeds in this time: the cell has not begun", c.name)
	case <-gone:
		return nil, gate.ErrGone
	}
	c.unseeded, c.seeding = false, nil
	out := reseedOf(c)
	d, err := interp.ParseDone(s.answer)
	if err != nil || s.run.died != nil {
		out.Failed = []string{"the interpreter does not answer"}
		return out, nil
	}
	out.Generators, out.Failed = append(out.Generators, d.Reseeded...), d.Failed
	return out, nil
}

func reseedOf(c *codeContext) *api.Reseed {
	return &api.Reseed{Context: c.name, Language: c.language, Generators: []string{}}
}

// AttendInherited takes care of the interpreters that were started in the parent,
// and gives their generators new seeds. An interpreter that runs a cell gets them before the
// next run. An interpreter in which nothing can run until its next request gets them with
// that.
func (cs *Contexts) AttendInherited() []api.Reseed {
	late := make(chan struct{})
	defer gotime.AfterFunc(seedTimeout, func() { close(late) }).Stop()
	seeded := map[*codeContext]chan *api.Reseed{}
	list := slices.Clone(cs.list)
	for _, c := range list {
		if c.in == nil {
			continue
		}
		c.in.prepare(cs.k, cs.gate)
		if c.in.over {
			close(c.in.exited)
			close(c.in.done)
			continue
		}
		seeded[c] = cs.attend(c)
	}
	var all []api.Reseed
	for _, c := range list {
		if seeded[c] == nil {
			continue
		}
		select {
		case s := <-seeded[c]:
			all = append(all, *s)
		case <-late:
			s := reseedOf(c)
			s.Pending = true
			all = append(all, *s)
		}
	}
	return all
}

// attend takes care of an inherited interpreter. The result for its generators is sent at
// once if they must wait.
func (cs *Contexts) attend(c *codeContext) chan *api.Reseed {
	in := c.in
	told := make(chan *api.Reseed, 2)
	c.unseeded = true
	if in.ready && in.busy == 0 && in.calm && in.tg.Count() == 1 {
		// No code of the user's can run in it until the next request: it has one
		// thread, which waits for that. To wake it now would cost what all the rest of
		// a child does: it has to copy a hundred places of its memory to do anything.
		s := reseedOf(c)
		s.Generators = append(s.Generators, in.generators...)
		told <- s
		in.attend()
		return told
	}
	c.turns.taken = true
	inherited := newRun(RunIO{})
	inherited.id = in.busy
	if in.busy != 0 {
		in.current = inherited
	} else {
		close(inherited.done)
	}
	if in.busy != 0 || !in.ready {
		s := reseedOf(c)
		s.Pending = true
		told <- s
	}
	in.attend()
	go in.flush()
	go func() {
		defer c.turns.pass()
		clock := &cs.gate.Clock
		cs.awaitRun(c, in, inherited, clock.After(0), nil)
		c.turns.forget()
		if in.awaitReady(clock) != nil {
			in.kill()
			return
		}
		late := clock.After(seedTimeout)
		defer late.Stop()
		if s, err := cs.seed(c, in, late, nil); err == nil {
			told <- s
		}
	}()
	return told
}
