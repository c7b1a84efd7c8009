package policy

import (
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"
	"ramet.dev/ramet/api"
)

func TestWithin(t *testing.T) {
	for _, c := range []struct {
		parent, child string
		want          string // part of the error, "" if the child is within
	}{
		{"", "", ""},
		{"allow a.example.org", "", ""},
		{"allow a.example.org", "allow a.example.org", ""},
		{"allow *.example.org", "allow a.example.org", ""},
		{"allow *.example.org", "allow *.a.example.org", ""},
		{"allow *.example.org", "allow example.org", "no single rule of the parent"},
		{"allow a.example.org", "allow a.example.org:443", ""},
		{"allow a.example.org", "allow a.example.org:22", "port 22"},
		{"allow a.example.org", "allow *.example.org", "no single rule"},
		{"allow a.example.org", "default allow", "no single rule"},
		{"default allow", "allow a.example.org:22", ""},
		{"default allow", "allow 198.51.100.0/24", ""},
		{"default allow", "allow 0.0.0.0/0", ""},
		{"default allow", "allow 10.0.0.0/8", "no single rule"},
		{"default allow", "allow 127.0.0.1", "no single rule"},
		{"default allow", "allow udp:198.51.100.1:53", "no single rule"},
		{"default allow", `allow {"address":"a.example.org","private":true}`, "no single rule"},
		{"default allow", `allow {"address":"0.0.0.0/0","private":true}`, "no single rule"},
		{"default allow", "allow 192.0.2.250", "no single rule"}, // of the host
		{"default allow", "default allow;deny a.example.org", ""},
		{"default allow;deny a.example.org", "default allow", "deny that too"},
		{"default allow;deny a.example.org", "default allow;deny *.example.org", ""},
		{"default allow;deny *.example.org", "default allow;deny a.example.org", "deny that too"},
		{"default allow;deny a.example.org", "allow 198.51.100.0/24", "no single rule"},
		{"allow 10.0.0.0/8", "allow 10.1.0.0/16:5432", ""},
		{"allow 10.0.0.0/8:5432", "allow 10.1.0.0/16", "port 1,"},
		{"allow 10.0.0.0/8;deny 10.1.0.0/16", "allow 10.0.0.0/8", "deny that too"},
		{"allow 10.0.0.0/8;deny 10.1.0.0/16", "allow 10.2.0.0/16", ""},
		{"allow 10.0.0.0/8;deny 10.1.0.0/16", "allow 10.1.2.0/24", "deny that too"},
		{"allow 10.0.0.0/8;allow 10.1.2.3;deny 10.1.0.0/16", "allow 10.1.2.3", ""},
		{"allow *.example.org;deny 198.51.100.0/24", "allow a.example.org", "deny that too"},
		{"allow *.example.org;deny 198.51.100.0/24", "allow a.example.org;deny 198.51.100.0/24", "deny that too"}, // the single name would win
		{"allow *.example.org;deny 198.51.100.0/24", "allow *.a.example.org;deny 198.51.100.0/24", ""},
		{"allow a.example.org;deny 198.51.100.0/24", "allow a.example.org", ""},
		{"allow sandbox=*", "allow sandbox=db", ""},
		{"allow sandbox=db", "allow sandbox=*", "no single rule"},
		{"allow sandbox=db:80", "allow sandbox=db", "port 1"},
		{`allow {"sandbox":{"role":"store"}}`, `allow {"sandbox":{"role":"store","team":"a"}}`, ""},
		{`allow {"sandbox":{"role":"store","team":"a"}}`, `allow {"sandbox":{"role":"store"}}`, "no single rule"},
		{"allow sandbox=*;deny sandbox=db", "allow sandbox=*", "deny that too"},
		{"allow sandbox=*;deny sandbox=db", "allow sandbox=web", ""},
		{"allow sandbox=*;deny sandbox=db", "allow sandbox=*;deny sandbox=db", ""},
		{"accept sandbox=db", "accept sandbox=web", "network.accept"},
		{"accept sandbox=db", "allow sandbox=db", "network.allow"},
	} {
		parent, child := compileLines(t, splitLines(c.parent)...), compileLines(t, splitLines(c.child)...)
		err := Within(child, parent)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%q within %q: %v", c.child, c.parent, err)
		case c.want != "" && (api.CodeOf(err) != api.CodeForbidden || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%q within %q: %v, not %q", c.child, c.parent, err, c.want)
		}
	}
}

func TestTreatmentsWithin(t *testing.T) {
	type treatments = map[string]api.NetworkTreatment
	secret := &api.NetworkSecret{Header: "Authorization", Value: "Bearer ${KEY}"}
	other := &api.NetworkSecret{Header: "Authorization", Value: "Bearer ${OTHER}"}
	get := []string{"GET"}
	for i, c := range []struct {
		parent, child treatments
		lines         string // of both
		want          bool
	}{
		{treatments{"a.example.org": {Methods: get}}, nil, "", true},
		{treatments{"a.example.org": {Methods: get}}, nil, "allow a.example.org", false},
		{treatments{"a.example.org": {Methods: get}}, nil, "allow b.example.org", true},
		{treatments{"a.example.org": {Methods: get}}, nil, "allow 198.51.100.1", false},
		{treatments{"a.example.org": {Methods: get}}, treatments{"a.example.org": {Methods: get, Paths: []string{"/v1/*"}}}, "", true},
		{treatments{"a.example.org": {Paths: []string{"/v1/*"}}}, treatments{"a.example.org": {Paths: []string{"/v1/x", "/v1/y/*"}}}, "", true},
		{treatments{"a.example.org": {Paths: []string{"/v1/*"}}}, treatments{"a.example.org": {Paths: []string{"/v*"}}}, "", false},
		{treatments{"a.example.org": {Paths: []string{"/v1"}}}, treatments{"a.example.org": {Paths: []string{"/v1*"}}}, "", false},
		{treatments{"a.example.org": {Methods: get}}, treatments{"a.example.org": {Methods: []string{"GET", "POST"}}}, "", false},
		{treatments{"a.example.org": {Methods: get}}, treatments{"a.example.org": {Paths: []string{"/"}}}, "", false},
		{treatments{"a.example.org": {Hold: api.HoldWrites}}, treatments{"a.example.org": {Record: true}}, "", false},
		{treatments{"*.example.org": {Methods: get}}, treatments{"a.example.org": {Methods: get}}, "allow a.example.org", true},
		{treatments{"*.example.org": {Methods: get}}, treatments{"a.example.org": {Methods: get}}, "allow *.example.org", false},
		{treatments{"a.example.org": {Secret: secret}}, nil, "allow a.example.org", true},
		{treatments{"a.example.org": {Secret: secret}}, treatments{"a.example.org": {Secret: secret}}, "", true},
		{treatments{"a.example.org": {Secret: secret}}, treatments{"a.example.org": {Secret: other}}, "", false},
		{treatments{"a.example.org": {Record: true}}, treatments{"a.example.org": {Secret: secret}}, "", false},
		{nil, treatments{"a.example.org": {Secret: secret}}, "allow a.example.org", false},
		{nil, treatments{"a.example.org": {Headers: []api.NetworkSecret{*secret}}}, "allow a.example.org", false},
		{treatments{"a.example.org": {Secret: secret}}, treatments{"a.example.org": {Headers: []api.NetworkSecret{*secret}}}, "", true},
		{treatments{"a.example.org": {Secret: secret}}, treatments{"a.example.org": {Secret: secret, Headers: []api.NetworkSecret{{Header: "X-Team", Value: "blue"}}}}, "", false},
		{nil, treatments{"a.example.org": {Methods: get}}, "allow a.example.org", true},
		{nil, treatments{"a.example.org": {Methods: get}}, "", false}, // it allows the name
		// The more specific treatment counts in both.
		{treatments{"*": {Hold: api.HoldWrites}, "a.example.org": {Secret: secret, Methods: get}}, treatments{"*": {Hold: api.HoldWrites}, "a.example.org": {Secret: secret, Methods: get}}, "allow *", true},
	} {
		parent, child := parseDocument(t, splitLines(c.lines)...), parseDocument(t, splitLines(c.lines)...)
		parent.Rules, child.Rules = c.parent, c.child
		err := Within(compile(t, Spec{Document: child}), compile(t, Spec{Document: parent}))
		if (err == nil) != c.want || err != nil && api.CodeOf(err) != api.CodeForbidden {
			t.Errorf("%d: %v", i, err)
		}
	}
}

func TestLimitsWithin(t *testing.T) {
	limits := func(l api.NetworkLimits) *Policy { return compile(t, Spec{Document: api.NetworkPolicy{Limits: l}}) }
	parent := limits(api.NetworkLimits{Connections: 10, RateMbit: 10, DNSPerS: 10})
	for l, want := range map[api.NetworkLimits]string{
		{Connections: 10, RateMbit: 1, DNSPerS: 3}: "",
		{RateMbit: 1, DNSPerS: 3}:                  "network.limits.connections",
		{Connections: 10, DNSPerS: 3}:              "network.limits.rate_mbit",
		{Connections: 10, RateMbit: 1}:             "network.limits.dns_per_s",
	} {
		err := Within(limits(l), parent)
		if (err == nil) != (want == "") || err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%+v: %v", l, err)
		}
	}
}

// The generators draw from few names, addresses and ports, so that rules and questions meet.
var (
	someNames     = []string{"a.example.org", "b.example.org", "x.a.example.org", "example.org", "a.example.net"}
	someWildcards = []string{"*.example.org", "*.a.example.org", "*"}
	someAddresses = []string{"198.51.100.1", "198.51.100.2", "203.0.113.1", "10.0.0.1", "127.0.0.1", "192.0.2.250", "169.254.169.254", "2001:db8::1", "fd00::1"}
	someRanges    = []string{"198.51.100.0/24", "198.51.0.0/16", "198.0.0.0/8", "0.0.0.0/0", "10.0.0.0/8", "10.0.0.0/16", "127.0.0.0/8", "192.0.2.0/24", "2001:db8::/32", "::/0", "169.254.0.0/16"}
	somePorts     = []api.PortRange{{First: 443, Last: 443}, {First: 80, Last: 80}, {First: 22, Last: 22}, {First: 400, Last: 500}, {First: 1, Last: 100}, api.AllPorts}
	somePort      = []uint16{22, 80, 443, 444, 500, 8443}
)

func drawRule(t *rapid.T) api.NetworkRule {
	r := api.NetworkRule{}
	switch rapid.IntRange(0, 4).Draw(t, "kind") {
	case 0, 1:
		r.Address = rapid.SampledFrom(someNames).Draw(t, "name")
	case 2:
		r.Address = rapid.SampledFrom(someWildcards).Draw(t, "wildcard")
	case 3:
		r.Address = rapid.SampledFrom(someAddresses).Draw(t, "address")
	case 4:
		r.Address = rapid.SampledFrom(someRanges).Draw(t, "range")
	}
	if _, isAddress := r.Prefix(); isAddress {
		r.Protocol = rapid.SampledFrom([]api.NetworkProtocol{"", "", api.NetworkTCP, api.NetworkUDP}).Draw(t, "protocol")
	}
	r.Ports = rapid.SliceOfN(rapid.SampledFrom(somePorts), 0, 2).Draw(t, "ports")
	r.Private = rapid.IntRange(0, 4).Draw(t, "private") == 0
	return r
}

func drawDocument(t *rapid.T) api.NetworkPolicy {
	d := api.NetworkPolicy{Default: rapid.SampledFrom([]api.NetworkDefault{"", api.NetworkDeny, api.NetworkAllow}).Draw(t, "default")}
	d.Allow = rapid.SliceOfN(rapid.Custom(drawRule), 0, 4).Draw(t, "allow")
	d.Deny = rapid.SliceOfN(rapid.Custom(drawRule), 0, 3).Draw(t, "deny")
	for range rapid.IntRange(0, 2).Draw(t, "treatments") {
		if d.Rules == nil {
			d.Rules = map[string]api.NetworkTreatment{}
		}
		d.Rules[rapid.SampledFrom(append(someNames, someWildcards...)).Draw(t, "treated")] = api.NetworkTreatment{
			Methods: rapid.SampledFrom([][]string{nil, {"GET"}, {"GET", "POST"}}).Draw(t, "methods"), Record: true,
		}
	}
	return d
}

// drawChild returns a document that is often within the parent's: some of its rules, and others.
func drawChild(t *rapid.T, parent api.NetworkPolicy) api.NetworkPolicy {
	d := drawDocument(t)
	if !rapid.Bool().Draw(t, "derived") {
		return d
	}
	if rapid.Bool().Draw(t, "like") {
		d.Default = parent.Default
	}
	if len(parent.Allow) > 0 {
		d.Allow = append(d.Allow[:len(d.Allow)/2], rapid.SliceOfN(rapid.SampledFrom(parent.Allow), 0, 4).Draw(t, "kept")...)
	}
	d.Deny, d.Rules = append(d.Deny, parent.Deny...), parent.Rules
	return d
}

func drawQuestion(t *rapid.T) *Question {
	q := &Question{
		Protocol: rapid.SampledFrom([]Protocol{TCP, TCP, TCP, UDP, Echo}).Draw(t, "protocol"),
		Address:  netip.MustParseAddr(rapid.SampledFrom(someAddresses).Draw(t, "to")),
		Port:     rapid.SampledFrom(somePort).Draw(t, "port"),
		Names:    rapid.SliceOfNDistinct(rapid.SampledFrom(someNames), 0, 2, rapid.ID).Draw(t, "names"),
		Seen:     rapid.Bool().Draw(t, "seen"),
	}
	if q.Seen {
		q.Host = rapid.SampledFrom(append([]string{""}, someNames...)).Draw(t, "host")
	}
	return q
}

func compileDrawn(t *rapid.T, d api.NetworkPolicy) *Policy {
	p, err := Compile(Spec{Document: d}, ownTest)
	if err != nil {
		t.Skip(err)
	}
	return p
}

// known keeps the names of a question that a policy allows to be looked up.
func known(p *Policy, q *Question) *Question {
	out := *q
	out.Names = nil
	for _, n := range q.Names {
		if p.JudgeName(n).Allowed {
			out.Names = append(out.Names, n)
		}
	}
	return &out
}

func TestChildrenWithinAreNotWider(t *testing.T) {
	within := 0
	rapid.Check(t, func(t *rapid.T) {
		parentDoc := drawDocument(t)
		parent, child := compileDrawn(t, parentDoc), compileDrawn(t, drawChild(t, parentDoc))
		if Within(child, parent) != nil {
			return
		}
		within++
		for range 30 {
			q := known(child, drawQuestion(t))
			c, p := child.Judge(q), parent.Judge(q)
			if c.Allowed && !p.Allowed {
				t.Fatalf("%+v is allowed to the child by %s, and denied to its parent by %s", q, c, p)
			}
			if c.Allowed && c.Host < p.Host && p.Host == HostRequired {
				t.Fatalf("%+v: the child needs %d of the first bytes, and its parent %d", q, c.Host, p.Host)
			}
			if c.Allowed && p.Treatment != nil && p.Treatment.Restricts() && (c.Treatment == nil || !c.Treatment.within(p.Treatment)) {
				t.Fatalf("%+v: the child is treated by %+v, and its parent by %+v", q, c.Treatment, p.Treatment)
			}
			for _, n := range someNames {
				if child.JudgeName(n).Allowed && !parent.JudgeName(n).Allowed {
					t.Fatalf("the child may look up %s", n)
				}
			}
		}
	})
	if within == 0 {
		t.Error("no child that was drawn is within its parent")
	}
}

func TestEveryDocumentIsWithinItself(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := compileDrawn(t, drawDocument(t))
		if err := Within(p, p); err != nil {
			t.Fatal(err)
		}
	})
}

func TestBoundsAreNeverExceeded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		doc, bound := drawDocument(t), drawDocument(t)
		bound.Rules = nil
		own, max := compileDrawn(t, doc), compileDrawn(t, bound)
		both, err := Compile(Spec{Document: doc, Bounds: []Bound{{Of: "test", Document: bound}}}, ownTest)
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			q := drawQuestion(t)
			got, want := both.Judge(q), own.Judge(q).Allowed && max.Judge(q).Allowed
			if got.Allowed != want {
				t.Fatalf("%+v: %s", q, shown(got))
			}
			if want && got.Host < max.Judge(q).Host {
				t.Fatalf("%+v: the bound needs more of the first bytes than %d", q, got.Host)
			}
		}
	})
}

// TestFirstDecisionsAreNoPromise checks that what is denied before the first bytes are seen is
// denied afterwards, and that what needs no look at them is not decided by them.
func TestFirstDecisionsAreNoPromise(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := compileDrawn(t, drawDocument(t))
		q := known(p, drawQuestion(t))
		first := *q
		first.Seen, first.Host = false, ""
		before, after := p.Judge(&first), p.Judge(q)
		if !before.Allowed && after.Allowed {
			t.Fatalf("%+v is denied by %s, and then allowed by %s", q, before, after)
		}
		if before.Allowed && before.Host == HostIgnored && q.Protocol == TCP && (!after.Allowed || after.Treatment != nil) {
			t.Fatalf("%+v is allowed by %s whatever its first bytes are, and then decided by %s", q, before, shown(after))
		}
	})
}

// TestWhatWouldAllowDoes adds the rule that a policy names to its document.
func TestWhatWouldAllowDoes(t *testing.T) {
	named := 0
	rapid.Check(t, func(t *rapid.T) {
		doc := drawDocument(t)
		p := compileDrawn(t, doc)
		q := known(p, drawQuestion(t))
		text := p.WouldAllow(q)
		if d := p.Judge(q); d.Allowed && text != "" {
			t.Fatalf("%+v is allowed, and %s would allow it", q, text)
		}
		if text == "" {
			return
		}
		named++
		var r api.NetworkRule
		if err := r.UnmarshalJSON(asJSON(text)); err != nil {
			t.Fatal(err)
		}
		doc.Allow = append(doc.Allow, r)
		if d := compileDrawn(t, doc).Judge(q); !d.Allowed {
			t.Fatalf("%+v is denied by %s with the rule %s", q, d, text)
		}
	})
	if named == 0 {
		t.Error("no rule was named")
	}
}

func asJSON(rule string) []byte {
	if strings.HasPrefix(rule, "{") {
		return []byte(rule)
	}
	return []byte(`"` + rule + `"`)
}
