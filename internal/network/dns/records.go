package dns

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// usual are the types that each allowed name may be asked for, rare those that a rule has to
// name it for: they have room for anything.
var (
	usual = map[uint16]bool{dns.TypeA: true, dns.TypeAAAA: true, dns.TypeCNAME: true, dns.TypeHTTPS: true, dns.TypeSVCB: true}
	rare  = map[uint16]bool{
		dns.TypeTXT: true, dns.TypeMX: true, dns.TypeSRV: true, dns.TypeNS: true, dns.TypeSOA: true, dns.TypeCAA: true,
		dns.TypeNAPTR: true, dns.TypeDS: true, dns.TypeDNSKEY: true, dns.TypeTLSA: true, dns.TypeSSHFP: true,
	}
)

// choose makes the guest's answer of a server's: the records that lead from the name to its
// addresses, those of the type that was asked for, and the one that says for how long there is
// none. Addresses that the policy does not let the name have are left out.
func (c *Client) choose(q *question, reply *dns.Msg, o *Outcome) *dns.Msg {
	r := new(dns.Msg).SetRcode(q.msg, reply.Rcode)
	asked := q.msg.Question[0]
	owner := q.name
	for range len(reply.Answer) { // each step of the chain is one record at least
		next := ""
		for _, rr := range reply.Answer {
			h := rr.Header()
			if canonical(h.Name) != owner || h.Class != dns.ClassINET {
				continue
			}
			if alias, is := rr.(*dns.CNAME); is && asked.Qtype != dns.TypeCNAME {
				next = canonical(alias.Target)
				r.Answer = append(r.Answer, c.record(q, rr))
			} else if h.Rrtype == asked.Qtype && c.admit(q, rr, o) {
				r.Answer = append(r.Answer, c.record(q, rr))
			}
		}
		if next == "" || next == q.name {
			break
		}
		owner = next
	}
	for _, rr := range reply.Ns {
		if soa, is := rr.(*dns.SOA); is && len(o.Addresses) == 0 && dns.IsSubDomain(soa.Hdr.Name, dns.Fqdn(owner)) {
			r.Ns = []dns.RR{limitTTL(soa)}
			break
		}
	}
	return r
}

// record returns a copy of a record for the guest. The name is as the guest wrote it: some
// compare it.
func (c *Client) record(q *question, rr dns.RR) dns.RR {
	rr = limitTTL(rr)
	if canonical(rr.Header().Name) == q.name {
		rr.Header().Name = q.msg.Question[0].Name
	}
	if https, is := rr.(*dns.HTTPS); is {
		strip(&https.SVCB)
	}
	if svcb, is := rr.(*dns.SVCB); is {
		strip(svcb)
	}
	return rr
}

func limitTTL(rr dns.RR) dns.RR {
	rr = dns.Copy(rr)
	rr.Header().Ttl = min(rr.Header().Ttl, maxTTL)
	return rr
}

// strip removes addresses, which would not be judged, and the key by which a client hides the
// name that it asks for.
func strip(svcb *dns.SVCB) {
	svcb.Value = slices.DeleteFunc(svcb.Value, func(v dns.SVCBKeyValue) bool {
		switch v.Key() {
		case dns.SVCB_IPV4HINT, dns.SVCB_IPV6HINT, dns.SVCB_ECHCONFIG:
			return true
		}
		return false
	})
}

// admit reports whether the guest may have a record, and remembers the address in it.
func (c *Client) admit(q *question, rr dns.RR, o *Outcome) bool {
	addr := addressOf(rr)
	if !addr.IsValid() {
		return rr.Header().Rrtype != dns.TypeA && rr.Header().Rrtype != dns.TypeAAAA
	}
	if !q.policy.Address(q.name, addr) {
		o.Reason = "the answer has the address " + addr.String() + ", which the name may not have"
		return false
	}
	c.give(q, addr, time.Duration(rr.Header().Ttl)*time.Second, o)
	return true
}

func (c *Client) give(q *question, addr netip.Addr, ttl time.Duration, o *Outcome) {
	c.names.Add(q.name, addr, ttl)
	o.Addresses = append(o.Addresses, addr)
}

func addressOf(rr dns.RR) netip.Addr {
	var ip net.IP
	switch rr := rr.(type) {
	case *dns.A:
		ip = rr.A
	case *dns.AAAA:
		ip = rr.AAAA
	}
	addr, _ := netip.AddrFromSlice(ip)
	return addr.Unmap()
}

// addressRecord returns the record of an address, or nil if the question is for the other
// family.
func addressRecord(q *question, addr netip.Addr, ttl uint32) dns.RR {
	asked := q.msg.Question[0]
	h := dns.RR_Header{Name: asked.Name, Rrtype: asked.Qtype, Class: dns.ClassINET, Ttl: ttl}
	switch {
	case asked.Qtype == dns.TypeA && addr.Is4():
		return &dns.A{Hdr: h, A: addr.AsSlice()}
	case asked.Qtype == dns.TypeAAAA && addr.Is6():
		return &dns.AAAA{Hdr: h, AAAA: addr.AsSlice()}
	}
	return nil
}

// hostsTTL is for how long a guest keeps an address of the hosts file.
const hostsTTL = 60

// fromHosts answers with addresses of the hosts file.
func (c *Client) fromHosts(q *question, addrs []netip.Addr, o *Outcome) *dns.Msg {
	r := new(dns.Msg).SetReply(q.msg)
	for _, addr := range addrs {
		if rr := addressRecord(q, addr, hostsTTL); rr != nil && c.admit(q, rr, o) {
			r.Answer = append(r.Answer, rr)
		}
	}
	return r
}

// sibling answers with the address of another sandbox, which is IPv4.
func (c *Client) sibling(q *question, addr netip.Addr, o *Outcome) *dns.Msg {
	r := new(dns.Msg).SetReply(q.msg)
	if !addr.IsValid() {
		r.Rcode = dns.RcodeNameError
		return r
	}
	if rr := addressRecord(q, addr, siblingTTL); rr != nil {
		c.give(q, addr, siblingTTL*time.Second, o)
		r.Answer = []dns.RR{rr}
	}
	return r
}

// reverse answers with a name that the address was given out for: no server is asked.
func (c *Client) reverse(q *question) *dns.Msg {
	r := new(dns.Msg).SetReply(q.msg)
	addr, is := reversed(q.name)
	names := c.names.Of(addr)
	if !is || len(names) == 0 {
		r.Rcode = dns.RcodeNameError
		return r
	}
	h := dns.RR_Header{Name: q.msg.Question[0].Name, Rrtype: dns.TypePTR, Class: dns.ClassINET, Ttl: hostsTTL}
	r.Answer = []dns.RR{&dns.PTR{Hdr: h, Ptr: dns.Fqdn(names[0])}}
	return r
}

// reversed returns the address of a name below in-addr.arpa or ip6.arpa.
func reversed(name string) (netip.Addr, bool) {
	text, is := strings.CutSuffix(name, ".in-addr.arpa")
	if is {
		labels := strings.Split(text, ".")
		slices.Reverse(labels)
		addr, err := netip.ParseAddr(strings.Join(labels, "."))
		return addr, err == nil && addr.Is4()
	}
	text, is = strings.CutSuffix(name, ".ip6.arpa")
	if !is {
		return netip.Addr{}, false
	}
	labels := strings.Split(text, ".")
	if len(labels) != 32 {
		return netip.Addr{}, false
	}
	slices.Reverse(labels)
	var b strings.Builder
	for i, l := range labels {
		if i > 0 && i%4 == 0 {
			b.WriteByte(':')
		}
		b.WriteString(l)
	}
	addr, err := netip.ParseAddr(b.String())
	return addr, err == nil
}
