package codectx

import (
	"gvisor.dev/gvisor/pkg/sentry/vfs"
	"gvisor.dev/gvisor/pkg/waiter"

	"ramet.dev/ramet/internal/engine/interp"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/sentry/gate"
)

// intake reads the output of an interpreter. One goroutine reads all of its pipes, in
// the order in which they were written.
type intake struct {
	in    *interpreter
	files []*vfs.FileDescription
	order order // of files
	buf   []byte
	lost  bool // it did not keep to the protocol
}

// The places in intake.files.
const (
	stdoutPipe = iota
	stderrPipe
	answersPipe
)

// serve reads the output of an interpreter until it is over.
func (in *interpreter) serve() {
	defer close(in.done)
	t := &intake{in: in, files: []*vfs.FileDescription{in.stdout, in.stderr, in.answers}, buf: make([]byte, wire.MaxChunk)}
	for _, f := range t.files {
		t.order.pipes = append(t.order.pipes, &orderedPipe{queued: func() int { return in.k.Queued(f) }})
	}
	wake := make(chan struct{}, 1)
	listeners := make([]gate.Listener, len(t.files))
	for i, f := range t.files {
		listeners[i].Listen(in.gate, f, waiter.ReadableEvents, gate.NewSharedNotifier(wake, func() { t.order.note(i) }))
	}
	for !in.hasExited() {
		if t.readNext() {
			continue
		}
		select {
		case <-wake:
		case <-in.exited:
		}
	}
	for i := range listeners {
		listeners[i].Close()
	}
	t.order.stop()
	for t.readNext() { // what it left in the pipes; not the output of processes that it left behind
	}
	in.kill() // the rest of its process group
	in.finish()
}

func (in *interpreter) hasExited() bool {
	select {
	case <-in.exited:
		return true
	default:
		return false
	}
}

// readNext reads what comes next and passes it on. It returns false if there is
// nothing.
func (t *intake) readNext() bool {
	pipe, most := t.order.next()
	if most == 0 {
		return false
	}
	buf := t.buf[:min(len(t.buf), most)]
	var parts []interp.Part
	t.in.gate.BeginIO()
	n, _ := t.files[pipe].Read(t.in.k.SupervisorContext(), t.order.pipes[pipe].into(buf), vfs.ReadOptions{}) // an end is seen by the exit
	if pipe == answersPipe && !t.lost {
		var err error
		parts, err = t.note(buf[:n])
		t.lost = err != nil
	}
	t.in.gate.EndIO()
	switch {
	case n == 0:
		t.order.skip()
	case pipe == stdoutPipe:
		t.run().output(wire.Stdout, buf[:n])
	case pipe == stderrPipe:
		t.run().output(wire.Stderr, buf[:n])
	}
	for _, part := range parts {
		t.pass(part)
	}
	if t.lost {
		t.in.kill()
	}
	return true
}

// note takes answers apart. The saved part of them changes together with the pipe.
func (t *intake) note(data []byte) (parts []interp.Part, err error) {
	t.in.mu.Lock()
	defer t.in.mu.Unlock()
	for len(data) > 0 {
		part, rest, ok, err := t.in.split.Next(data)
		if err != nil {
			return parts, err
		}
		if !ok {
			break
		}
		if err := t.in.noteLocked(part); err != nil {
			return parts, err
		}
		parts, data = append(parts, part), rest
	}
	return parts, nil
}

// run returns the run that waits for answers, or nil.
func (t *intake) run() *run {
	t.in.mu.Lock()
	defer t.in.mu.Unlock()
	return t.in.current
}

// pass passes a part of an answer on, and ends the run with the last one.
func (t *intake) pass(part interp.Part) {
	r := t.run()
	if r == nil || r.id != part.Run || part.Kind == interp.KindHello || part.Kind == interp.KindRest {
		return // no run waits for it any more
	}
	r.part(part)
	if part.Kind == interp.KindDone && part.Last {
		t.in.leave(r)
		close(r.done)
	}
}
