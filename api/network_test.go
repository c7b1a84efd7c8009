package api

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

func TestNetworkRuleForms(t *testing.T) {
	for text, want := range map[string]NetworkRule{
		"a.example.org":              {Address: "a.example.org"},
		"*.example.org:22":           {Address: "*.example.org", Ports: []PortRange{{22, 22}}},
		"*":                          {Address: "*"},
		"192.0.2.1:80,8000-8099":     {Address: "192.0.2.1", Ports: []PortRange{{80, 80}, {8000, 8099}}},
		"10.1.0.0/16:*":              {Address: "10.1.0.0/16", Ports: []PortRange{AllPorts}},
		"udp:192.0.2.1:53":           {Address: "192.0.2.1", Protocol: NetworkUDP, Ports: []PortRange{{53, 53}}},
		"tcp:a.example.org":          {Address: "a.example.org", Protocol: NetworkTCP},
		"udp:53":                     {Address: "udp", Ports: []PortRange{{53, 53}}}, // a host of that name
		"2001:db8::1":                {Address: "2001:db8::1"},
		"2001:db8::/32":              {Address: "2001:db8::/32"},
		"[2001:db8::1]:443":          {Address: "2001:db8::1", Ports: []PortRange{{443, 443}}},
		"udp:[2001:db8::/32]:53,123": {Address: "2001:db8::/32", Protocol: NetworkUDP, Ports: []PortRange{{53, 53}, {123, 123}}},
		"sandbox=db":                 {Sandbox: &SandboxSelector{Name: "db"}},
		"sandbox=*:5432":             {Sandbox: &SandboxSelector{Name: "*"}, Ports: []PortRange{{5432, 5432}}},
		"profile=git-hosts":          {Profile: "git-hosts"},
	} {
		got, err := ParseNetworkRule("allow", text)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s is %+v, %v", text, got, err)
		}
		if got.String() != text {
			t.Errorf("%s is written as %s", text, got)
		}
	}
	if r, err := ParseNetworkRule("allow", "[2001:db8::1]"); err != nil || r.Address != "2001:db8::1" {
		t.Errorf("brackets without ports: %+v, %v", r, err)
	}
	for _, bad := range []string{
		"", ":80", "a.example.org:", "a.example.org:0", "a.example.org:65536", "a.example.org:90-80", "a.example.org:+80", "a.example.org:http",
		"a b", "a..b", "-a.example.org", "a-.example.org", "*a.example.org", "a.*.example.org", "*.", "**", "http://a.example.org", "a.example.org/x",
		"10.0.0.1/8", "10.0.0.0/33", "10.0.0.0/", "127.1", "0x7f.0x1", "2130706433", "010.0.0.1", "256.1.1.1", "fe80::1%eth0", "[192.0.2.1]:80", "[2001:db8::1", "[2001:db8::1]80", "2001:db8::1::",
		"udp:a.example.org:53", "udp:*.example.org", "sandbox=", "sandbox=UPPER", "sandbox=db:x", "profile=", "profile=../x", "profile=a/b", strings.Repeat("a", 64) + ".example.org", strings.Repeat("a.", 130) + "org",
		"a.example.org:" + strings.Repeat("1,", 100) + "1", "a\x00b.example.org", "a\u200b.example.org",
	} {
		if r, err := ParseNetworkRule("allow", bad); CodeOf(err) != CodeInvalid {
			t.Errorf("%q is %+v, %v", bad, r, err)
		} else if e := AsError(err); !strings.HasPrefix(e.Field, "allow") {
			t.Errorf("%q: the error is about %q", bad, e.Field)
		}
	}
}

func TestNetworkDocumentForms(t *testing.T) {
	const text = `{"default":"allow","allow":["a.example.org:22",{"address":"b.example.org","ports":[443,"8000-8099","*"],"private":true},` +
		`{"sandbox":"db","ports":[5432]},{"sandbox":{"role":"store"}},{"profile":"git-hosts"}],"deny":["udp:192.0.2.1:53"],"accept":[{"sandbox":"*"}],` +
		`"rules":{"llm.example.com":{"secret":{"header":"Authorization","value":"Bearer ${LLM_API_KEY}"},"methods":["POST"],"paths":["/v1/responses","/v1/files/*"],"hold":"writes","hold_timeout_ms":1000}},` +
		`"limits":{"connections":256,"rate_mbit":200,"dns_per_s":50}}`
	p, err := DecodeNetworkPolicy([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.ReplaceAll(string(out), `\u003e`, ">"); got != text {
		t.Errorf("the document\n%s\nis written as\n%s", text, got)
	}
	if names := p.Rules["llm.example.com"].Secret.Names(); !reflect.DeepEqual(names, []string{"LLM_API_KEY"}) {
		t.Errorf("it names the secrets %q", names)
	}
	again, err := DecodeNetworkPolicy(out)
	if err != nil || !reflect.DeepEqual(p, again) {
		t.Errorf("it is read again as %+v, %v", again, err)
	}
	empty := NetworkPolicy{}.Normal()
	if out, err := json.Marshal(empty); err != nil || string(out) != `{"default":"deny","allow":[],"deny":[],"limits":{}}` {
		t.Errorf("no document is %s, %v", out, err)
	}
}

func TestNetworkDocumentsAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		`{"default":"maybe"}`: "network.default",
		`{"allowed":[]}`:      "allowed",
		`{"allow":[443]}`:     "a rule is a string",
		`{"allow":[null]}`:    "exactly one of",
		`{"allow":[{"address":"a.example.org","port":1}]}`:                                                "port",
		`{"allow":[{"address":"a.example.org:22"}]}`:                                                      "network.allow[0].address",
		`{"allow":[{"address":"a.example.org","sandbox":"db"}]}`:                                          "exactly one of",
		`{"allow":["a.example.org",{}]}`:                                                                  "network.allow[1]",
		`{"allow":[{"address":"a.example.org","ports":[0]}]}`:                                             "0",
		`{"allow":[{"address":"a.example.org","ports":["80,90"]}]}`:                                       "80,90",
		`{"allow":[{"address":"a.example.org","protocol":"icmp"}]}`:                                       "protocol",
		`{"allow":[{"profile":"x","ports":[1]}]}`:                                                         "its own",
		`{"allow":[{"sandbox":"db","private":true}]}`:                                                     "between sandboxes",
		`{"allow":[{"sandbox":{}}]}`:                                                                      "network.allow[0].sandbox",
		`{"allow":[{"sandbox":5}]}`:                                                                       "sandbox is a name",
		`{"accept":["a.example.org"]}`:                                                                    "network.accept[0]",
		`{"rules":{"192.0.2.1":{"record":true}}}`:                                                         "network.rules.192.0.2.1",
		`{"rules":{"Host.ramet.internal":{"record":true}}}`:                                               "cannot be treated",
		`{"rules":{"a.example.org":{}}}`:                                                                  "none of secret",
		`{"rules":{"a.example.org":{"methods":["get"]}}}`:                                                 "methods",
		`{"rules":{"a.example.org":{"methods":["CONNECT"]}}}`:                                             "tunnel",
		`{"rules":{"a.example.org":{"paths":["v1"]}}}`:                                                    "paths",
		`{"rules":{"a.example.org":{"paths":["/a/../b"]}}}`:                                               "paths",
		`{"rules":{"a.example.org":{"paths":["/a//b"]}}}`:                                                 "paths",
		`{"rules":{"a.example.org":{"paths":["/a%2fb"]}}}`:                                                "paths",
		`{"rules":{"a.example.org":{"paths":["/a*b"]}}}`:                                                  "paths",
		`{"rules":{"a.example.org":{"paths":["/a?b"]}}}`:                                                  "paths",
		`{"rules":{"a.example.org":{"hold":"all"}}}`:                                                      "hold",
		`{"rules":{"a.example.org":{"record":true,"hold_timeout_ms":5}}}`:                                 "without hold",
		`{"rules":{"a.example.org":{"secret":{"header":"X","value":"y"}}}}`:                               "names no secret",
		`{"rules":{"a.example.org":{"headers":[{"header":"X","value":"y"},{"header":"x","value":"z"}]}}}`: "put in twice",
		`{"rules":{"a.example.org":{"headers":[{"header":"Host","value":"y"}]}}}`:                         "belongs to the connection",
		`{"rules":{"a.example.org":{"secret":{"header":"X","value":"${A} ${b c}"}}}}`:                     "${NAME}",
		`{"rules":{"a.example.org":{"secret":{"header":"Host","value":"${A}"}}}}`:                         "belongs to the connection",
		`{"rules":{"a.example.org":{"secret":{"header":"A B","value":"${A}"}}}}`:                          "name of a header",
		`{"rules":{"a.example.org":{"secret":{"header":"X","value":"${A}\r\nY: ok"}}}}`:                   "one line",
		`{"limits":{"connections":-1}}`:                                                                   "network.limits.connections",
		`{"limits":{"dns_per_s":10001}}`:                                                                  "network.limits.dns_per_s",
		`{} {}`:                                                                                           "behind the end",
		``:                                                                                                "EOF",
	} {
		_, err := DecodeNetworkPolicy([]byte(text))
		if CodeOf(err) != CodeInvalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	long := NetworkPolicy{Allow: make([]NetworkRule, MaxNetworkRules+1)}
	if err := long.Valid(); err == nil || !strings.HasPrefix(err.Error(), "network.allow: 1025 rules") {
		t.Errorf("too many rules: %v", err)
	}
}

// FuzzNetworkRule holds short forms against what is written of them.
func FuzzNetworkRule(f *testing.F) {
	for _, s := range []string{"a.example.org:22", "*.example.org", "[2001:db8::/32]:1-5,*", "udp:192.0.2.0/24:53", "sandbox=db:80", "profile=x", "bücher.example", "tcp:udp:80"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := ParseNetworkRule("x", s)
		if err != nil {
			if CodeOf(err) != CodeInvalid {
				t.Fatalf("%q: %v", s, err)
			}
			return
		}
		again, err := ParseNetworkRule("x", r.String())
		if err != nil || !reflect.DeepEqual(r, again) {
			t.Fatalf("%q is %+v, which is written as %s and read as %+v, %v", s, r, r, again, err)
		}
	})
}

// FuzzNetworkPolicy reads documents, and reads what is written of them.
func FuzzNetworkPolicy(f *testing.F) {
	f.Add([]byte(`{"default":"allow","allow":["a.example.org",{"sandbox":{"a":"b"},"ports":["1-2"]}],"rules":{"*":{"record":true}},"limits":{"rate_mbit":1}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := DecodeNetworkPolicy(data)
		if err != nil {
			if CodeOf(err) != CodeInvalid {
				t.Fatal(err)
			}
			return
		}
		out, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		again, err := DecodeNetworkPolicy(out)
		if err != nil {
			t.Fatalf("%s: %v", out, err)
		}
		second, err := json.Marshal(again)
		if err != nil || string(second) != string(out) {
			t.Fatalf("%s is read and written as %s, %v", out, second, err)
		}
	})
}
