package share

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"ramet.dev/ramet/internal/network/relay"
)

// Limits bound what sandboxes do together; 0 is no limit.
type Limits struct {
	Connections int `json:"connections,omitempty"`
	RateMbit    int `json:"rate_mbit,omitempty"`
	DNSPerS     int `json:"dns_per_s,omitempty"`
}

// Share is what the sandboxes of a tenant, or of a tree, have together. It is safe for concurrent use.
type Share struct {
	of       string // as the log tells it: "tenant acme"
	up, down passage
	dns      *rate.Limiter
	asked    meter // questions that were answered

	mu      sync.Mutex
	limits  Limits // guarded by mu
	open    int    // connections; guarded by mu
	refused Refused
}

// Up returns what delays the bytes that sandboxes send, and counts them.
func (s *Share) Up() relay.Limiter { return &s.up }

// Down returns what delays the bytes that sandboxes receive, and counts them.
func (s *Share) Down() relay.Limiter { return &s.down }

// Stats are numbers about what sandboxes do together.
type Stats struct {
	Connections int `json:"connections"`
	// BytesIn and BytesOut have passed to and from sandboxes, and Questions were answered. What passes
	// between sandboxes that share counts once.
	BytesIn   int64   `json:"bytes_in"`
	BytesOut  int64   `json:"bytes_out"`
	Questions int64   `json:"questions"`
	Refused   Refused `json:"refused"`
	// MbitPerS is the rate of the direction in which more has passed lately, and QuestionsPerS that of
	// questions.
	MbitPerS      float64 `json:"mbit_per_s"`
	QuestionsPerS float64 `json:"questions_per_s"`
}

// Stats returns the numbers as they are.
func (s *Share) Stats() (st Stats) {
	var in, outward float64
	now := time.Now()
	st.BytesIn, in = s.down.passed.read(now)
	st.BytesOut, outward = s.up.passed.read(now)
	st.Questions, st.QuestionsPerS = s.asked.read(now)
	st.MbitPerS = max(in, outward) * 8 / 1e6
	s.mu.Lock()
	defer s.mu.Unlock()
	st.Connections, st.Refused = s.open, s.refused
	return st
}

// Refused counts what limits refused.
type Refused struct {
	Connections int64 `json:"connections"`
	Questions   int64 `json:"questions"`
}

// passage is the bytes of one direction.
type passage struct {
	Pace
	passed meter
}

// WaitN implements relay.Limiter.
func (p *passage) WaitN(ctx context.Context, n int) error {
	if err := p.Pace.WaitN(ctx, n); err != nil {
		return err
	}
	p.passed.add(int64(n), time.Now())
	return nil
}

// New returns a share of what of names, without anything that uses it.
func New(of string, l Limits) *Share {
	s := &Share{of: of, dns: rate.NewLimiter(rate.Inf, 0)}
	s.Set(l)
	return s
}

// Set puts limits in force. Connections that are open stay.
func (s *Share) Set(l Limits) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limits = l
	s.up.Set(l.RateMbit)
	s.down.Set(l.RateMbit)
	if l.DNSPerS == 0 {
		s.dns.SetLimit(rate.Inf)
		return
	}
	s.dns.SetBurst(max(2*l.DNSPerS, 4)) // as that of one sandbox
	s.dns.SetLimit(rate.Limit(l.DNSPerS))
}

// Take counts one more connection, or returns why there is none.
func (s *Share) Take() (denied string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if most := s.limits.Connections; most > 0 && s.open >= most {
		s.refused.Connections++
		return fmt.Sprintf("quota of %s: network_connections: %d", s.of, most)
	}
	s.open++
	return ""
}

// Give counts one connection less.
func (s *Share) Give() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open--
}

// Ask counts a question, or returns why it is not answered.
func (s *Share) Ask() (denied string) {
	if s.dns.Allow() {
		s.asked.add(1, time.Now())
		return ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused.Questions++
	return fmt.Sprintf("quota of %s: network_dns_per_s: %d", s.of, s.limits.DNSPerS)
}

// Shares are those of one sandbox: of its tree and its tenant.
type Shares []*Share

// Take counts one more connection of all, or of none.
func (all Shares) Take() (denied string) {
	for i, s := range all {
		if denied = s.Take(); denied != "" {
			all[:i].Give()
			return denied
		}
	}
	return ""
}

// Give counts one connection less of all.
func (all Shares) Give() {
	for _, s := range all {
		s.Give()
	}
}

// Ask counts a question of all. One that the last refuses counts for those before: it was asked.
func (all Shares) Ask() (denied string) {
	for _, s := range all {
		if denied = s.Ask(); denied != "" {
			return denied
		}
	}
	return ""
}
