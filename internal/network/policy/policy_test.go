package policy

import (
	"net/netip"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
)

// hostAddress is the address of the host in tests.
var hostAddress = netip.MustParseAddr("192.0.2.250")

func ownTest(a netip.Addr) bool { return a == hostAddress }

// document reads one from lines "allow RULE", "deny RULE", "accept RULE" and "default allow", with
// rules in their short form or JSON.
func parseDocument(t testing.TB, lines ...string) api.NetworkPolicy {
	t.Helper()
	var d api.NetworkPolicy
	for _, line := range lines {
		verb, rest, _ := strings.Cut(line, " ")
		if verb == "default" {
			d.Default = api.NetworkDefault(rest)
			continue
		}
		var r api.NetworkRule
		text := rest
		if !strings.HasPrefix(rest, "{") {
			text = `"` + rest + `"`
		}
		if err := r.UnmarshalJSON([]byte(text)); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		switch verb {
		case "allow":
			d.Allow = append(d.Allow, r)
		case "deny":
			d.Deny = append(d.Deny, r)
		case "accept":
			d.Accept = append(d.Accept, r)
		default:
			t.Fatalf("%q is no line of a document", line)
		}
	}
	return d
}

func compile(t testing.TB, spec Spec) *Policy {
	t.Helper()
	p, err := Compile(spec, ownTest)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func compileLines(t testing.TB, lines ...string) *Policy {
	t.Helper()
	return compile(t, Spec{Document: parseDocument(t, lines...)})
}

// question reads "[udp|echo] ADDRESS[:PORT] [NAME…] [seen=HOST]".
func question(t testing.TB, s string) *Question {
	t.Helper()
	q := &Question{}
	for i, word := range strings.Fields(s) {
		host, seen := strings.CutPrefix(word, "seen=")
		switch {
		case word == "udp" && i == 0:
			q.Protocol = UDP
		case word == "echo" && i == 0:
			q.Protocol = Echo
		case seen:
			q.Seen, q.Host = true, host
		case !q.Address.IsValid():
			if at, err := netip.ParseAddrPort(word); err == nil {
				q.Address, q.Port = at.Addr(), at.Port()
			} else if q.Address, err = netip.ParseAddr(word); err != nil {
				t.Fatalf("%q has no address", s)
			}
		default:
			q.Names = append(q.Names, word)
		}
	}
	return q
}

func TestPrecedence(t *testing.T) {
	for _, c := range []struct {
		lines string // of the document, separated by ;
		ask   string
		want  string // the rule, with ! before one that denies
	}{
		{"", "198.51.100.1:443", "!default: deny"},
		{"default allow", "198.51.100.1:443", "default: allow"},
		{"allow 198.51.100.1", "198.51.100.1:9", "198.51.100.1"},
		{"allow 198.51.100.1:443", "198.51.100.1:80", "!default: deny"},
		{"allow 198.51.100.0/24:80,8000-8099", "198.51.100.1:8050", "198.51.100.0/24:80,8000-8099"},
		{"allow 198.51.100.0/24:80,8000-8099", "198.51.100.1:8100", "!default: deny"},
		{"allow 2001:db8::/32", "[2001:db8::7]:22", "2001:db8::/32"},
		{"allow 0.0.0.0/0", "[2001:db8::7]:22", "!default: deny"},
		// One name, ports 443 and 80 unless told.
		{"allow a.example.org", "198.51.100.1:443 a.example.org", "a.example.org"},
		{"allow a.example.org", "198.51.100.1:80 a.example.org", "a.example.org"},
		{"allow a.example.org", "198.51.100.1:22 a.example.org", "!default: deny"},
		{"allow a.example.org", "198.51.100.1:443", "!default: deny"},
		{"allow a.example.org", "198.51.100.1:443 b.example.org", "!default: deny"},
		{"allow a.example.org:22", "198.51.100.1:22 a.example.org", "a.example.org:22"},
		{"allow a.example.org:22", "198.51.100.1:443 a.example.org", "!default: deny"},
		{"allow A.Example.ORG.", "198.51.100.1:443 a.example.org", "A.Example.ORG."},
		{"allow bücher.example", "198.51.100.1:443 xn--bcher-kva.example", "bücher.example"},
		// Wildcards are for names below, at any depth.
		{"allow *.example.org", "198.51.100.1:443 a.example.org", "*.example.org"},
		{"allow *.example.org", "198.51.100.1:443 a.b.example.org", "*.example.org"},
		{"allow *.example.org", "198.51.100.1:443 example.org", "!default: deny"},
		{"allow *.example.org", "198.51.100.1:443 aexample.org", "!default: deny"},
		{"allow *", "198.51.100.1:443 org", "*"},
		{"allow *", "198.51.100.1:443", "!default: deny"},
		// Denial wins over a wildcard or a range, one allowed name or address over those.
		{"allow *.example.org;deny a.example.org", "198.51.100.1:443 a.example.org", "!deny a.example.org"},
		{"allow a.example.org;deny *.example.org", "198.51.100.1:443 a.example.org", "a.example.org"},
		{"allow a.example.org;deny a.example.org", "198.51.100.1:443 a.example.org", "!deny a.example.org"},
		{"allow *.a.example.org;deny *.example.org", "198.51.100.1:443 x.a.example.org", "*.a.example.org"},
		{"allow *.example.org;deny *.a.example.org", "198.51.100.1:443 x.a.example.org", "!deny *.a.example.org"},
		{"allow *.example.org;deny *.example.org", "198.51.100.1:443 x.example.org", "!deny *.example.org"},
		{"allow 198.51.100.0/24;deny 198.51.100.0/25", "198.51.100.1:443", "!deny 198.51.100.0/25"},
		{"allow 198.51.100.0/25;deny 198.51.100.0/24", "198.51.100.1:443", "198.51.100.0/25"},
		{"allow 198.51.100.1;deny 198.51.100.0/24", "198.51.100.1:443", "198.51.100.1"},
		{"allow 198.51.100.0/24;deny 198.51.100.1", "198.51.100.1:443", "!deny 198.51.100.1"},
		// Names and addresses together.
		{"allow *.example.org;deny 198.51.100.0/24", "198.51.100.1:443 a.example.org", "!deny 198.51.100.0/24"},
		{"allow a.example.org;deny 198.51.100.0/24", "198.51.100.1:443 a.example.org", "a.example.org"},
		{"allow a.example.org;deny 198.51.100.1", "198.51.100.1:443 a.example.org", "!deny 198.51.100.1"},
		{"allow 198.51.100.0/24;deny a.example.org", "198.51.100.1:443 a.example.org seen=a.example.org", "!deny a.example.org"},
		{"allow 198.51.100.1;deny *.example.org", "198.51.100.1:443 a.example.org seen=a.example.org", "198.51.100.1"},
		{"allow 198.51.100.1;deny a.example.org", "198.51.100.1:443 seen=a.example.org", "!deny a.example.org"},
		// A denial without ports or a protocol is of all.
		{"default allow;deny 198.51.100.1", "198.51.100.1:12345", "!deny 198.51.100.1"},
		{"allow udp:198.51.100.0/24;deny 198.51.100.1", "udp 198.51.100.1:53", "!deny 198.51.100.1"},
		{"allow udp:198.51.100.0/24;deny tcp:198.51.100.1", "udp 198.51.100.1:53", "udp:198.51.100.0/24"},
		{"allow 198.51.100.0/24;deny 198.51.100.0/24:22", "198.51.100.1:23", "198.51.100.0/24"},
		// UDP needs an address rule for UDP.
		{"default allow", "udp 198.51.100.1:5000", "!UDP: no address rule names it"},
		{"allow a.example.org:5000;allow 198.51.100.1", "udp 198.51.100.1:5000 a.example.org", "!default: deny"},
		{"allow udp:198.51.100.1:5000-5010", "udp 198.51.100.1:5010", "udp:198.51.100.1:5000-5010"},
		{"allow udp:198.51.100.1", "udp 198.51.100.1:443", "!UDP to port 443 is never passed on"},
		{"allow udp:198.51.100.1", "198.51.100.1:80", "!default: deny"},
		// Echo requests follow the rules about any port.
		{"allow 198.51.100.0/24:5432", "echo 198.51.100.1", "198.51.100.0/24:5432"},
		{"allow udp:198.51.100.0/24:443-500", "echo 198.51.100.1", "udp:198.51.100.0/24:443-500"},
		{"allow a.example.org", "echo 198.51.100.1 a.example.org", "a.example.org"},
		{"allow a.example.org", "echo 198.51.100.1", "!default: deny"},
		{"default allow;deny 198.51.100.1:1-1000", "echo 198.51.100.1", "default: allow"},
		{"default allow;deny 198.51.100.1:1-1000;deny 198.51.100.1:1001-65535", "echo 198.51.100.1", "!deny 198.51.100.1:1-1000"},
	} {
		p := compileLines(t, splitLines(c.lines)...)
		d := p.Judge(question(t, c.ask))
		if got := shown(d); got != c.want {
			t.Errorf("%s: %s is decided by %q, not %q", c.lines, c.ask, got, c.want)
		}
	}
}

func splitLines(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, ";")
}

func shown(d Decision) string {
	if !d.Allowed {
		return "!" + d.String()
	}
	return d.String()
}

func TestAddressesThatNeedARule(t *testing.T) {
	for _, c := range []struct{ address, class string }{
		{"127.0.0.1", "loopback"}, {"127.8.9.1", "loopback"}, {"::1", "loopback"},
		{"192.0.2.250", "address of the host"},
		{"169.254.1.1", "link-local"}, {"fe80::1", "link-local"}, {"fe80::1%eth0", "link-local"},
		{"169.254.169.254", "cloud metadata"}, {"169.254.170.2", "cloud metadata"}, {"fd00:ec2::254", "cloud metadata"},
		{"100.100.100.200", "cloud metadata"}, {"168.63.129.16", "cloud metadata"},
		{"224.0.0.1", "multicast"}, {"239.1.2.3", "multicast"}, {"ff02::1", "multicast"},
		{"255.255.255.255", "reserved"},
		{"0.0.0.0", "unspecified"}, {"0.1.2.3", "unspecified"}, {"::", "unspecified"},
		{"240.0.0.1", "reserved"},
		{"64:ff9b:1::7f00:1", "locally translated"},
		{"10.1.2.3", "private"}, {"172.16.0.1", "private"}, {"192.168.1.1", "private"}, {"100.64.0.1", "private"}, {"fd12::1", "private"},
		// IPv4 addresses in other forms.
		{"::ffff:127.0.0.1", "loopback"}, {"::ffff:10.0.0.1", "private"}, {"64:ff9b::7f00:1", "loopback"}, {"64:ff9b::a9fe:a9fe", "cloud metadata"},
		{"2002:7f00:1::", "loopback"}, {"2002:a9fe:a9fe::1", "cloud metadata"}, {"2001:0:1:2:3:4:80ff:fffe", "loopback"}, {"::127.0.0.1", "loopback"},
		{"::ffff:0:10.0.0.1", "private"},
	} {
		addr := netip.MustParseAddr(c.address)
		for _, lines := range []string{
			"default allow", "allow *", "allow {\"address\":\"*\",\"ports\":[\"*\"]}", "allow a.example.org", "allow 0.0.0.0/0;allow ::/0",
			"allow 0.0.0.0/1;allow 128.0.0.0/1;allow 8000::/1;allow ::/1",
		} {
			p := compileLines(t, splitLines(lines)...)
			for _, port := range []uint16{80, 443, 53, 853} {
				q := &Question{Address: addr, Port: port, Names: []string{"a.example.org"}}
				for _, q.Host = range []string{"", "a.example.org", "b.example.org"} {
					q.Seen = q.Host != ""
					if d := p.Judge(q); d.Allowed {
						t.Errorf("%s: %s:%d is allowed by %s", lines, c.address, port, d)
					}
				}
			}
			if d := p.JudgeAnswer("a.example.org", addr); d.Allowed {
				t.Errorf("%s: %s is given out for a name by %s", lines, c.address, d)
			}
			if d := p.Judge(&Question{Protocol: UDP, Address: addr, Port: 53}); d.Allowed {
				t.Errorf("%s: UDP to %s is allowed by %s", lines, c.address, d)
			}
		}
		d := compileLines(t, "default allow").Judge(&Question{Address: addr, Port: 80})
		if !strings.HasPrefix(d.Rule, c.class) {
			t.Errorf("%s is told as %q, not %s", c.address, d.Rule, c.class)
		}
		// The address itself can be named.
		named := canonicalAddress(addr).String()
		p := compileLines(t, "allow "+named)
		if d := p.Judge(&Question{Address: addr, Port: 80}); !d.Allowed {
			t.Errorf("%s is denied (%s) although %s is named", c.address, d, named)
		}
		// Private ranges are reached by names only if a rule says so, and nothing else is.
		p = compileLines(t, `allow {"address":"a.example.org","private":true}`)
		want := c.class == "private"
		if d := p.Judge(&Question{Address: addr, Port: 443, Names: []string{"a.example.org"}}); d.Allowed != want {
			t.Errorf("%s with private: %v", c.address, d)
		} else if d.Allowed && d.Rule != "a.example.org (private)" {
			t.Errorf("%s is allowed by %q", c.address, d.Rule)
		}
	}
}

// TestTunnelsAreNotTheirIPv4Addresses: a rule for an IPv4 address names no 6to4 or Teredo address that has it.
func TestTunnelsAreNotTheirIPv4Addresses(t *testing.T) {
	for _, c := range []struct {
		rule, address string
		want          bool
	}{
		{"198.51.100.7", "2002:c633:6407::1", false}, {"198.51.100.7", "2001:0:1:2:3:4:39cc:9bf8", false}, {"198.51.100.7", "64:ff9b::c633:6407", true},
		{"10.0.0.0/8", "2002:a00:5::1", false}, {"*", "2002:c633:6407::1", false},
		{"2002:c633:6407::/48", "2002:c633:6407::1", true}, {"2002::/16", "2002:c633:6407::1", true}, {"2001::/32", "2001:0:1:2:3:4:39cc:9bf8", true},
		{"2002::/16", "2002:a00:5::1", false}, {"2002:a00::/24", "2002:a00:5::1", true}, {"2001::/32", "2001:0:1:2:3:4:80ff:fffe", false},
		{"2001:0:1:2:3:4:80ff:fffe", "2001:0:1:2:3:4:80ff:fffe", true},
	} {
		p := compileLines(t, "allow "+c.rule)
		if d := p.Judge(&Question{Address: netip.MustParseAddr(c.address), Port: 80}); d.Allowed != c.want {
			t.Errorf("allow %s: %s is %s", c.rule, c.address, shown(d))
		}
	}
}

func TestRangesThatNameAddresses(t *testing.T) {
	for _, c := range []struct {
		rule, address string
		want          bool
	}{
		{"127.0.0.0/8", "127.0.0.1", true},
		{"127.0.0.0/8:8080", "127.0.0.1", false},
		{"126.0.0.0/7", "127.0.0.1", false},
		{"10.0.0.0/8", "10.1.2.3", true},
		{"10.0.0.0/7", "10.1.2.3", false},
		{"10.0.0.0/7", "11.1.2.3", true},
		{"169.254.0.0/16", "169.254.1.1", true},
		{"169.254.0.0/16", "169.254.169.254", false},
		{"100.64.0.0/10", "100.64.0.1", true},
		{"100.64.0.0/10", "100.100.100.200", false},
		{"192.0.2.0/24", "192.0.2.250", false}, // of the host
		{"192.0.2.0/24", "192.0.2.1", true},
		{"fc00::/7", "fd00:ec2::254", false},
		{"fc00::/7", "fd00:ec2::253", true},
		{"224.0.0.0/4", "224.0.0.251", true},
		{"0.0.0.0/0", "198.51.100.1", true},
	} {
		p := compileLines(t, "allow "+c.rule)
		if d := p.Judge(question(t, c.address)); d.Allowed != c.want {
			t.Errorf("%s: %s is decided by %s", c.rule, c.address, shown(d))
		}
	}
	p := compileLines(t, `allow {"address":"0.0.0.0/0","private":true}`)
	if !p.Judge(question(t, "10.1.2.3:5")).Allowed || p.Judge(question(t, "127.0.0.1:5")).Allowed {
		t.Error("private: true of a range is about private ranges and nothing else")
	}
}

// TestFirstBytes has the two decisions about a connection: before and after its first bytes.
func TestFirstBytes(t *testing.T) {
	for _, c := range []struct {
		lines, ask string
		want       Host
	}{
		{"allow a.example.org", "198.51.100.1:443 a.example.org", HostRequired},
		{"allow a.example.org", "198.51.100.1:80 a.example.org", HostRequired},
		{"allow a.example.org:8443", "198.51.100.1:8443 a.example.org", HostIfShown},
		{"allow 198.51.100.1", "198.51.100.1:443 a.example.org", HostIgnored},
		{"allow 198.51.100.1;deny b.example.org", "198.51.100.1:443", HostIfShown},
		{"default allow", "198.51.100.1:443 a.example.org", HostIgnored},
		{"default allow;deny b.example.org", "198.51.100.1:443 a.example.org", HostRequired},
		{"default allow;deny b.example.org", "198.51.100.1:22 a.example.org", HostIfShown},
	} {
		d := compileLines(t, splitLines(c.lines)...).Judge(question(t, c.ask))
		if !d.Allowed || d.Host != c.want {
			t.Errorf("%s: %s needs %d of the first bytes, not %d (%s)", c.lines, c.ask, d.Host, c.want, shown(d))
		}
	}
	for _, c := range []struct {
		lines, ask string
		want       bool
	}{
		{"allow a.example.org", "198.51.100.1:443 a.example.org seen=a.example.org", true},
		{"allow a.example.org", "198.51.100.1:443 a.example.org seen=", false}, // no server name, or an encrypted one
		{"allow a.example.org;allow b.example.org", "198.51.100.1:443 a.example.org seen=b.example.org", false},
		{"allow a.example.org;allow b.example.org", "198.51.100.1:443 a.example.org b.example.org seen=b.example.org", true},
		{"allow a.example.org", "198.51.100.1:443 a.example.org b.example.org seen=b.example.org", false},
		{"allow a.example.org:8443", "198.51.100.1:8443 a.example.org seen=", true},
		{"allow a.example.org:8443", "198.51.100.1:8443 a.example.org seen=b.example.org", false},
		{"allow 198.51.100.1", "198.51.100.1:443 seen=", true},
		{"allow 198.51.100.1", "198.51.100.1:443 a.example.org seen=b.example.org", true},
		{"allow 198.51.100.1;deny b.example.org", "198.51.100.1:443 seen=b.example.org", false},
		{"default allow", "198.51.100.1:443 seen=b.example.org", true},
		// With a name denied, addresses that no name was looked up for are no way around.
		{"default allow;deny b.example.org", "198.51.100.1:443", false},
		{"default allow;deny b.example.org", "198.51.100.1:443 seen=a.example.org", false},
		{"default allow;deny b.example.org", "198.51.100.1:443 a.example.org seen=b.example.org", false},
		{"default allow;deny b.example.org", "198.51.100.1:443 a.example.org seen=", false},
		{"default allow;deny b.example.org", "198.51.100.1:443 a.example.org seen=a.example.org", true},
	} {
		d := compileLines(t, splitLines(c.lines)...).Judge(question(t, c.ask))
		if d.Allowed != c.want {
			t.Errorf("%s: %s is decided by %s", c.lines, c.ask, shown(d))
		}
	}
}

func TestTreatments(t *testing.T) {
	doc := parseDocument(t, "allow *.example.com:443,8443", "allow 203.0.113.0/24")
	doc.Rules = map[string]api.NetworkTreatment{
		"llm.example.com":   {Methods: []string{"POST"}},
		"*.example.com":     {Hold: api.HoldWrites},
		"*.sub.example.com": {Record: true},
	}
	p := compile(t, Spec{Document: doc})
	for host, want := range map[string]string{"llm.example.com": "llm.example.com", "a.example.com": "*.example.com", "a.sub.example.com": "*.sub.example.com"} {
		d := p.Judge(&Question{Address: netip.MustParseAddr("198.51.100.1"), Port: 443, Names: []string{host}, Seen: true, Host: host})
		if !d.Allowed || d.Treatment == nil || d.Treatment.Pattern != want {
			t.Errorf("%s is treated by %+v (%s)", host, d.Treatment, shown(d))
		}
	}
	for ask, want := range map[string]bool{
		"198.51.100.1:443 llm.example.com":                     true,
		"198.51.100.1:8443 a.example.com":                      true,
		"198.51.100.1:8443 a.example.com seen=":                false, // restricted requests have to be seen
		"198.51.100.1:8443 a.sub.example.com seen=":            true,
		"203.0.113.1:443 seen=":                                true, // the address rule is enough
		"203.0.113.1:443 llm.example.com seen=":                false,
		"203.0.113.1:443 llm.example.com seen=b.example.net":   false,
		"203.0.113.1:443 llm.example.com seen=llm.example.com": true,
	} {
		if d := p.Judge(question(t, ask)); d.Allowed != want {
			t.Errorf("%s is decided by %s", ask, shown(d))
		}
	}
	if d := p.Judge(question(t, "198.51.100.1:8443 a.example.com")); d.Host != HostRequired {
		t.Errorf("requests that are restricted need %d of the first bytes", d.Host)
	}
	if !p.TreatsRequests() || len(p.Treatments()) != 3 {
		t.Errorf("there are %d treatments", len(p.Treatments()))
	}
	// Requests to a name are not treated, and so get no secret, where the address was not given out
	// for it; if they are restricted they are denied.
	doc.Rules["key.example.com"] = api.NetworkTreatment{Secret: &api.NetworkSecret{Header: "X", Value: "${KEY}", Plain: true}}
	p = compile(t, Spec{Document: doc})
	if d := p.Judge(question(t, "203.0.113.1:80 seen=key.example.com")); !d.Allowed || d.Treatment != nil {
		t.Errorf("a name at an address of its own choice is treated by %+v (%s)", d.Treatment, shown(d))
	}
	if d := p.Judge(question(t, "203.0.113.1:80 key.example.com seen=key.example.com")); !d.Allowed || d.Treatment == nil {
		t.Errorf("a name at its address is treated by %+v (%s)", d.Treatment, shown(d))
	}
	if d := p.Judge(question(t, "203.0.113.1:80 seen=llm.example.com")); d.Allowed {
		t.Errorf("a restricted name at an address of its own choice is allowed by %s", d)
	}
	// A single name among the treatments is allowed by that, at port 443.
	alone := compile(t, Spec{Document: api.NetworkPolicy{Rules: map[string]api.NetworkTreatment{
		"llm.example.com": {Methods: []string{"POST"}}, "*.example.net": {Hold: api.HoldWrites},
	}}})
	for ask, want := range map[string]bool{
		"198.51.100.1:443 llm.example.com seen=llm.example.com": true,
		"198.51.100.1:80 llm.example.com seen=llm.example.com":  false,
		"198.51.100.1:443 a.example.net seen=a.example.net":     false,
	} {
		if d := alone.Judge(question(t, ask)); d.Allowed != want {
			t.Errorf("%s is decided by %s", ask, shown(d))
		}
	}
}

func TestNamesAreJudged(t *testing.T) {
	for _, c := range []struct {
		lines, name string
		want        bool
	}{
		{"", "a.example.org", false},
		{"default allow", "a.example.org", true},
		{"allow a.example.org:22", "a.example.org", true},
		{"allow a.example.org:22", "b.example.org", false},
		{"allow *.example.org", "a.example.org", true},
		{"allow *.example.org", "example.org", false},
		{"allow *.example.org;deny a.example.org", "a.example.org", false},
		{"allow *.example.org;deny a.example.org:80", "a.example.org", true},
		{"allow a.example.org:80;deny a.example.org:1-100", "a.example.org", false},
		{"default allow;deny a.example.org", "a.example.org", false},
		{"allow 0.0.0.0/0", "a.example.org", false},
		{"default allow;allow *", "metadata.google.internal", false},
		{"default allow;allow *", "localhost", false},
		{"default allow;allow *", "x.localhost", false},
	} {
		p := compileLines(t, splitLines(c.lines)...)
		if d := p.JudgeName(c.name); d.Allowed != c.want {
			t.Errorf("%s: %s is decided by %s", c.lines, c.name, shown(d))
		}
	}
}

func TestNamesThatOnlyTheDefaultAllows(t *testing.T) {
	p := compileLines(t, "default allow", "allow *:22", "allow a.example.org:443", "allow *.example.net", "deny bad.example.org")
	for name, want := range map[string]bool{"a.example.org": false, "b.example.org": true, "x.example.net": false} {
		if d := p.JudgeName(name); !d.Allowed || d.ByDefault != want {
			t.Errorf("%s is decided by %s, by default: %t", name, shown(d), d.ByDefault)
		}
	}
	if d := p.JudgeName("bad.example.org"); d.Allowed || d.ByDefault {
		t.Errorf("a denied name is decided by %s, by default: %t", shown(d), d.ByDefault)
	}
}

func TestAnswersAreJudged(t *testing.T) {
	p := compileLines(t, "allow a.example.org:22", `allow {"address":"b.example.org","private":true}`, "allow 10.9.0.0/16:5432")
	for _, c := range []struct {
		name, address string
		want          bool
	}{
		{"a.example.org", "198.51.100.1", true},
		{"a.example.org", "10.1.2.3", false},
		{"a.example.org", "10.9.2.3", true}, // reached by its address anyway
		{"b.example.org", "10.1.2.3", true},
		{"b.example.org", "127.0.0.1", false},
		{"b.example.org", "192.0.2.250", false},
		{"b.example.org", "169.254.169.254", false},
		{"c.example.org", "198.51.100.1", false},
	} {
		if d := p.JudgeAnswer(c.name, netip.MustParseAddr(c.address)); d.Allowed != c.want {
			t.Errorf("%s at %s is decided by %s", c.name, c.address, shown(d))
		}
	}
}

func TestSandboxes(t *testing.T) {
	db := &Peer{Name: "db", Labels: api.Labels{"role": "store", "team": "a"}}
	for _, c := range []struct {
		lines string
		port  uint16
		want  string
	}{
		{"", 5432, "!no rule names the sandbox"},
		{"default allow", 5432, "!no rule names the sandbox"},
		{"allow sandbox=db", 5432, "sandbox=db"},
		{"allow sandbox=web", 5432, "!no rule names the sandbox"},
		{"allow sandbox=db:5432", 5433, "!no rule names the sandbox"},
		{"allow sandbox=*", 5432, "sandbox=*"},
		{`allow {"sandbox":{"role":"store"}}`, 5432, `{"sandbox":{"role":"store"}}`},
		{`allow {"sandbox":{"role":"store","team":"b"}}`, 5432, "!no rule names the sandbox"},
		{"allow sandbox=*;deny sandbox=db", 5432, "!deny sandbox=db"},
		{"allow sandbox=db;deny sandbox=*", 5432, "sandbox=db"},
		{`allow sandbox=*;deny {"sandbox":{"role":"store"}}`, 5432, `!deny {"sandbox":{"role":"store"}}`},
		{"allow sandbox=db;deny sandbox=db", 5432, "!deny sandbox=db"},
		{"accept sandbox=db", 5432, "!no rule names the sandbox"},
	} {
		if got := shown(compileLines(t, splitLines(c.lines)...).JudgeTarget(db, c.port)); got != c.want {
			t.Errorf("%s: port %d is decided by %q, not %q", c.lines, c.port, got, c.want)
		}
	}
	p := compileLines(t, "allow sandbox=db", "accept sandbox=db:80")
	if !p.JudgeSource(db, 80).Allowed || p.JudgeSource(db, 81).Allowed || p.JudgeSource(&Peer{Name: "web"}, 80).Allowed {
		t.Error("accept is not what decides about sources")
	}
}

func TestKeeps(t *testing.T) {
	q := question(t, "198.51.100.1:443 a.example.org seen=a.example.org")
	old := compileLines(t, "allow a.example.org")
	d := old.Judge(q)
	if !old.Keeps(q, d.Treatment) {
		t.Error("a policy cuts what it allows itself")
	}
	if compileLines(t, "allow b.example.org").Keeps(q, d.Treatment) {
		t.Error("a connection stays that is not allowed any more")
	}
	doc := parseDocument(t, "allow a.example.org")
	doc.Rules = map[string]api.NetworkTreatment{"a.example.org": {Methods: []string{"GET"}}}
	treated := compile(t, Spec{Document: doc})
	if treated.Keeps(q, nil) {
		t.Error("a connection stays whose requests are restricted now")
	}
	if !compile(t, Spec{Document: doc}).Keeps(q, treated.Judge(q).Treatment) {
		t.Error("a connection is cut although nothing has changed")
	}
}

func TestFailures(t *testing.T) {
	p := compileLines(t)
	for ask, want := range map[string]Failure{"198.51.100.1:1": Refused, "udp 198.51.100.1:1": Unreachable, "echo 198.51.100.1": Unreachable} {
		if d := p.Judge(question(t, ask)); d.Allowed || d.Failure != want {
			t.Errorf("%s fails as %d", ask, d.Failure)
		}
	}
}

func TestCanonicalName(t *testing.T) {
	for in, want := range map[string]string{
		"A.Example.Org": "a.example.org", "a.example.org.": "a.example.org", "bücher.example": "xn--bcher-kva.example",
		"BÜCHER.example": "xn--bcher-kva.example", "_srv._tcp.example.org": "_srv._tcp.example.org", "x": "x",
		"例え.example": "xn--r8jz45g.example",
	} {
		if got, ok := CanonicalName(in); !ok || got != want {
			t.Errorf("%q is %q, %t", in, got, ok)
		}
	}
	for _, bad := range []string{"", ".", "a..b", ".a", "a b", "192.0.2.1", "1", "a.1", "::1", "a\x00b", "a/b", "*.a", strings.Repeat("a", 64), strings.Repeat("a.", 127) + "a"} {
		if got, ok := CanonicalName(bad); ok {
			t.Errorf("%q is the name %q", bad, got)
		}
	}
}
