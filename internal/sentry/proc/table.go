package proc

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	gotime "time"

	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
	"gvisor.dev/gvisor/pkg/state"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/snapfile"
	"ramet.dev/ramet/internal/sentry/gate"
	"ramet.dev/ramet/internal/sentry/kern"
	"ramet.dev/ramet/internal/sentry/saved"
)

const (
	// TableKey names the table in the kernel's saved state.
	TableKey = "ramet.processes"
	// maxProcesses bounds the processes of the table that have a name, and those
	// that were forgotten.
	maxProcesses = 1024
)

var (
	errTableFull = api.Errorf(api.CodeLimit, "%d processes that were started from outside are running already", maxProcesses)
	errManyLeft  = api.Errorf(api.CodeLimit, "%d commands have ended whose output is held open by processes that they left behind: end some of those, or start such processes with their output redirected", maxProcesses)
)

// Table is the processes that were started from outside. It is part of the saved
// state, so that a child has them too. What is saved is only changed within an access to
// the gate, or by operations that have entered it.
type Table struct {
	mu sync.Mutex // not saved
	// list is guarded by mu, oldest first. It also has processes that were
	// forgotten, while others that they left behind hold their pipes open.
	list []*process

	// Not saved.
	starting int          // so many will be added, or not; guarded by mu
	kept     atomic.Int64 // bytes in all rings
	k        *kern.Kernel
	gate     *gate.Gate
}

// NewTable returns an empty table. The caller saves it with the kernel k under TableKey.
func NewTable(k *kern.Kernel, g *gate.Gate) *Table { return &Table{k: k, gate: g} }

// process is a process that was started from outside, until it is forgotten.
type process struct {
	// Saved, and constant unless a comment says otherwise.
	pid     int32
	tg      *kernel.ThreadGroup
	command string
	started int64 // nanoseconds since 1970
	keep    int64 // see newRing
	tty     bool
	// The sentry's ends of the process's standard streams, nil when closed.
	// Changed within an access to the gate, with Table.mu. A terminal is its own input.
	stdin, stdout, stderr, terminal *vfs.FileDescription
	// left and idle are the timeouts, in nanoseconds, 0 for none. left is
	// the rest of the timeout when the state is saved.
	left, idle int64
	ended      int64 // nanoseconds since 1970, 0 while it runs; guarded by Table.mu
	status     uint32
	timedOut   bool // guarded by Table.mu
	timedIdle  bool // likewise
	forgotten  bool // likewise

	inherited bool
	table     *Table
	deadline  gotime.Duration // on clock, 0 for none
	active    atomic.Int64    // when something was last written or read, on clock
	out       *ring
	input     chan struct{} // has an item while a caller writes
	exited    chan struct{} // closed when the process has exited
	done      chan struct{} // closed when all output is in out, too
}

// ready makes what is not saved.
func (p *process) ready(t *Table) {
	p.out = newRing(&t.kept, p.keep)
	p.input = make(chan struct{}, 1)
	p.exited, p.done = make(chan struct{}), make(chan struct{})
	p.table = t
	p.touch()
	if p.left > 0 {
		p.deadline = p.table.gate.Clock.Now() + gotime.Duration(p.left)
	}
}

// touch notes that something was written or read.
func (p *process) touch() { p.active.Store(int64(p.table.gate.Clock.Now())) }

// add enters a process that is about to run, in the place that makeRoom has made.
// A process that has ended and had the same number is forgotten.
func (t *Table) add(p *process) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.starting--
	if i := t.indexLocked(int(p.pid)); i >= 0 {
		t.removeLocked(i)
	}
	t.list = append(t.list, p)
}

// makeRoom forgets processes that have ended until another one may be added, or
// returns an error. The place must be given to add, or up.
func (t *Table) makeRoom() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for {
		named, left, oldest := t.starting, 0, -1
		for i, p := range t.list {
			if p.forgotten {
				left++
				continue
			}
			if named++; oldest < 0 && p.ended != 0 {
				oldest = i
			}
		}
		switch {
		case left >= maxProcesses:
			return errManyLeft
		case named < maxProcesses:
			t.starting++
			return nil
		case oldest < 0:
			return errTableFull
		}
		t.removeLocked(oldest)
	}
}

// giveUpRoom says that nothing comes into the place that makeRoom has made.
func (t *Table) giveUpRoom() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.starting--
}

func (t *Table) indexLocked(pid int) int {
	return slices.IndexFunc(t.list, func(p *process) bool { return int(p.pid) == pid && !p.forgotten })
}

// find returns a process, which may have ended.
func (t *Table) find(pid int) (*process, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := t.indexLocked(pid); i >= 0 {
		return t.list[i], nil
	}
	return nil, api.Errorf(api.CodeNotFound, "no process %d was started from outside, or it has ended and was forgotten", pid)
}

// all returns the processes, oldest first.
func (t *Table) all() []*process {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(t.list), func(p *process) bool { return p.forgotten })
}

// forget drops a process and its output.
func (t *Table) forget(p *process) {
	t.gate.BeginIO()
	defer t.gate.EndIO()
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := slices.Index(t.list, p); i >= 0 {
		t.removeLocked(i)
	}
}

// removeLocked forgets a process.
func (t *Table) removeLocked(i int) {
	p := t.list[i]
	p.forgotten = true
	p.out.close()
	if !p.openLocked() {
		t.list = slices.Delete(t.list, i, i+1)
	}
}

// openLocked reports whether the sentry holds any of p's streams.
func (p *process) openLocked() bool {
	return p.stdin != nil || p.stdout != nil || p.stderr != nil || p.terminal != nil
}

// closed notes that end, a stream of p, was closed.
func (t *Table) closed(p *process, end **vfs.FileDescription) {
	t.mu.Lock()
	defer t.mu.Unlock()
	*end = nil
	if p.forgotten && !p.openLocked() {
		t.list = slices.DeleteFunc(t.list, func(x *process) bool { return x == p })
	}
}

// Freeze prepares a save, during which nothing must change, and returns what the
// processes wrote.
func (t *Table) Freeze() []snapfile.Output {
	t.mu.Lock()
	defer t.mu.Unlock()
	var outs []snapfile.Output
	for _, p := range t.list {
		if p.deadline > 0 {
			p.left = max(1, int64(p.deadline-p.table.gate.Clock.Now()))
		}
		out := p.out.freeze()
		out.PID = p.pid
		outs = append(outs, out)
	}
	return outs
}

// Thaw readies a table that was loaded with the kernel k, and gives its processes what they
// wrote.
func (t *Table) Thaw(k *kern.Kernel, g *gate.Gate, outs []snapfile.Output) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.k, t.gate = k, g
	if len(outs) != len(t.list) {
		return api.Errorf(api.CodeCorrupt, "snapshot has the output of %d processes, not of %d", len(outs), len(t.list))
	}
	for i, p := range t.list {
		if outs[i].PID != p.pid {
			return api.Errorf(api.CodeCorrupt, "snapshot has the output of process %d where that of %d should be", outs[i].PID, p.pid)
		}
		p.ready(t)
		p.out.thaw(&outs[i])
		if p.ended != 0 {
			p.out.end() // readers that ask before its watch runs are told as well that it has ended
		}
		p.inherited = true
		if p.forgotten {
			p.out.close()
		}
	}
	return nil
}

// The methods below are what gVisor's state package asks of saved types;
// upstream generates them with a tool that is not part of its Go module.

// StateTypeName implements state.Type.
func (*Table) StateTypeName() string { return "ramet.dev/ramet/internal/sentry/proc.Table" }

// StateFields implements state.Type.
func (*Table) StateFields() []string { return []string{"list"} }

// StateSave implements state.SaverLoader.
func (t *Table) StateSave(sink state.Sink) { sink.Save(0, &t.list) }

// StateLoad implements state.SaverLoader.
func (t *Table) StateLoad(_ context.Context, src state.Source) { src.Load(0, &t.list) }

func (*process) StateTypeName() string { return "ramet.dev/ramet/internal/sentry/proc.process" }
func (*process) StateFields() []string {
	return []string{"pid", "tg", "command", "started", "keep", "tty", "stdin", "stdout", "stderr", "terminal", "left", "idle", "ended", "status", "timedOut", "timedIdle", "forgotten"}
}
func (p *process) fields() []any {
	return []any{&p.pid, &p.tg, &p.command, &p.started, &p.keep, &p.tty, &p.stdin, &p.stdout, &p.stderr, &p.terminal, &p.left, &p.idle, &p.ended, &p.status, &p.timedOut, &p.timedIdle, &p.forgotten}
}
func (p *process) StateSave(sink state.Sink)                     { saved.Save(sink, p.fields()) }
func (p *process) StateLoad(_ context.Context, src state.Source) { saved.Load(src, p.fields()) }

func init() {
	state.Register((*Table)(nil))
	state.Register((*process)(nil))
}
