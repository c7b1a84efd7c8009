package guest

import (
	"errors"
	"io"
	gotime "time"

	"gvisor.dev/gvisor/pkg/abi/linux"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/wire"
)

const (
	// defaultKeep is how much output of a process is kept, in bytes.
	defaultKeep = 1 << 20
	// maxKeep bounds what a caller may ask for.
	maxKeep = 16 << 20
)

// Start starts a process that needs no caller.
func (g *Guest) Start(req *wire.Exec) (*wire.Started, error) {
	keep := req.Keep
	if keep == 0 {
		keep = defaultKeep
	}
	if keep < 0 || keep > maxKeep {
		return nil, api.Invalid("keep_kib", "from 0 to %d KiB of output can be kept, not %d", maxKeep>>10, keep>>10)
	}
	p, _, err := g.launch(req, keep, false)
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

// Attach follows a process until it ends, or hands over what there is. Several
// callers may be attached; one that is slow misses what the ring drops meanwhile.
func (g *Guest) Attach(req *wire.Attach, aio AttachIO) (*wire.Attached, error) {
	p, err := g.table.find(req.PID)
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
			return nil, errGone
		}
	}
	attached := &wire.Attached{Next: out.position()}
	if err == io.EOF {
		if !g.ended(p) {
			return nil, api.Errorf(api.CodeNotFound, "process %d was removed", req.PID)
		}
		attached.Exited = g.exitOf(p)
	}
	return attached, nil
}

// Wait waits for the end of a process, or of gone.
func (g *Guest) Wait(pid int, gone <-chan struct{}) (*wire.Exited, error) {
	p, err := g.table.find(pid)
	if err != nil {
		return nil, err
	}
	select {
	case <-p.done:
		return g.exitOf(p), nil
	case <-gone:
		return nil, errGone
	}
}

// ended reports whether p's end is known. It is not yet if p was
// forgotten while it ran.
func (g *Guest) ended(p *process) bool {
	g.table.mu.Lock()
	defer g.table.mu.Unlock()
	return p.ended != 0
}

// exitOf says how p ended.
func (g *Guest) exitOf(p *process) *wire.Exited {
	g.table.mu.Lock()
	defer g.table.mu.Unlock()
	ws := linux.WaitStatus(p.status)
	x := &wire.Exited{TimedOut: p.timedOut, Idle: p.timedIdle, DurationMS: millis(gotime.Duration(p.ended - p.started))}
	if ws.Signaled() {
		x.Code = 128 + int(ws.TerminationSignal())
		x.Signal = signalName(ws.TerminationSignal())
	} else {
		x.Code = int(ws.ExitStatus())
	}
	return x
}

// Forget ends a process and its group, if it runs, and drops its output.
func (g *Guest) Forget(pid int) error {
	p, err := g.table.find(pid)
	if err != nil {
		return err
	}
	g.kill(p)
	g.forget(p)
	return nil
}

func (g *Guest) forget(p *process) {
	g.io.RLock()
	defer g.io.RUnlock()
	g.table.forget(p)
}
