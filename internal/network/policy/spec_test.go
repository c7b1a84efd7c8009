package policy

import (
	"strings"
	"testing"

	"ramet.dev/ramet/api"
)

func TestProfiles(t *testing.T) {
	profiles := map[string]api.NetworkPolicy{
		"git":    parseDocument(t, "allow git.example.org:22", "allow profile=hosts", "deny old.example.org"),
		"hosts":  parseDocument(t, "allow *.example.org"),
		"loop":   parseDocument(t, "allow profile=loop"),
		"open":   {Default: api.NetworkAllow},
		"narrow": {Allow: parseDocument(t, "allow a.example.net").Allow, Limits: api.NetworkLimits{Connections: 5}},
	}
	p := compile(t, Spec{Document: parseDocument(t, "allow profile=git", "allow profile=hosts", "allow profile=narrow"), Profiles: profiles})
	for ask, want := range map[string]string{
		"198.51.100.1:22 git.example.org":  "profile git: git.example.org:22",
		"198.51.100.1:443 git.example.org": "profile git: profile hosts: *.example.org",
		"198.51.100.1:443 old.example.org": "!profile git: deny old.example.org",
	} {
		if got := shown(p.Judge(question(t, ask))); got != want {
			t.Errorf("%s is decided by %q, not %q", ask, got, want)
		}
	}
	if got := p.Limits().Connections; got != 5 {
		t.Errorf("%d connections are allowed, not the smaller number of the profile", got)
	}
	p = compile(t, Spec{Document: parseDocument(t, "default allow", "deny profile=hosts"), Profiles: profiles})
	if got := shown(p.Judge(question(t, "198.51.100.1:443 a.example.org"))); got != "!profile hosts: deny *.example.org" {
		t.Errorf("a denied profile decides %q", got)
	}
	for line, want := range map[string]string{
		"allow profile=none-such": "no profile",
		"allow profile=loop":      "names itself",
		"allow profile=open":      "allows by default",
		"deny profile=git":        "cannot be denied",
	} {
		_, err := Compile(Spec{Document: parseDocument(t, line), Profiles: profiles}, ownTest)
		if api.CodeOf(err) != api.CodeInvalid || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "network.") {
			t.Errorf("%s: %v", line, err)
		}
	}
}

// TestProfilesDoNotMultiply compiles profiles that name each other so often that all of their paths
// could not be followed.
func TestProfilesDoNotMultiply(t *testing.T) {
	profiles := map[string]api.NetworkPolicy{}
	names := []string{"a", "b", "c", "d", "e", "f"}
	for i, name := range names {
		var lines []string
		for _, next := range names[i+1:] {
			for range 150 {
				lines = append(lines, "allow profile="+next)
			}
		}
		profiles[name] = parseDocument(t, append(lines, "allow "+name+".example.org")...)
	}
	p := compile(t, Spec{Document: parseDocument(t, "allow profile=a"), Profiles: profiles})
	if d := p.JudgeName("f.example.org"); !d.Allowed {
		t.Errorf("the innermost profile decides %s", shown(d))
	}
}

func TestBounds(t *testing.T) {
	spec := Spec{
		Document: parseDocument(t, "default allow", "allow 10.0.0.0/8", "allow sandbox=db"),
		Bounds: []Bound{
			{Of: "the daemon", Document: parseDocument(t, "default allow", "deny *.example.net", "allow sandbox=*")},
			{Of: "tenant acme", Document: api.NetworkPolicy{Allow: parseDocument(t, "allow *.example.org", "allow 198.51.100.0/24").Allow, Limits: api.NetworkLimits{RateMbit: 10}}},
		},
	}
	p := compile(t, spec)
	for ask, want := range map[string]string{
		"198.51.100.1:22 a.example.org":                    "default: allow",
		"203.0.113.1:443 a.example.org seen=a.example.org": "default: allow",
		"203.0.113.1:443 a.example.net seen=a.example.net": "!bound of the daemon: deny *.example.net",
		"203.0.113.1:443 a.example.com seen=a.example.com": "!bound of tenant acme: default: deny",
		"10.1.2.3:5432":   "!bound of the daemon: private addresses: no rule names them",
		"203.0.113.1:443": "!bound of the daemon: default: allow holds for addresses that a name was looked up for, as names are denied or treated",
	} {
		if got := shown(p.Judge(question(t, ask))); got != want {
			t.Errorf("%s is decided by %q, not %q", ask, got, want)
		}
	}
	if d := p.Judge(question(t, "203.0.113.1:443 a.example.org")); d.Host != HostRequired {
		t.Errorf("a bound with names needs %d of the first bytes", d.Host)
	}
	if d := p.JudgeTarget(&Peer{Name: "db"}, 1); d.Allowed || d.Bound != "tenant acme" {
		t.Errorf("a sandbox that a bound does not name is decided by %s", d)
	}
	if d := p.JudgeName("a.example.com"); d.Allowed || d.Bound != "tenant acme" {
		t.Errorf("a name that a bound does not allow is decided by %s", d)
	}
	if got := p.Limits(); got != (api.NetworkLimits{Connections: DefaultConnections, DNSPerS: DefaultDNSPerS, RateMbit: 10}) {
		t.Errorf("limits are %+v", got)
	}
	spec.Bounds[0].Document.Rules = map[string]api.NetworkTreatment{"a.example.org": {Record: true}}
	if _, err := Compile(spec, ownTest); err == nil || !strings.Contains(err.Error(), "bound of the daemon") {
		t.Errorf("a bound with treatments: %v", err)
	}
}

func TestWhatCannotBeEnforcedIsRefused(t *testing.T) {
	for line, want := range map[string]string{
		"allow localhost:8080":           "network.allow[0]: localhost is reached never by name: loopback",
		"allow metadata.google.internal": "network.allow[0]: metadata.google.internal is reached never by name",
		"allow ::ffff:10.0.0.1":          "judged as the IPv4 address",
		"allow 64:ff9b::/96":             "judged as the IPv4 address",
		"allow ::7f00:1":                 "judged as the IPv4 address",
		"allow udp:198.51.100.1:443":     "never passed on",
		"allow udp:host.ramet.internal":  "wants a port",
	} {
		_, err := Compile(Spec{Document: parseDocument(t, line)}, ownTest)
		if api.CodeOf(err) != api.CodeInvalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", line, err)
		}
	}
	if _, err := Compile(Spec{}, nil); err == nil {
		t.Error("a policy without the addresses of the host was compiled")
	}
	doc := api.NetworkPolicy{Rules: map[string]api.NetworkTreatment{"a.example.org": {Record: true}, "A.example.org": {Record: true}}}
	if _, err := Compile(Spec{Document: doc}, ownTest); err == nil || !strings.Contains(err.Error(), "another treatment") {
		t.Errorf("two treatments of one name: %v", err)
	}
	for _, ok := range []string{"allow ::/0", "allow 2001::/16", "deny localhost", "allow ::1", "allow udp:198.51.100.1:440-450"} {
		if _, err := Compile(Spec{Document: parseDocument(t, ok)}, ownTest); err != nil {
			t.Errorf("%s: %v", ok, err)
		}
	}
}
