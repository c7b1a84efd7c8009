package guest

import (
	"context"
	"slices"
	"sync"

	"gvisor.dev/gvisor/pkg/sentry/vfs"
	"gvisor.dev/gvisor/pkg/state"
	"gvisor.dev/gvisor/pkg/waiter"
)

// sessionsKey names the sessions in the kernel's saved state.
const sessionsKey = "ramet.sessions"

// sessions is the host side's part of the saved state: the pipes of commands
// that were started from outside, which a child must keep draining.
type sessions struct {
	mu   sync.Mutex // not saved
	list []*session // guarded by mu
	// detached are the mount points to mount again, see statelessMounts. It is
	// only set during a save.
	detached []string
}

func newSessions() *sessions { return &sessions{} }

func (s *sessions) add(x *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, x)
}

// closed drops end, one of x's, and x with its last one.
func (s *sessions) closed(x *session, end **vfs.FileDescription) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*end = nil
	if x.stdin == nil && x.stdout == nil && x.stderr == nil {
		s.list = slices.DeleteFunc(s.list, func(y *session) bool { return x == y })
	}
}

// session is one command that was started from outside: the sentry's ends of
// its pipes, nil when closed. Its ends are guarded by sessions.mu and Guest.io.
type session struct {
	stdin, stdout, stderr *vfs.FileDescription
}

// alarm is an event listener that survives a save, as waiter.ChannelNotifier
// does not: in a child it is deaf.
type alarm struct{ c chan struct{} }

func newAlarm() *alarm { return &alarm{c: make(chan struct{}, 1)} }

// NotifyEvent implements waiter.EventListener.
func (a *alarm) NotifyEvent(waiter.EventMask) {
	select {
	case a.c <- struct{}{}:
	default: // nil in a child, or already ringing
	}
}

// The methods below are what gVisor's state package asks of saved types;
// upstream generates them with a tool that is not part of its Go module.

func (*sessions) StateTypeName() string { return "ramet.dev/ramet/internal/sentry/guest.sessions" }
func (*sessions) StateFields() []string { return []string{"list", "detached"} }
func (s *sessions) StateSave(sink state.Sink) {
	sink.Save(0, &s.list)
	sink.Save(1, &s.detached)
}
func (s *sessions) StateLoad(_ context.Context, src state.Source) {
	src.Load(0, &s.list)
	src.Load(1, &s.detached)
}

func (*session) StateTypeName() string { return "ramet.dev/ramet/internal/sentry/guest.session" }
func (*session) StateFields() []string { return []string{"stdin", "stdout", "stderr"} }
func (s *session) StateSave(sink state.Sink) {
	sink.Save(0, &s.stdin)
	sink.Save(1, &s.stdout)
	sink.Save(2, &s.stderr)
}
func (s *session) StateLoad(_ context.Context, src state.Source) {
	src.Load(0, &s.stdin)
	src.Load(1, &s.stdout)
	src.Load(2, &s.stderr)
}

func (*alarm) StateTypeName() string                   { return "ramet.dev/ramet/internal/sentry/guest.alarm" }
func (*alarm) StateFields() []string                   { return nil }
func (*alarm) StateSave(state.Sink)                    {}
func (*alarm) StateLoad(context.Context, state.Source) {}

func init() {
	state.Register((*sessions)(nil))
	state.Register((*session)(nil))
	state.Register((*alarm)(nil))
}
