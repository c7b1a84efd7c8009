package dns

import (
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

func FuzzAnswer(f *testing.F) {
	for _, name := range []string{"a.example.org.", "x.open.example.", "db.sandbox.", "1.2.0.192.in-addr.arpa."} {
		for _, qtype := range []uint16{dns.TypeA, dns.TypeTXT, dns.TypePTR, dns.TypeANY} {
			b, err := new(dns.Msg).SetQuestion(name, qtype).SetEdns0(1400, true).Pack()
			if err != nil {
				f.Fatal(err)
			}
			f.Add(b)
		}
	}
	// There is no server: nothing leaves.
	c := NewClient(NewUpstream("/nonexistent", "/nonexistent"), siblings{}, NewNames(), rules{}, 0)
	f.Fuzz(func(t *testing.T, b []byte) {
		reply, o, err := c.Answer(t.Context(), b, false)
		if err != nil {
			if reply != nil {
				t.Fatalf("an answer with an error: %v", err)
			}
			return
		}
		if len(reply) > payloadSize {
			t.Fatalf("an answer of %d bytes", len(reply))
		}
		r := &dns.Msg{}
		if err := r.Unpack(reply); err != nil {
			t.Fatalf("the answer cannot be read: %v (%+v)", err, o)
		}
	})
}

// FuzzChoose reads what a server could send.
func FuzzChoose(f *testing.F) {
	m := new(dns.Msg).SetQuestion("a.example.org.", dns.TypeA)
	p := dns.NewZoneParser(strings.NewReader(strings.ReplaceAll(records, "LONG", "x")), ".", "")
	r := new(dns.Msg).SetReply(m)
	for rr, ok := p.Next(); ok; rr, ok = p.Next() {
		r.Answer = append(r.Answer, rr)
	}
	b, err := r.Pack()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b, dns.TypeA)
	f.Add(b, dns.TypeHTTPS)
	f.Fuzz(func(t *testing.T, b []byte, qtype uint16) {
		reply := &dns.Msg{}
		if reply.Unpack(b) != nil {
			return
		}
		c := NewClient(nil, siblings{}, NewNames(), rules{}, 0)
		m := m.Copy()
		m.Question[0].Qtype = qtype
		var o Outcome
		r := c.choose(&question{msg: m, name: "a.example.org", policy: rules{}}, reply, &o)
		for _, addr := range o.Addresses {
			if !(rules{}).Address("", addr) {
				t.Fatalf("the guest was given %v", addr)
			}
		}
		for _, rr := range r.Answer {
			if a := addressOf(rr); a.IsValid() && !slices.Contains(o.Addresses, a) {
				t.Fatalf("%v was given out and is not remembered", a)
			}
		}
	})
}

func FuzzHosts(f *testing.F) {
	f.Add("127.0.0.1 localhost loop # x\n::1 localhost\n")
	f.Fuzz(func(t *testing.T, text string) {
		for name, addrs := range parseHosts(text) {
			if name != canonical(name) || len(addrs) == 0 {
				t.Fatalf("%q has %v", name, addrs)
			}
		}
	})
}
