package proc

import (
	"errors"
	"io"
	gotime "time"

	"gvisor.dev/gvisor/pkg/abi/linux"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/sentry/gate"
	"ramet.dev/ramet/internal/sentry/kern"
	"ramet.dev/ramet/internal/sentry/stages"
)

const (
	// defaultKeep is how much output of a process is kept, in bytes.
	defaultKeep = 1 << 20
	// maxKeep bounds how much a caller may ask to be kept.
	maxKeep = 16 << 20
)

// Start starts a process that needs no caller.
func (ps *Processes) Start(req *wire.Exec) (*wire.Started, error) {
	keep := req.Keep
	if keep == 0 {
		keep = defaultKeep
	}
	if keep < 0 || keep > maxKeep {
		return nil, api.Invalid("keep_kib", "from 0 to %d KiB of output can be kept, not %d", maxKeep>>10, keep>>10)
	}
	p, _, err := ps.launch(req, keep, false)
	if err != nil {
		var se *startError
		if errors.As(err, &se) {
			code := api.CodeNotExecutable
			if se.code == exitNotFound {
				code = api.CodeNoCommand
			}
			err = api.Errorf(code, "%s", se.msg)
		}
		return nil, err
	}
	return &wire.Started{PID: int(p.pid)}, nil
}

// AttachIO connects a caller to a process.
type AttachIO struct {
	// Output is called with each chunk, until it fails.
	Output func(wire.Chunk) error
	// Gone is closed when the caller went away.
	Gone <-chan struct{}
}

// Attach follows the output of a process until the process ends, or returns what is kept of
// it. Several callers may be attached; a slow caller misses the output that the ring drops
// meanwhile.
func (ps *Processes) Attach(req *wire.Attach, aio AttachIO) (*wire.Attached, error) {
	p, err := ps.table.find(req.PID)
	if err != nil {
		return nil, err
	}
	from := req.From
	_, next := p.out.bounds()
	switch {
	case from == -1:
		from = next
	case from < 0 || from > next:
		return nil, api.Invalid("from", "process %d has written %d bytes: from is a number from 0 to that, or -1 for what it writes from now on", req.PID, next)
	}
	out := p.out.newReader(from, false)
	defer out.close()
	for {
		var c wire.Chunk
		if req.Follow {
			c, err = out.next(aio.Gone)
		} else {
			c, err = out.try()
		}
		if err != nil {
			break
		}
		if err := aio.Output(c); err != nil {
			return nil, gate.ErrGone
		}
	}
	attached := &wire.Attached{Next: out.position()}
	if err == io.EOF {
		if !p.hasEnded() {
			return nil, api.Errorf(api.CodeNotFound, "process %d was removed", req.PID)
		}
		attached.Exited = p.exit()
	}
	return attached, nil
}

// Wait waits for the end of a process, or of gone.
func (ps *Processes) Wait(pid int, gone <-chan struct{}) (*wire.Exited, error) {
	p, err := ps.table.find(pid)
	if err != nil {
		return nil, err
	}
	select {
	case <-p.done:
		return p.exit(), nil
	case <-gone:
		return nil, gate.ErrGone
	}
}

// hasEnded reports whether p's end is known. The end of a process that was forgotten while
// it ran is not.
func (p *process) hasEnded() bool {
	p.table.mu.Lock()
	defer p.table.mu.Unlock()
	return p.ended != 0
}

// exit says how p ended.
func (p *process) exit() *wire.Exited {
	p.table.mu.Lock()
	defer p.table.mu.Unlock()
	x := &wire.Exited{TimedOut: p.timedOut, Idle: p.timedIdle, DurationMS: stages.Millis(gotime.Duration(p.ended - p.started))}
	x.Code, x.Signal = kern.ExitOf(linux.WaitStatus(p.status))
	return x
}

// Forget ends a process and all that it started, if it runs, and drops its output.
func (ps *Processes) Forget(pid int) error {
	p, err := ps.table.find(pid)
	if err != nil {
		return err
	}
	p.kill()
	ps.table.forget(p)
	return nil
}
