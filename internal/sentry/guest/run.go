package guest

import (
	"crypto/rand"
	"encoding/hex"
	"slices"
	gotime "time"

	"ramet.dev/ramet/internal/interp"
	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/wire"
)

const (
	// maxResults bounds what one run shows, in bytes.
	maxResults = 32 << 20
	// resultCost is what a result counts besides, however short it is: who collects
	// them keeps something of each.
	resultCost = 1 << 10
	// interruptPatience is how long a run may take to end after its timeout.
	interruptPatience = 2 * gotime.Second
	// interruptAgain is when Node and Bash get a signal, again: Node does not listen
	// while it evaluates, and Bash loses one that comes while it starts a command.
	interruptAgain = 300 * gotime.Millisecond
	// seedPatience is how long a fork waits until interpreters have new seeds.
	seedPatience = 2 * gotime.Second
)

// RunIO connects a run to its caller. After an error nothing is passed on any
// more. The data are valid until the call returns.
type RunIO struct {
	Output func(wire.Stream, []byte) error
	Part   func(interp.Part) error
	Gone   <-chan struct{} // closed when the caller went away
}

// run is one request to an interpreter.
type run struct {
	id   uint32
	io   RunIO // used by the goroutine that reads from the interpreter
	size int   // of the results that were passed on
	amid bool  // a part of the present result was seen
	drop bool  // the present result is dropped

	stop chan struct{} // has an item when somebody wants it interrupted

	done      chan struct{} // closed when it is over; what is below is settled then
	truncated bool
	died      *wire.Exited
}

func newRun(rio RunIO) *run {
	return &run{io: rio, stop: make(chan struct{}, 1), done: make(chan struct{})}
}

// output passes on what was printed. r may be nil: then nobody wants it.
func (r *run) output(stream wire.Stream, data []byte) {
	if r != nil && r.io.Output != nil && r.io.Output(stream, data) != nil {
		r.io.Output, r.io.Part = nil, nil
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
	if r.io.Part != nil && r.io.Part(p) != nil {
		r.io.Output, r.io.Part = nil, nil
	}
}

// Run has a context do something, after those who came before. It returns when
// that is done, also if the caller went away: the run is interrupted then.
func (g *Guest) Run(req *wire.Run, payload []byte, rio RunIO) (*wire.Ran, error) {
	c, err := g.contexts.find(req.Context)
	if err != nil && req.Make != nil {
		c, err = g.addContext(req.Context, req.Make)
		if sandbox.CodeOf(err) == sandbox.CodeNameTaken { // at the same moment
			c, err = g.contexts.find(req.Context)
		}
	}
	if err != nil {
		return nil, err
	}
	if err := c.turns.take(rio.Gone); err != nil {
		return nil, err
	}
	defer c.turns.give()
	in, err := g.started(c)
	if err != nil {
		if g.interpreterOf(c) == nil {
			g.removeContext(c) // it never was one
		}
		return nil, err
	}
	if c.unseeded {
		g.seed(c, in)
	}
	r := newRun(rio)
	began := gotime.Now()
	if err := g.beginRun(in, r, req.Kind, payload); err != nil {
		return nil, err
	}
	timedOut := g.awaitRun(c, in, r, gotime.Duration(req.TimeoutMS)*gotime.Millisecond, rio.Gone)
	return &wire.Ran{TimedOut: timedOut, Truncated: r.truncated, Died: r.died, DurationMS: millis(gotime.Since(began))}, nil
}

// beginRun sends a request. The caller has the turn.
func (g *Guest) beginRun(in *interpreter, r *run, kind interp.Kind, payload []byte) error {
	g.ops.RLock()
	paused := g.paused
	g.ops.RUnlock()
	if paused {
		return errPaused
	}
	g.io.RLock()
	in.mu.Lock()
	if in.over {
		in.mu.Unlock()
		g.io.RUnlock()
		r.died = exitedOf(0)
		close(r.done)
		return nil
	}
	in.last++
	in.busy, r.id, in.current = in.last, in.last, r
	in.unsent = interp.AppendFrame(nil, kind, r.id, payload)
	in.mu.Unlock()
	g.io.RUnlock()
	if left, err := g.flushOnce(in); left > 0 && (err == nil || wouldBlock(err)) {
		go g.flush(in)
	}
	return nil
}

// awaitRun waits for the end of a run, and interrupts it at its timeout, when its
// caller goes away or when somebody wants it.
func (g *Guest) awaitRun(c *codeContext, in *interpreter, r *run, timeout gotime.Duration, gone <-chan struct{}) (timedOut bool) {
	var late, hopeless, again <-chan gotime.Time
	if timeout > 0 {
		t := gotime.NewTimer(timeout)
		defer t.Stop()
		late = t.C
	}
	interrupt := func() {
		if c.language == string(interp.Node) {
			g.askToStop(in, r)
		} else {
			g.interrupt(in, r)
		}
		if c.language != string(interp.Python) {
			again = gotime.After(interruptAgain)
		}
	}
	for {
		select {
		case <-r.done:
			return timedOut
		case <-late:
			timedOut, late = true, nil
			hopeless = gotime.After(interruptPatience)
			interrupt()
		case <-gone:
			gone = nil
			interrupt()
		case <-r.stop:
			interrupt()
		case <-again:
			again = gotime.After(interruptAgain)
			g.interrupt(in, r)
		case <-hopeless:
			hopeless = nil
			g.killInterpreter(in)
		}
	}
}

// askToStop sends a request to end a run, after what is being sent.
func (g *Guest) askToStop(in *interpreter, r *run) {
	g.io.RLock()
	in.mu.Lock()
	runs := in.busy != 0 && in.current == r
	if runs {
		in.unsent = interp.AppendFrame(in.unsent, interp.KindInterrupt, r.id, nil)
	}
	in.mu.Unlock()
	g.io.RUnlock()
	if left, err := g.flushOnce(in); runs && left > 0 && (err == nil || wouldBlock(err)) {
		go g.flush(in)
	}
}

// seed gives the generators of an inherited interpreter new seeds. It reads that
// when it has the time. The caller has the turn.
func (g *Guest) seed(c *codeContext, in *interpreter) *sandbox.Reseed {
	out := reseedOf(c)
	var bytes [32]byte
	rand.Read(bytes[:]) // never fails: crypto/rand ends the program instead
	var answer []byte
	r := newRun(RunIO{})
	r.io.Part = func(p interp.Part) error {
		answer = append(answer, p.Data...)
		return nil
	}
	if g.beginRun(in, r, interp.KindSeed, hex.AppendEncode(nil, bytes[:])) != nil {
		out.Pending = true
		return out
	}
	<-r.done
	c.unseeded = false
	d, err := interp.ParseDone(answer)
	if err != nil || r.died != nil {
		out.Failed = []string{"the interpreter does not answer"}
		return out
	}
	out.Generators, out.Failed = append(out.Generators, d.Reseeded...), d.Failed
	return out
}

func reseedOf(c *codeContext) *sandbox.Reseed {
	return &sandbox.Reseed{Context: c.name, Language: c.language, Generators: []string{}}
}

// attendContexts takes care of the interpreters that were started in the parent,
// and gives their generators new seeds. Those that run a cell get them when it has
// ended, before the next one.
func (g *Guest) attendContexts() []sandbox.Reseed {
	late := make(chan struct{})
	defer gotime.AfterFunc(seedPatience, func() { close(late) }).Stop()
	seeded := map[*codeContext]chan *sandbox.Reseed{}
	list := slices.Clone(g.contexts.list)
	for _, c := range list {
		if c.in == nil {
			continue
		}
		c.in.prepare()
		if c.in.over {
			close(c.in.exited)
			close(c.in.done)
			continue
		}
		seeded[c] = g.attendContext(c)
	}
	var all []sandbox.Reseed
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

// attendContext takes care of an inherited interpreter. What comes of its
// generators is sent at once if they must wait.
func (g *Guest) attendContext(c *codeContext) chan *sandbox.Reseed {
	in := c.in
	told := make(chan *sandbox.Reseed, 2)
	c.unseeded, c.turns.taken = true, true
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
	g.attendInterpreter(in)
	go g.flush(in)
	go func() {
		defer c.turns.give()
		g.awaitRun(c, in, inherited, 0, nil)
		if in.awaitReady(nil) == nil {
			told <- g.seed(c, in)
		} else { // nobody need wait for it
			s := reseedOf(c)
			s.Pending = true
			told <- s
		}
	}()
	return told
}
