package proc

import (
	"math"
	gotime "time"

	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
	"gvisor.dev/gvisor/pkg/usermem"
	"gvisor.dev/gvisor/pkg/waiter"

	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/sentry/gate"
	"ramet.dev/ramet/internal/sentry/kern"
)

// pump is the sentry's end of one guest pipe, or of a terminal, while it is used.
type pump struct {
	table    *Table
	file     *vfs.FileDescription
	wake     *gate.Notifier
	listener gate.Listener
	// answered says that the caller learns whether its input was taken: then a sandbox that
	// rests refuses input.
	answered bool
}

// newPump starts listening for events on file.
func (t *Table) newPump(file *vfs.FileDescription, events waiter.EventMask) *pump {
	p := &pump{table: t, file: file, wake: gate.NewNotifier()}
	p.listener.Listen(t.gate, file, events, p.wake)
	return p
}

// fill reads at most so many bytes from the pipe into out. A save finds each byte either in
// the pipe or in out. fill never blocks for longer than a save takes.
func (p *pump) fill(out *ring, stream wire.Stream, most int) (int, error) {
	p.table.gate.BeginIO()
	defer p.table.gate.EndIO()
	ctx := p.table.k.SupervisorContext()
	return out.fill(stream, func(buf []byte) (int, error) {
		n, err := p.file.Read(ctx, usermem.BytesIOSequence(buf[:min(len(buf), most)]), vfs.ReadOptions{})
		return int(n), err
	})
}

const (
	// batchFor is how long output may be left in a pipe, so that more comes together,
	// and batchLess how much is not worth a look, in bytes. It is only left there if
	// there was some so short a time before.
	batchFor  = 300 * gotime.Microsecond
	batchLess = 64 << 10
)

// unread returns how many bytes are in the pipe, and for a terminal how many there may be.
func (p *pump) unread() int {
	p.table.gate.BeginIO()
	defer p.table.gate.EndIO()
	return p.table.k.Queued(p.file)
}

func (p *pump) write(data []byte) (int, error) {
	if !p.answered {
		p.table.gate.BeginIO()
	} else if err := p.table.gate.BeginChange(); err != nil {
		return 0, err
	}
	defer p.table.gate.EndIO()
	n, err := p.file.Write(p.table.k.SupervisorContext(), usermem.BytesIOSequence(data), vfs.WriteOptions{})
	return int(n), err
}

// attend takes care of a process that runs: its output, its timeouts and its end.
//
// The goroutines end with the pipes, or with the process: they own nothing that
// outlives the sandbox.
func (p *process) attend() {
	var quiet []chan struct{}
	for end, stream := range map[**vfs.FileDescription]wire.Stream{&p.stdout: wire.Stdout, &p.stderr: wire.Stderr, &p.terminal: wire.Stdout} {
		if *end == nil {
			continue
		}
		q := make(chan struct{})
		quiet = append(quiet, q)
		go p.drain(end, stream, q)
	}
	go func() {
		if p.tg != nil {
			p.tg.WaitExited()
		}
		close(p.exited)
	}()
	go p.watch(quiet)
}

// drain moves the output that the guest writes into end, a stream of p, to p's ring until
// the last guest process closes the stream. When p has exited and its last output is in the
// ring, drain closes quiet: the output of processes that p left behind comes after p's own.
func (p *process) drain(end **vfs.FileDescription, stream wire.Stream, quiet chan struct{}) {
	pm := p.table.newPump(*end, waiter.ReadableEvents)
	p.out.addWriter(pm.wake)
	own := true // p's output
	defer func() {
		p.out.removeWriter(pm.wake)
		pm.listener.Close()
		p.giveUp(end)
		if own {
			close(quiet)
		}
	}()
	exited := p.exited
	left := math.MaxInt // how much of end is still p's output
	batch := gotime.NewTimer(0)
	defer batch.Stop()
	var filled gotime.Time // when something was last in end
	for {
		select {
		case <-exited:
			exited, left = nil, pm.unread()
		default:
		}
		if left == 0 && own {
			own, left = false, math.MaxInt
			close(quiet)
			<-p.done
		}
		n, err := pm.fill(p.out, stream, left)
		switch {
		case n > 0:
			p.touch()
			filled = gotime.Now()
			if exited == nil && own {
				left -= n
			}
			continue
		case err == errNoRoom:
			<-pm.wake.C
			continue
		case kern.WouldBlock(err):
		case end != &p.terminal || exited == nil:
			return // end of file: nobody can write any more
		}
		if exited == nil && own {
			left = 0 // a terminal had less than it may have
			continue
		}
		select {
		case <-pm.wake.C:
		case <-exited:
			continue
		}
		// Small pieces that follow each other closely are read together: to read each of
		// them takes several times as long as to write it.
		soon := batchFor - gotime.Since(filled)
		if soon <= 0 {
			continue
		}
		if n := pm.unread(); n > 0 && n < batchLess { // none: the event was of bytes that were read already
			batch.Reset(soon)
			select {
			case <-batch.C:
			case <-exited:
			}
		}
	}
}

// giveUp closes end, a stream of p. It waits for a writer to it.
func (p *process) giveUp(end **vfs.FileDescription) {
	p.input <- struct{}{}
	defer func() { <-p.input }()
	p.closeEnd(end)
}

// closeEnd closes end, a stream of p. The caller holds p.input.
func (p *process) closeEnd(end **vfs.FileDescription) {
	p.table.gate.BeginIO()
	defer p.table.gate.EndIO()
	if file := *end; file != nil {
		p.table.closed(p, end)
		file.DecRef(p.table.k.SupervisorContext())
	}
}

// watch ends p at its timeouts, and notes its end.
func (p *process) watch(quiet []chan struct{}) {
	for running := true; running; {
		due, idle := p.nextTimeout()
		left := due - p.table.gate.Clock.Now()
		if left <= 0 {
			p.noteTimeout(idle)
			killed := p.kill()
			<-p.exited
			for _, tg := range killed { // whoever is told of the time-out finds none of them
				tg.WaitExited()
			}
			break
		}
		late := p.table.gate.Clock.After(left)
		select {
		case <-p.exited:
			running = false
		case <-late.C: // unless something was written meanwhile
		}
		late.Stop()
	}
	for _, q := range quiet {
		<-q
	}
	p.noteEnd()
	p.out.end()
	close(p.done)
}

// forever is longer than any process runs.
const forever = 100 * 365 * 24 * gotime.Hour

// nextTimeout returns the first timeout, on the gate's clock, and whether it is the idle
// timeout.
func (p *process) nextTimeout() (due gotime.Duration, idle bool) {
	due = forever
	if p.deadline > 0 {
		due = p.deadline
	}
	if p.idle > 0 {
		if at := gotime.Duration(p.active.Load() + p.idle); at < due {
			due, idle = at, true
		}
	}
	return due, idle
}

func (p *process) noteTimeout(idle bool) {
	p.table.gate.BeginIO()
	defer p.table.gate.EndIO()
	p.table.mu.Lock()
	defer p.table.mu.Unlock()
	p.timedOut, p.timedIdle = true, idle
}

// noteEnd enters how p ended, and closes its input.
func (p *process) noteEnd() {
	p.giveUp(&p.stdin)
	p.table.gate.BeginIO()
	defer p.table.gate.EndIO()
	p.table.mu.Lock()
	defer p.table.mu.Unlock()
	if p.tg != nil {
		p.status = uint32(p.tg.ExitStatus())
		p.ended = gotime.Now().UnixNano()
		p.tg = nil
	}
}

// closeStreams closes the pipes of a process that never started.
func (p *process) closeStreams(ctx context.Context) {
	for _, f := range []*vfs.FileDescription{p.stdin, p.stdout, p.stderr, p.terminal} {
		if f != nil {
			f.DecRef(ctx)
		}
	}
}

// AttendInherited takes care of the processes that were started in the parent.
func (ps *Processes) AttendInherited() {
	// Those that end change the list, so all are found before any is attended.
	ps.table.mu.Lock()
	all := append([]*process(nil), ps.table.list...)
	ps.table.mu.Unlock()
	for _, p := range all {
		p.attend()
	}
}
