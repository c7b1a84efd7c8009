package guest

import (
	"encoding/binary"
	"math"
	gotime "time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
	"gvisor.dev/gvisor/pkg/usermem"
	"gvisor.dev/gvisor/pkg/waiter"

	"ramet.dev/ramet/internal/engine/wire"
)

// pump is the sentry's end of one guest pipe, or of a terminal.
type pump struct {
	g     *Guest
	file  *vfs.FileDescription
	wake  *alarm
	entry waiter.Entry
	// answered is whether the caller is told what became of what is written, see
	// Guest.resting.
	answered bool
}

// newPump starts listening for events on file.
func (g *Guest) newPump(file *vfs.FileDescription, events waiter.EventMask) *pump {
	return g.listen(file, events, newAlarm())
}

// listen has wake rung at events on file.
func (g *Guest) listen(file *vfs.FileDescription, events waiter.EventMask, wake *alarm) *pump {
	p := &pump{g: g, file: file, wake: wake}
	p.entry.Init(p.wake, events|waiter.EventHUp|waiter.EventErr)
	g.io.RLock()
	defer g.io.RUnlock()
	// Pipes and terminals never refuse a listener.
	_ = file.EventRegister(&p.entry)
	return p
}

// close stops listening.
func (p *pump) close() {
	p.g.io.RLock()
	defer p.g.io.RUnlock()
	p.file.EventUnregister(&p.entry)
}

// fill reads at most so many bytes of what is in the pipe into out. What a save
// finds is either in the pipe or in out. It never blocks for longer than a save
// takes.
func (p *pump) fill(out *ring, stream wire.Stream, most int) (int, error) {
	p.g.io.RLock()
	defer p.g.io.RUnlock()
	ctx := p.g.rootContext()
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
	// outputPipe is the size of the pipes for output, in bytes: what is written
	// meanwhile.
	outputPipe = 256 << 10
)

// maxUnread is at least what a terminal has, in bytes, with a carriage return for
// each line feed.
const maxUnread = 512 << 10

// unread returns how many bytes are in the pipe. Terminals tell only tasks: for one
// it is as much as there may be.
func (p *pump) unread() int {
	p.g.io.RLock()
	defer p.g.io.RUnlock()
	return p.g.queued(p.file)
}

// queued returns how many bytes are in a pipe. The caller holds Guest.io.
func (g *Guest) queued(file *vfs.FileDescription) int {
	var count [4]byte
	var args arch.SyscallArguments // the count is stored at 0
	args[1].Value = linux.FIONREAD
	if _, err := file.Ioctl(g.rootContext(), &usermem.BytesIO{Bytes: count[:]}, unix.SYS_IOCTL, args); err != nil {
		return maxUnread
	}
	return int(binary.NativeEndian.Uint32(count[:]))
}

func (p *pump) write(data []byte) (int, error) {
	p.g.io.RLock()
	defer p.g.io.RUnlock()
	if p.answered && p.g.resting != "" {
		return 0, errResting
	}
	n, err := p.file.Write(p.g.rootContext(), usermem.BytesIOSequence(data), vfs.WriteOptions{})
	return int(n), err
}

func wouldBlock(err error) bool { return linuxerr.Equals(linuxerr.ErrWouldBlock, err) }

// attend takes care of a process that runs: its output, its timeouts and its end.
//
// The goroutines end with the pipes, or with the process: they own nothing that
// outlives the sandbox.
func (g *Guest) attend(p *process) {
	var quiet []chan struct{}
	for end, stream := range map[**vfs.FileDescription]wire.Stream{&p.stdout: wire.Stdout, &p.stderr: wire.Stderr, &p.terminal: wire.Stdout} {
		if *end == nil {
			continue
		}
		q := make(chan struct{})
		quiet = append(quiet, q)
		go g.drain(p, end, stream, q)
	}
	go func() {
		if p.tg != nil {
			p.tg.WaitExited()
		}
		close(p.exited)
	}()
	go g.watch(p, quiet)
}

// drain moves what the guest writes into end, one of p's, to p's ring until the
// last guest process closes it. When p has exited and what was in end then is in
// the ring, it closes quiet: what others write that p left behind comes after p's
// own output.
func (g *Guest) drain(p *process, end **vfs.FileDescription, stream wire.Stream, quiet chan struct{}) {
	pm := g.newPump(*end, waiter.ReadableEvents)
	p.out.addWriter(pm.wake)
	own := true // p's output
	defer func() {
		p.out.removeWriter(pm.wake)
		pm.close()
		g.giveUp(p, end)
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
			<-pm.wake.c
			continue
		case wouldBlock(err):
		case end != &p.terminal || exited == nil:
			return // end of file: nobody can write any more
		}
		if exited == nil && own {
			left = 0 // a terminal had less than it may have
			continue
		}
		select {
		case <-pm.wake.c:
		case <-exited:
			continue
		}
		// One who writes much in small pieces is not attended to for each of them:
		// that takes several times as long as the writing.
		soon := batchFor - gotime.Since(filled)
		if soon <= 0 {
			continue
		}
		if n := pm.unread(); n > 0 && n < batchLess { // none: the alarm was for what has been read
			batch.Reset(soon)
			select {
			case <-batch.C:
			case <-exited:
			}
		}
	}
}

// giveUp closes end, one of p's. It waits for who writes to it.
func (g *Guest) giveUp(p *process, end **vfs.FileDescription) {
	p.input <- struct{}{}
	defer func() { <-p.input }()
	g.closeEnd(p, end)
}

// closeEnd closes end, one of p's. The caller holds p.input.
func (g *Guest) closeEnd(p *process, end **vfs.FileDescription) {
	g.io.RLock()
	defer g.io.RUnlock()
	if file := *end; file != nil {
		g.table.closed(p, end)
		file.DecRef(g.rootContext())
	}
}

// watch ends p at its timeouts, and notes its end.
func (g *Guest) watch(p *process, quiet []chan struct{}) {
	for running := true; running; {
		due, idle := p.nextTimeout()
		left := due - p.clock.now()
		if left <= 0 {
			g.noteTimeout(p, idle)
			g.kill(p)
			<-p.exited
			break
		}
		late := p.clock.after(left)
		select {
		case <-p.exited:
			running = false
		case <-late.over: // unless something was written meanwhile
		}
		late.stop()
	}
	for _, q := range quiet {
		<-q
	}
	g.noteEnd(p)
	p.out.end()
	close(p.done)
}

// forever is longer than anything runs.
const forever = 100 * 365 * 24 * gotime.Hour

// nextTimeout returns when the timeout is, on p's clock, that comes first, and
// whether that is the idle one.
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

func (g *Guest) noteTimeout(p *process, idle bool) {
	g.io.RLock()
	defer g.io.RUnlock()
	g.table.mu.Lock()
	defer g.table.mu.Unlock()
	p.timedOut, p.timedIdle = true, idle
}

// noteEnd enters how p ended, and closes its input.
func (g *Guest) noteEnd(p *process) {
	g.giveUp(p, &p.stdin)
	g.io.RLock()
	defer g.io.RUnlock()
	g.table.mu.Lock()
	defer g.table.mu.Unlock()
	if p.tg != nil {
		p.status = uint32(p.tg.ExitStatus())
		p.ended = gotime.Now().UnixNano()
		p.tg = nil
	}
}

// abandon gives up the pipes of a process that never started.
func (g *Guest) abandon(p *process) {
	ctx := g.rootContext()
	for _, f := range []*vfs.FileDescription{p.stdin, p.stdout, p.stderr, p.terminal} {
		if f != nil {
			f.DecRef(ctx)
		}
	}
}

// attendInherited takes care of the processes that were started in the parent.
func (g *Guest) attendInherited() {
	// Those that end change the list, so all are found before any is attended.
	g.table.mu.Lock()
	all := append([]*process(nil), g.table.list...)
	g.table.mu.Unlock()
	for _, p := range all {
		g.attend(p)
	}
}
