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
	// sessionLife is how long an admitted browser stays admitted.
	sessionLife = 12 * time.Hour
	// maxPasses bounds the passes of a tenant: a new pass replaces the oldest.
	maxPasses = 1000
)

// Session is a browser that may reach a port of a sandbox.
type Session struct {
	Sandbox string // id
	Port    uint16
	// Caller is the caller that admitted the browser.
	Caller access.Caller
	Until  time.Time       // when it ends at the latest; zero: never
	Gone   <-chan struct{} // closed if it ends before Until; nil if it cannot
}

// leadsTo reports whether s is for a target. No session is for a host with a name instead of
// an id: another sandbox may get the name later, and a browser keeps the data that the
// former sandbox stored there.
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

// Sessions has the sessions of browsers, and codes that begin sessions. It is in memory and
// ends with the daemon. It is safe for concurrent use.
type Sessions struct {
	now func() time.Time

	mu     sync.Mutex
	passes map[digest]*pass
	count  uint64
}

// NewSessions returns a Sessions without sessions.
func NewSessions() *Sessions { return &Sessions{now: time.Now, passes: map[digest]*pass{}} }

// Issue returns a code with which a browser may begin a session, and when the code expires.
func (s *Sessions) Issue(of Session) (code string, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.addLocked(pass{Session: of, code: true}, codeLife)
}

// Redeem begins the session of a code, which becomes invalid, and returns the value of the
// session's cookie and when that expires.
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

// makeRoomLocked forgets passes that have ended, and the oldest pass of a tenant that has
// the most passes that it may have.
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
