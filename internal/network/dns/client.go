package dns

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/time/rate"
)

// Ruling is what a policy says about a name.
type Ruling struct {
	Allowed bool
	// Named says that a rule names it, or the names below one: not only the default allows
	// it.
	Named bool
	// Rule is the rule that decided, as text.
	Rule string
}

// Policy judges questions and answers.
type Policy interface {
	// Name judges a question for a name, in lower case and without the dot at its end.
	Name(name string) Ruling
	// Address reports whether an answer for an allowed name may have the address. A server
	// of names could point to what only the host's network reaches.
	Address(name string, addr netip.Addr) bool
}

// Siblings knows names that no server knows: those of other sandboxes.
type Siblings interface {
	// Sibling returns the address for a name, and whether it is such a name. The address is
	// invalid if nobody has the name.
	Sibling(name string) (addr netip.Addr, is bool)
}

// Outcome is what became of a question.
type Outcome struct {
	Name, Type string
	Allowed    bool
	Rule       string
	// Reason says why a question that a rule allows was refused.
	Reason string
	// Addresses are those that were given out.
	Addresses []netip.Addr
}

const (
	// maxPending is how many questions of a sandbox are under way at once.
	maxPending = 64
	// maxName is how long a name may be that no rule names: longer ones carry data.
	maxName = 150
	// answerTimeout bounds a question.
	answerTimeout = 15 * time.Second
	// maxTTL bounds for how long a guest keeps an answer.
	maxTTL = 3600
	// siblingTTL is for how long a guest keeps the address of another sandbox.
	siblingTTL = 5
	// minDatagram is the size of an answer that a guest takes that says nothing about it.
	minDatagram = 512
)

// Client answers the questions of one sandbox. It is safe for concurrent use.
type Client struct {
	upstream *Upstream
	siblings Siblings
	names    *Names
	policy   atomic.Pointer[Policy]
	limit    *rate.Limiter
	quota    func() (denied string) // nil if there is none
	pending  atomic.Int32
	standIn  func(name string) (netip.Addr, bool)
}

// NewClient returns the side of a sandbox. perSecond is how many questions it may ask; 0 is
// as many as it likes.
func NewClient(upstream *Upstream, siblings Siblings, names *Names, policy Policy, perSecond int) *Client {
	c := &Client{upstream: upstream, siblings: siblings, names: names, limit: rate.NewLimiter(rate.Inf, 0)}
	c.SetPolicy(policy, perSecond)
	return c
}

// SetPolicy replaces the policy and the limit. Addresses that were given out are remembered:
// connections are judged by the new policy.
func (c *Client) SetPolicy(p Policy, perSecond int) {
	c.policy.Store(&p)
	if perSecond <= 0 {
		c.limit.SetLimit(rate.Inf)
		return
	}
	c.limit.SetBurst(max(2*perSecond, 4)) // A and AAAA come together
	c.limit.SetLimit(rate.Limit(perSecond))
}

// SetQuota has f asked about each question that the limit allows: it may refuse what several sandboxes
// ask together, and says why. It is called before the first question.
func (c *Client) SetQuota(f func() (denied string)) { c.quota = f }

// SetStandIn gives names that the host's resolver does not know an address, if f has one for them: they
// are reached by name. It is called before the first question.
func (c *Client) SetStandIn(f func(name string) (netip.Addr, bool)) { c.standIn = f }

// question is one that is being answered.
type question struct {
	msg    *dns.Msg
	name   string
	ruling Ruling
	policy Policy
}

var (
	errNoQuestion = errors.New("it is no question")
	errRate       = errors.New("there are too many questions")
)

// Answer answers a message of the guest. stream says that the answer may be as long as it is.
// Bytes that are no question have no answer.
func (c *Client) Answer(ctx context.Context, message []byte, stream bool) (reply []byte, o Outcome, err error) {
	m := &dns.Msg{}
	if err := m.Unpack(message); err != nil || m.Response {
		return nil, o, errNoQuestion
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	r := &dns.Msg{}
	q := question{msg: m, policy: *c.policy.Load()}
	if rcode, reason := q.check(); reason != "" {
		r.SetRcode(m, rcode)
		o.Reason = reason
	} else {
		o.Name, o.Type = q.name, dns.TypeToString[m.Question[0].Qtype]
		r = c.answer(ctx, &q, &o)
	}
	r.RecursionAvailable = true
	r.Compress = true
	size := dns.MaxMsgSize
	if opt := m.IsEdns0(); opt != nil {
		r.SetEdns0(payloadSize, false)
		if !stream {
			size = int(min(max(opt.UDPSize(), minDatagram), payloadSize))
		}
	} else if !stream {
		size = minDatagram
	}
	r.Truncate(size)
	reply, err = r.Pack()
	if err != nil { // a server's record that cannot be written again
		f := &dns.Msg{}
		f.SetRcode(m, dns.RcodeServerFailure)
		reply, err = f.Pack()
	}
	return reply, o, err
}

// Lookup returns the addresses that a name has and that the policy lets it have, for a question that
// is not the guest's. They count as given out.
func (c *Client) Lookup(ctx context.Context, name string) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	var o Outcome
	for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA} {
		m := new(dns.Msg).SetQuestion(dns.Fqdn(name), qtype)
		q := question{msg: m, policy: *c.policy.Load()}
		if _, reason := q.check(); reason != "" {
			return nil, fmt.Errorf("look up %q: %s", name, reason)
		}
		c.answer(ctx, &q, &o)
	}
	if len(o.Addresses) == 0 {
		return nil, fmt.Errorf("look up %q: %s", name, cmp.Or(o.Reason, "it has no address"))
	}
	return o.Addresses, nil
}

// check reports why a message is refused without being judged.
func (q *question) check() (rcode int, reason string) {
	m := q.msg
	switch {
	case m.Opcode != dns.OpcodeQuery:
		return dns.RcodeNotImplemented, "it is no query"
	case len(m.Question) != 1:
		return dns.RcodeFormatError, "it does not have one question"
	case m.Question[0].Qclass != dns.ClassINET:
		return dns.RcodeRefused, "its class is not that of the internet"
	}
	q.name = canonical(m.Question[0].Name)
	if strings.Contains(q.name, `\`) {
		// An escaped byte: a dot within a label would be taken for one between labels.
		return dns.RcodeNameError, "its name is not that of a host"
	}
	return 0, ""
}

// answer answers a question.
func (c *Client) answer(ctx context.Context, q *question, o *Outcome) *dns.Msg {
	refuse := func(rcode int, reason string) *dns.Msg {
		o.Reason = reason
		return new(dns.Msg).SetRcode(q.msg, rcode)
	}
	if c.pending.Add(1) > maxPending || !c.limit.Allow() {
		c.pending.Add(-1)
		return refuse(dns.RcodeRefused, errRate.Error())
	}
	defer c.pending.Add(-1)
	if c.quota != nil {
		if denied := c.quota(); denied != "" {
			return refuse(dns.RcodeRefused, denied)
		}
	}
	qtype := q.msg.Question[0].Qtype
	if qtype == dns.TypePTR {
		o.Allowed = true
		return c.reverse(q)
	}
	if addr, is := c.siblings.Sibling(q.name); is {
		o.Allowed = addr.IsValid()
		return c.sibling(q, addr, o)
	}
	q.ruling = q.policy.Name(q.name)
	o.Rule = q.ruling.Rule
	switch {
	case !q.ruling.Allowed:
		// musl ignores REFUSED and waits for another answer. A name error without a SOA record is
		// not cached, so a rule that allows the name later takes effect at once.
		return refuse(dns.RcodeNameError, "")
	case !usual[qtype] && !(q.ruling.Named && rare[qtype]):
		return refuse(dns.RcodeRefused, "its type is not answered")
	case !q.ruling.Named && len(q.name) > maxName:
		return refuse(dns.RcodeNameError, "its name is too long")
	}
	if addrs := c.upstream.local(q.name); len(addrs) > 0 {
		r := c.fromHosts(q, addrs, o)
		o.Allowed = o.Reason == "" || len(o.Addresses) > 0 // else all that there is was left out
		return r
	}
	reply, err := c.upstream.exchange(ctx, dns.Question{Name: dns.Fqdn(q.name), Qtype: qtype, Qclass: dns.ClassINET})
	if (err != nil || reply.Rcode == dns.RcodeNameError) && c.standIn != nil {
		if addr, has := c.standIn(q.name); has {
			o.Allowed = true
			return c.sibling(q, addr, o)
		}
	}
	if err != nil {
		return refuse(dns.RcodeServerFailure, err.Error())
	}
	r := c.choose(q, reply, o)
	o.Allowed = o.Reason == "" || len(o.Addresses) > 0
	return r
}
