package codectx

import (
	gotime "time"

	"gvisor.dev/gvisor/pkg/abi/linux"

	"ramet.dev/ramet/internal/engine/interp"
)

// interruptAgain is after how long Node and Bash get a signal again: Node does not listen
// while it evaluates, and Bash loses a signal that comes while it starts a command.
const interruptAgain = 300 * gotime.Millisecond

// interruption is how a run is interrupted.
type interruption struct {
	in       *interpreter
	run      *run
	language interp.Language
	asked    bool
	written  <-chan struct{}    // closed when it was asked to stop
	again    <-chan gotime.Time // when it gets a signal
}

func (i *interruption) begin() {
	switch {
	case i.language == interp.Bash || i.language == interp.Python && i.asked:
		i.signal()
	case !i.asked:
		i.asked, i.written = true, i.in.askToStop(i.run)
	}
}

func (i *interruption) wasAsked() {
	if i.written = nil; i.language == interp.Python {
		i.signal()
	} else {
		i.again = gotime.After(interruptAgain)
	}
}

func (i *interruption) signal() {
	if i.language != interp.Bash || i.in.hasRead() { // a signal ends it before it has set its traps
		i.in.interrupt(i.run)
	}
	if i.language != interp.Python {
		i.again = gotime.After(interruptAgain)
	}
}

// askToStop sends a request to end a run, after the request that is being sent. The channel
// is closed when the request is written, or never will be.
func (in *interpreter) askToStop(r *run) <-chan struct{} {
	in.gate.BeginIO()
	in.mu.Lock()
	if in.busy != 0 && in.current == r {
		in.unsent = interp.AppendFrame(in.unsent, interp.KindInterrupt, r.id, nil)
	}
	in.mu.Unlock()
	in.gate.EndIO()
	written := make(chan struct{})
	go func() {
		defer close(written)
		in.flush()
	}()
	return written
}

// interrupt interrupts a run, if it still runs.
func (in *interpreter) interrupt(r *run) {
	in.mu.Lock()
	runs := in.busy != 0 && in.current == r
	in.mu.Unlock()
	if runs {
		in.signal(linux.SIGINT)
	}
}

// hasRead reports whether an interpreter has read all that it was sent.
func (in *interpreter) hasRead() bool {
	in.gate.BeginIO()
	defer in.gate.EndIO()
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.requests != nil && len(in.unsent) == 0 && in.k.Queued(in.requests) == 0
}
