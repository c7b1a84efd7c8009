package networks

import (
	"context"
	"log/slog"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/network/host"
	"ramet.dev/ramet/internal/network/policy"
	"ramet.dev/ramet/internal/network/profiles"
	"ramet.dev/ramet/internal/node/nodetest"
	"ramet.dev/ramet/internal/node/sandboxes"
	"ramet.dev/ramet/internal/service/access"
)

// files are the profiles of the tests.
func files() fstest.MapFS {
	return fstest.MapFS{
		"git.yaml":  {Data: []byte("allow: [git.example.org, 'ssh.example.org:22']\n")},
		"wide.yaml": {Data: []byte("default: allow\ndeny: [ads.example.org]\n")},
		"bad.yaml":  {Data: []byte("allow: 7\n")},
	}
}

// newNetworks returns networks whose gateway is a program.
func newNetworks(t *testing.T, gateway string, files fstest.MapFS, max *api.NetworkRequest) (*Networks, *nodetest.Parts) {
	t.Helper()
	parts := nodetest.New(t, nodetest.Options{})
	n, err := New(t.Context(), Config{
		Sandboxes: parts.Sandboxes, Store: parts.Store, Profiles: profiles.New(files, nil), Max: max, Log: slog.New(slog.DiscardHandler), Timeout: time.Minute,
		Gateway: host.Config{Dir: t.TempDir(), Executable: gateway, Build: "test", Log: slog.New(slog.DiscardHandler)},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	return n, parts
}

func parse(t *testing.T, rules ...string) (out []api.NetworkRule) {
	t.Helper()
	for _, text := range rules {
		r, err := api.ParseNetworkRule("allow", text)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, r)
	}
	return out
}

func TestRequestsBecomeDocuments(t *testing.T) {
	n, _ := newNetworks(t, "/bin/false", files(), nil)
	for name, c := range map[string]struct {
		req    api.NetworkRequest
		want   string // "" for no network
		needed []string
	}{
		"nothing":              {api.NetworkRequest{}, "", nil},
		"none":                 {api.NetworkRequest{Profile: "none"}, "", nil},
		"none and a rule":      {api.NetworkRequest{Profile: "none", NetworkPolicy: api.NetworkPolicy{Allow: parse(t, "a.example.org")}}, "deny [a.example.org] []", nil},
		"open":                 {api.NetworkRequest{Profile: "open"}, "allow [] []", nil},
		"a profile":            {api.NetworkRequest{Profile: "git"}, "deny [profile=git] []", []string{"git"}},
		"a profile and more":   {api.NetworkRequest{Profile: "git", NetworkPolicy: api.NetworkPolicy{Allow: parse(t, "a.example.org"), Deny: parse(t, "b.example.org")}}, "deny [profile=git a.example.org] [b.example.org]", []string{"git"}},
		"one that allows":      {api.NetworkRequest{Profile: "wide"}, "allow [] [ads.example.org]", nil},
		"a document":           {api.NetworkRequest{NetworkPolicy: api.NetworkPolicy{Allow: parse(t, "a.example.org", "profile=git")}}, "deny [a.example.org profile=git] []", []string{"git"}},
		"a default in its way": {api.NetworkRequest{Profile: "wide", NetworkPolicy: api.NetworkPolicy{Default: api.NetworkDeny, Allow: parse(t, "a.example.org")}}, "deny [a.example.org] [ads.example.org]", nil},
	} {
		got, err := n.asked(t.Context(), &c.req, sandboxes.Network{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		text := ""
		if p := got.Policy; p != nil {
			text = string(p.Default) + " " + list(p.Allow) + " " + list(p.Deny)
		}
		var needed []string
		for name := range got.Profiles {
			needed = append(needed, name)
		}
		if text != c.want || !reflect.DeepEqual(needed, c.needed) {
			t.Errorf("%s: %q with %v, not %q with %v", name, text, needed, c.want, c.needed)
		}
	}
	for profile, want := range map[string]api.Code{"unknown": api.CodeNotFound, "bad": api.CodeInvalid, "../x": api.CodeInvalid} {
		if _, err := n.asked(t.Context(), &api.NetworkRequest{Profile: profile}, sandboxes.Network{}); api.CodeOf(err) != want {
			t.Errorf("profile %s: %v", profile, err)
		}
	}
}

func list(rules []api.NetworkRule) string {
	var out []string
	for _, r := range rules {
		out = append(out, r.String())
	}
	return "[" + strings.Join(out, " ") + "]"
}

// TestProfilesAsTheyWere keeps what a sandbox was given, and bounds as they are now.
func TestProfilesAsTheyWere(t *testing.T) {
	now := files()
	first, _ := newNetworks(t, "/bin/false", now, nil)
	given, err := first.asked(t.Context(), &api.NetworkRequest{Profile: "git"}, sandboxes.Network{})
	if err != nil {
		t.Fatal(err)
	}
	now["git.yaml"].Data = []byte("allow: [git.example.org]\n")
	bounded, _ := newNetworks(t, "/bin/false", now, &api.NetworkRequest{NetworkPolicy: api.NetworkPolicy{Allow: parse(t, "profile=git")}})
	for _, c := range []struct {
		n    *Networks
		name string
		port uint16
		want bool
	}{
		{first, "git.example.org", 443, true},
		{first, "ssh.example.org", 22, true},
		{bounded, "git.example.org", 443, true},
		{bounded, "ssh.example.org", 22, false},
	} {
		p, err := policy.Compile(c.n.spec(given), notOwn)
		if err != nil {
			t.Fatal(err)
		}
		d := p.Judge(&policy.Question{Address: netip.MustParseAddr("198.51.100.1"), Port: c.port, Names: []string{c.name}, Seen: true, Host: c.name})
		if d.Allowed != c.want {
			t.Errorf("%s: %v", c.name, d)
		}
	}
	if _, err := New(t.Context(), Config{Profiles: profiles.New(now, nil), Max: &api.NetworkRequest{Profile: "unknown"}}); api.CodeOf(err) != api.CodeNotFound {
		t.Errorf("a bound with an unknown profile: %v", err)
	}
}

// TestWhoMayGiveMore lets callers that are bound give no more than there is.
func TestWhoMayGiveMore(t *testing.T) {
	n, _ := newNetworks(t, "/bin/false", files(), nil)
	from := sandboxes.Network{Policy: &api.NetworkPolicy{Allow: parse(t, "a.example.org", "b.example.org")}}
	for name, c := range map[string]struct {
		caller access.Caller
		req    api.NetworkRequest
		ok     bool
	}{
		"the owner, more":   {access.Owner(0), api.NetworkRequest{Profile: "open"}, true},
		"bound, more":       {access.Caller{Tenant: "a", Tree: "r"}, api.NetworkRequest{Profile: "open"}, false},
		"bound, less":       {access.Caller{Tenant: "a", Tree: "r"}, api.NetworkRequest{NetworkPolicy: api.NetworkPolicy{Allow: parse(t, "b.example.org")}}, true},
		"bound, nothing":    {access.Caller{Tenant: "a", Sandbox: "r"}, api.NetworkRequest{}, true},
		"the sandbox, more": {access.Itself("a", "r"), api.NetworkRequest{Profile: "git"}, false},
	} {
		_, err := n.asked(access.With(context.Background(), c.caller), &c.req, from)
		if (err == nil) != c.ok || err != nil && api.CodeOf(err) != api.CodeForbidden {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestWithoutAGateway gives no network, and refuses nothing else.
func TestWithoutAGateway(t *testing.T) {
	n, parts := newNetworks(t, "/bin/false", files(), nil)
	if _, err := n.Grant(nodetest.AsOwner, nil, sandboxes.Network{}); err != nil {
		t.Errorf("no network: %v", err)
	}
	if _, err := n.Grant(nodetest.AsOwner, &api.NetworkRequest{Profile: "open"}, sandboxes.Network{}); api.CodeOf(err) != api.CodeUnavailable {
		t.Errorf("a network: %v", err)
	}
	b := parts.Add(t, nodetest.Answer)
	if _, err := n.SetNetwork(nodetest.AsOwner, b.ID, api.NetworkRequest{Profile: "open"}); api.CodeOf(err) != api.CodeUnavailable {
		t.Errorf("set: %v", err)
	}
	if got, err := n.Network(nodetest.AsOwner, b.ID); err != nil || got.Default != api.NetworkDeny || len(got.Allow) != 0 {
		t.Errorf("it has %+v, %v", got, err)
	}
	if r, err := n.TestNetwork(nodetest.AsOwner, b.ID, api.NetworkTest{Host: "a.example.org", Port: 443}); err != nil || r.Allowed || r.Rule == "" {
		t.Errorf("test: %+v, %v", r, err)
	}
	n.Began(b, b.Sentry(), nil)
	n.Ended(b, b.Sentry())
}
