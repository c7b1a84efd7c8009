package policy

import (
	"net/netip"
	"testing"

	"ramet.dev/ramet/api"
)

// FuzzCompile compiles documents, and holds every policy against a few questions whose answers do
// not depend on the document.
func FuzzCompile(f *testing.F) {
	f.Add([]byte(`{"default":"allow","allow":["a.example.org","*.example.org:22","10.0.0.0/8:1-5",{"address":"b.example.org","private":true},"udp:198.51.100.1:53"],"deny":["203.0.113.0/24"]}`))
	f.Add([]byte(`{"allow":[{"sandbox":"db","ports":[80,"90-95"]},{"sandbox":{"a":"b"}},"profile=p"],"accept":["sandbox=*"]}`))
	f.Add([]byte(`{"rules":{"*.example.org":{"methods":["GET"],"paths":["/v1/*"],"hold":"writes"},"a.example.org":{"secret":{"header":"X","value":"${K}"}}},"limits":{"connections":5}}`))
	profiles := map[string]api.NetworkPolicy{"p": {Allow: []api.NetworkRule{{Address: "p.example.org"}}}}
	f.Fuzz(func(t *testing.T, data []byte) {
		doc, err := api.DecodeNetworkPolicy(data)
		if err != nil {
			return
		}
		p, err := Compile(Spec{Document: *doc, Profiles: profiles}, ownTest)
		if err != nil {
			if api.CodeOf(err) != api.CodeInvalid {
				t.Fatalf("%v has the code %s", err, api.CodeOf(err))
			}
			return
		}
		for _, q := range []Question{
			{Protocol: UDP, Address: netip.MustParseAddr("198.51.100.1"), Port: 443},
			{Address: netip.MustParseAddr("127.0.0.1"), Port: 443, Names: []string{"a.example.org"}, Seen: true, Host: "a.example.org"},
		} {
			d := p.Judge(&q)
			if q.Protocol == UDP && d.Allowed {
				t.Fatalf("UDP to port 443 is allowed by %s", d)
			}
			if d.Allowed && !named(doc, q.Address) {
				t.Fatalf("%s is allowed by %s, and no rule names it", q.Address, d)
			}
		}
		if p.JudgeName("localhost").Allowed {
			t.Fatal("localhost may be looked up")
		}
		if err := Within(p, p); err != nil {
			t.Fatalf("the document is not within itself: %v", err)
		}
	})
}

// named reports whether a rule is about the loopback only.
func named(doc *api.NetworkPolicy, addr netip.Addr) bool {
	for _, r := range doc.Allow {
		if prefix, ok := r.Prefix(); ok && prefix.Bits() >= 8 && prefix.Contains(addr) {
			return true
		}
	}
	return false
}

// FuzzJudge asks about any address and name. What is judged must not depend on how an IPv4 address
// is written.
func FuzzJudge(f *testing.F) {
	f.Add([]byte{127, 0, 0, 1}, "a.example.org", uint16(80))
	f.Add([]byte{0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0, 10, 0, 0, 1}, "X.Example.Org.", uint16(443))
	p := compileLines(f, "default allow", "allow *.example.org", "deny *.bad.example.org", "allow udp:198.51.100.0/24")
	f.Fuzz(func(t *testing.T, address []byte, name string, port uint16) {
		canonical, ok := CanonicalName(name)
		if again, _ := CanonicalName(canonical); ok && again != canonical {
			t.Fatalf("%q is canonically %q, and that %q", name, canonical, again)
		}
		p.JudgeName(canonical)
		addr, isAddr := netip.AddrFromSlice(address)
		if !ok || !isAddr {
			return
		}
		for _, proto := range []Protocol{TCP, UDP, Echo} {
			q := Question{Protocol: proto, Address: addr, Port: port, Names: []string{canonical}}
			got := p.Judge(&q)
			q.Address = canonicalAddress(addr)
			if plain := p.Judge(&q); plain.Allowed != got.Allowed {
				t.Fatalf("%s: %s, but %s: %s", addr, shown(got), q.Address, shown(plain))
			}
			if got.Allowed && classesOf(q.Address) != 0 {
				t.Fatalf("%s is allowed by %s", addr, got)
			}
		}
	})
}
