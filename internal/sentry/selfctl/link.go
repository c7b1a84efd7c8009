package selfctl

import (
	"encoding/json"
	"sync"
	gotime "time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/sentry/gate"
)

// linkTimeout is how long a request waits for a daemon. A child's is not there
// before its fork is whole, and a daemon may be replaced.
const linkTimeout = 30 * gotime.Second

// link passes requests on to the daemon that asked for them, if there is one.
type link struct {
	mu      sync.Mutex
	daemon  *Daemon       // nil for none
	changed chan struct{} // closed when daemon changes
	waiting map[uint64]chan []byte
}

// Daemon is the daemon's side of a link.
type Daemon struct {
	// Send passes on a request.
	Send func(wire.ControlRequest) error
	// Close ends the call by which the daemon asked for requests.
	Close func()

	gone chan struct{}
}

func (l *link) init() { l.changed, l.waiting = make(chan struct{}), map[uint64]chan []byte{} }

// Relay passes requests on to the daemon d until receive, which returns its answers,
// fails. Another daemon takes its place. A nil controller, of a sandbox that may not
// control itself, returns an error.
func (c *Controller) Relay(d *Daemon, receive func() (*wire.ControlAnswer, error)) error {
	if c == nil {
		return api.Errorf(api.CodeWrongState, "the sandbox may not control itself")
	}
	l := &c.link
	d.gone = make(chan struct{})
	l.set(d)
	defer l.unset(d)
	for {
		a, err := receive()
		if err != nil {
			return gate.ErrGone
		}
		l.answer(a)
	}
}

func (l *link) set(d *Daemon) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.daemon != nil {
		l.daemon.Close()
	}
	l.become(d)
}

func (l *link) unset(d *Daemon) {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(d.gone)
	if l.daemon == d {
		l.become(nil)
	}
}

// become changes the daemon. The caller holds mu.
func (l *link) become(d *Daemon) {
	l.daemon = d
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *link) answer(a *wire.ControlAnswer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c, ok := l.waiting[a.ID]; ok {
		delete(l.waiting, a.ID)
		c <- append(a.Reply, '\n') // it has room for one
	}
}

// ask returns the daemon's answer to a request, or a refusal that says why there is none.
func (l *link) ask(id uint64, request json.RawMessage) []byte {
	answer := make(chan []byte, 1)
	l.mu.Lock()
	l.waiting[id] = answer
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.waiting, id)
	}()
	timeout := gotime.NewTimer(linkTimeout)
	defer timeout.Stop()
	for {
		l.mu.Lock()
		d, changed := l.daemon, l.changed
		l.mu.Unlock()
		if d != nil && d.Send(wire.ControlRequest{ID: id, Request: request}) == nil {
			return awaitAnswer(answer, d.gone)
		}
		select {
		case <-changed:
		case <-timeout.C:
			return refusal(api.Errorf(api.CodeUnavailable, "there was no daemon for %v", linkTimeout))
		}
	}
}

// awaitAnswer waits for the answer to a request that was sent. A request is never sent twice,
// because a daemon that ended may have done it.
func awaitAnswer(answer <-chan []byte, gone <-chan struct{}) []byte {
	select {
	case a := <-answer:
		return a
	case <-gone:
	}
	select {
	case a := <-answer:
		return a
	default:
		return refusal(api.Errorf(api.CodeUnavailable, "the daemon ended while it worked on this: see what info says before you ask again"))
	}
}
