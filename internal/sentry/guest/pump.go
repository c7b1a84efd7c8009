package guest

import (
	"io"

	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
	"gvisor.dev/gvisor/pkg/usermem"
	"gvisor.dev/gvisor/pkg/waiter"

	"ramet.dev/ramet/internal/wire"
)

// pump is the sentry's end of one guest pipe.
type pump struct {
	g     *Guest
	file  *vfs.FileDescription
	ring  *alarm
	entry waiter.Entry
}

// newPump starts listening for events on file.
func (g *Guest) newPump(file *vfs.FileDescription, events waiter.EventMask) *pump {
	p := &pump{g: g, file: file, ring: newAlarm()}
	p.entry.Init(p.ring, events|waiter.EventHUp|waiter.EventErr)
	g.io.RLock()
	defer g.io.RUnlock()
	// Pipes never refuse a listener.
	_ = file.EventRegister(&p.entry)
	return p
}

// close gives up end of s, which is the pump's file.
func (p *pump) close(s *session, end **vfs.FileDescription) {
	p.g.io.RLock()
	defer p.g.io.RUnlock()
	p.file.EventUnregister(&p.entry)
	p.file.DecRef(p.g.rootContext())
	p.g.sessions.closed(s, end)
}

// read reads what is in the pipe. It never blocks for longer than a save takes.
func (p *pump) read(buf []byte) (int, error) {
	p.g.io.RLock()
	defer p.g.io.RUnlock()
	n, err := p.file.Read(p.g.rootContext(), usermem.BytesIOSequence(buf), vfs.ReadOptions{})
	return int(n), err
}

func (p *pump) write(data []byte) (int, error) {
	p.g.io.RLock()
	defer p.g.io.RUnlock()
	n, err := p.file.Write(p.g.rootContext(), usermem.BytesIOSequence(data), vfs.WriteOptions{})
	return int(n), err
}

func wouldBlock(err error) bool { return linuxerr.Equals(linuxerr.ErrWouldBlock, err) }

// drain moves what the guest writes into end, a pipe of s, to the writer to.
// When exited is closed and the pipe is empty it calls done; from then on, or
// when the writer fails, it discards until the last guest process closes the
// pipe. to, exited and done may be nil.
//
// The goroutine ends with the pipe, or with the process: it owns nothing that
// outlives the sandbox.
func (g *Guest) drain(s *session, end **vfs.FileDescription, to io.Writer, exited <-chan struct{}, done func()) {
	p := g.newPump(*end, waiter.ReadableEvents)
	defer p.close(s, end)
	detach := func() {
		to, exited = nil, nil
		if done != nil {
			done()
			done = nil
		}
	}
	defer detach()
	buf := make([]byte, wire.MaxChunk)
	last := false // exited was seen: what is in the pipe now is all
	for {
		n, err := p.read(buf)
		if n > 0 {
			if to != nil {
				if _, werr := to.Write(buf[:n]); werr != nil {
					to = nil
				}
			}
			continue
		}
		if !wouldBlock(err) {
			return // end of file
		}
		if last {
			detach()
			last = false
		}
		select {
		case <-p.ring.c:
		case <-exited:
			last = true
		}
	}
}

// feed moves in to the stdin of s until in is closed or the command has exited.
// What comes after the guest closed its end is discarded.
func (g *Guest) feed(s *session, in <-chan []byte, exited <-chan struct{}) {
	p := g.newPump(s.stdin, waiter.WritableEvents)
	defer p.close(s, &s.stdin)
	open := true
	for {
		select {
		case <-exited:
			return
		case data, ok := <-in:
			if !ok {
				return
			}
			open = open && p.writeAll(data, exited)
		}
	}
}

// writeAll writes all of data and reports whether more may follow.
func (p *pump) writeAll(data []byte, exited <-chan struct{}) bool {
	for {
		n, err := p.write(data)
		if data = data[n:]; len(data) == 0 {
			return true
		}
		if err != nil && !wouldBlock(err) {
			return false
		}
		if err == nil {
			continue
		}
		select {
		case <-p.ring.c:
		case <-exited:
			return false
		}
	}
}

// holdInput keeps the stdin of s open, which nobody writes to, until no process
// can read it: a command that waits for input must not meet its end because it
// was inherited.
func (g *Guest) holdInput(s *session) {
	p := g.newPump(s.stdin, 0)
	defer p.close(s, &s.stdin)
	for !p.unread() {
		<-p.ring.c
	}
}

// unread reports whether the pipe has no reader any more.
func (p *pump) unread() bool {
	p.g.io.RLock()
	defer p.g.io.RUnlock()
	return p.file.Readiness(waiter.EventErr)&waiter.EventErr != 0
}

// abandon gives up the pipes of a session whose command never started.
func (g *Guest) abandon(s *session) {
	ctx := g.rootContext()
	for _, f := range []*vfs.FileDescription{s.stdin, s.stdout, s.stderr} {
		if f != nil {
			f.DecRef(ctx)
		}
	}
}

// pumpInherited takes over the pipes of inherited commands, whose callers are the
// parent's: what they write is discarded, and they get no input. A command goes
// from the state with the last process that has its pipes.
func (g *Guest) pumpInherited() {
	// A pump that ends changes the list, so none may start before all are found.
	var pumps []func()
	g.sessions.mu.Lock()
	for _, s := range g.sessions.list {
		if s.stdin != nil {
			pumps = append(pumps, func() { g.holdInput(s) })
		}
		for _, end := range []**vfs.FileDescription{&s.stdout, &s.stderr} {
			if *end != nil {
				pumps = append(pumps, func() { g.drain(s, end, nil, nil, nil) })
			}
		}
	}
	g.sessions.mu.Unlock()
	for _, pump := range pumps {
		go pump()
	}
}
