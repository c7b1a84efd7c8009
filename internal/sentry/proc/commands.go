package proc

import (
	"io"
	"sync"
	gotime "time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/sentry/gate"
	"ramet.dev/ramet/internal/sentry/stages"
)

const (
	// resumeBlocks is how much output of a command with a key is kept after it was sent,
	// in blocks: as much as the buffers of two sockets and of the daemon hold, which is lost
	// when the daemon ends.
	resumeBlocks = 16
	// resumeWithin is how long a command with a key goes on without a caller.
	resumeWithin = 30 * gotime.Second
	// takeOverWithin is how long a caller that comes back waits until the loss of its former
	// connection is noticed.
	takeOverWithin = 2 * gotime.Second
)

// foreground is a command with a caller, or with a caller that may come back.
type foreground struct {
	key   string // empty if the caller may not come back
	p     *process
	out   *reader
	began gotime.Time
}

// commands are the commands whose callers may come back. They are not saved: a child's
// copies of them have no callers.
type commands struct {
	mu   sync.Mutex
	list map[string]*keptCommand
}

// keptCommand is a command that has a key.
type keptCommand struct {
	free  chan *foreground // has the command while it has no caller
	limit *gotime.Timer    // ends the command while it has no caller
}

// add reserves a key.
func (cs *commands) add(key string) error {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.list[key] != nil {
		return api.Errorf(api.CodeConflict, "key: a command has this key already")
	}
	if cs.list == nil {
		cs.list = map[string]*keptCommand{}
	}
	cs.list[key] = &keptCommand{free: make(chan *foreground, 1)}
	return nil
}

// remove gives a key up, unless it is empty.
func (cs *commands) remove(key string) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	delete(cs.list, key)
}

// release has a command wait for its caller, or for end.
func (cs *commands) release(r *foreground, end func()) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	k := cs.list[r.key]
	k.free <- r
	k.limit = gotime.AfterFunc(resumeWithin, func() {
		select {
		case <-k.free:
			end()
		default: // the caller came back
		}
	})
}

// take returns the command with a key, as soon as it has no caller.
func (cs *commands) take(key string, done <-chan struct{}) (*foreground, error) {
	cs.mu.Lock()
	k := cs.list[key]
	cs.mu.Unlock()
	if k == nil {
		return nil, api.Errorf(api.CodeNotFound, "no command has this key: it was not started, or its time without a caller was over")
	}
	select {
	case r := <-k.free:
		cs.mu.Lock()
		defer cs.mu.Unlock()
		k.limit.Stop()
		return r, nil
	case <-done:
		return nil, gate.ErrGone
	case <-gotime.After(takeOverWithin):
		return nil, api.Errorf(api.CodeConflict, "key: the command with this key has a caller")
	}
}

// ResumeExec comes back to a command that lost its caller.
func (ps *Processes) ResumeExec(req *wire.Exec, xio ExecIO) (*wire.Exited, error) {
	r, err := ps.commands.take(req.Key, xio.Done)
	if err != nil {
		return nil, err
	}
	if !r.out.goBack(req.From) {
		ps.endCommand(r, true)
		return nil, api.Errorf(api.CodeLimit, "the output of the command from byte %d on is not kept any more: the command was ended", req.From)
	}
	return ps.follow(r, xio)
}

// follow copies the output of a command to its caller until the command ends. Without a
// caller it is killed, unless the caller may come back.
func (ps *Processes) follow(r *foreground, xio ExecIO) (*wire.Exited, error) {
	err := copyChunks(r.out, xio)
	if err != io.EOF && r.key != "" {
		<-xio.Done // a failed write may be noticed before the caller's last packet
		if !xio.Canceled() {
			ps.commands.release(r, func() { ps.endCommand(r, true) })
			return nil, gate.ErrGone
		}
	}
	return ps.endCommand(r, err != io.EOF), nil
}

// endCommand waits for the end of a command and forgets it.
func (ps *Processes) endCommand(r *foreground, kill bool) *wire.Exited {
	r.out.close()
	if kill {
		r.p.kill() // it has no caller any more
	}
	<-r.p.done
	exited := r.p.exit()
	ps.commands.remove(r.key)
	ps.table.forget(r.p) // whoever sees that it is gone finds no command with its key either
	exited.DurationMS = stages.Millis(gotime.Since(r.began))
	return exited
}
