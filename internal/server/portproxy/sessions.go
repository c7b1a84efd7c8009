package portproxy

import (
	"crypto/rand"
	"crypto/sha256"
	"sync"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/service/access"
)

const (
	// codeLife is how long a URL with a code may be opened.
	codeLife = 5 * time.Minute
	// sessionLife is how long a browser that was let in stays.
	sessionLife = 12 * time.Hour
	// maxPasses bounds what a tenant has: the oldest makes room for a new one.
	maxPasses = 1000
)

// Session is a browser that may reach one port of one sandbox.
type Session struct {
	Sandbox string // id
	Port    uint16
	// Caller is on whose behalf it does so.
	Caller access.Caller
	Until  time.Time       // when it ends at the latest; zero is without an end
	Gone   <-chan struct{} // closed if it ends before; nil if it cannot
}

// leadsTo reports whether s is for a target. Hosts with names are nobody's: a name may be
// another sandbox's tomorrow, and a browser keeps what the one before left there.
func (s *Session) leadsTo(t Target) bool { return s.Sandbox == t.Ref && s.Port == t.Port }

type digest [sha256.Size]byte

func digestOf(secret string) digest { return sha256.Sum256([]byte(secret)) }

// pass is the use of a secret: a code begins a session once, a cookie continues it.
type pass struct {
	Session
	code  bool
	ends  time.Time // not after Until
	order uint64
}

func (p *pass) live(now time.Time) bool {
	select {
	case <-p.Gone:
		return false
	default:
		return now.Before(p.ends)
	}
}

// Sessions are the browsers that were let in, and those that are about to be. They are
// kept in memory and end with the daemon. It is safe for concurrent use.
type Sessions struct {
	now func() time.Time

	mu     sync.Mutex
	passes map[digest]*pass
	count  uint64
}

// NewSessions returns no sessions.
func NewSessions() *Sessions { return &Sessions{now: time.Now, passes: map[digest]*pass{}} }

// Issue returns a code with which one browser may begin a session, and when the code expires.
func (s *Sessions) Issue(of Session) (code string, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.addLocked(pass{Session: of, code: true}, codeLife)
}

// Redeem begins the session of a code, which is no good any more then, and returns the
// value of its cookie, and until when that is good.
func (s *Sessions) Redeem(code string, at Target) (secret string, until time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.passes[digestOf(code)]
	if p == nil || !p.code || !p.leadsTo(at) || !p.live(s.now()) {
		return "", until, api.Errorf(api.CodeUnknownUser, "the code in this URL is not valid here: it can be used once, within %v, and for one port of one sandbox", codeLife)
	}
	delete(s.passes, digestOf(code))
	secret, until = s.addLocked(pass{Session: p.Session}, sessionLife)
	return secret, until, nil
}

// Find returns the session at a target to which one of the secrets belongs, or nil.
func (s *Sessions) Find(secrets []string, at Target) *Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, secret := range secrets {
		if p := s.passes[digestOf(secret)]; p != nil && !p.code && p.leadsTo(at) && p.live(s.now()) {
			found := p.Session
			found.Until = p.ends
			return &found
		}
	}
	return nil
}

// addLocked keeps a pass for at most so long, and returns its secret and its end.
func (s *Sessions) addLocked(p pass, life time.Duration) (secret string, ends time.Time) {
	now := s.now()
	s.makeRoomLocked(now, p.Caller.Tenant)
	s.count++
	p.order, p.ends = s.count, now.Add(life)
	if !p.Until.IsZero() && p.Until.Before(p.ends) {
		p.ends = p.Until
	}
	secret = rand.Text() + rand.Text()
	s.passes[digestOf(secret)] = &p
	return secret, p.ends
}

// makeRoomLocked forgets what has ended, and the oldest pass of a tenant that has as many
// as it may.
func (s *Sessions) makeRoomLocked(now time.Time, tenant string) {
	n := 0
	var oldest digest
	var order uint64
	for d, p := range s.passes {
		switch {
		case !p.live(now):
			delete(s.passes, d)
		case p.Caller.Tenant == tenant:
			if n++; order == 0 || p.order < order {
				oldest, order = d, p.order
			}
		}
	}
	if n >= maxPasses {
		delete(s.passes, oldest)
	}
}
