package networks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/network/gateway"
	"ramet.dev/ramet/internal/network/host"
	"ramet.dev/ramet/internal/network/policy"
	"ramet.dev/ramet/internal/network/profiles"
	"ramet.dev/ramet/internal/network/secrets"
	"ramet.dev/ramet/internal/node/nodetest"
	"ramet.dev/ramet/internal/node/reach"
	"ramet.dev/ramet/internal/node/sandboxes"
	"ramet.dev/ramet/internal/service/access"
	"ramet.dev/ramet/internal/storage/hostfs"
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
	store, err := secrets.Open(hostfs.OS, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	n, err := New(t.Context(), Config{
		Secrets: store, HeldFiles: fstest.MapFS{},
		Sandboxes: parts.Sandboxes, Store: parts.Store, Accounts: parts.Ledger, Profiles: profiles.New(files, nil), Max: max, Log: slog.New(slog.DiscardHandler), Timeout: time.Minute,
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
		got, err := n.asked(t.Context(), Owner{}, &c.req, reach.Network{})
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
		if _, err := n.asked(t.Context(), Owner{}, &api.NetworkRequest{Profile: profile}, reach.Network{}); api.CodeOf(err) != want {
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
	given, err := first.asked(t.Context(), Owner{}, &api.NetworkRequest{Profile: "git"}, reach.Network{})
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
	from := reach.Network{Policy: &api.NetworkPolicy{Allow: parse(t, "a.example.org", "b.example.org")}}
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
		_, err := n.asked(access.With(context.Background(), c.caller), Owner{}, &c.req, from)
		if (err == nil) != c.ok || err != nil && api.CodeOf(err) != api.CodeForbidden {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestWithoutAGateway gives no network, and refuses nothing else.
func TestWithoutAGateway(t *testing.T) {
	n, parts := newNetworks(t, "/bin/false", files(), nil)
	if _, err := n.Grant(nodetest.AsOwner, Owner{}, nil, Branch{}, reach.Network{}); err != nil {
		t.Errorf("no network: %v", err)
	}
	if _, err := n.Grant(nodetest.AsOwner, Owner{}, &api.NetworkRequest{Profile: "open"}, Branch{}, reach.Network{}); api.CodeOf(err) != api.CodeUnavailable {
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

// mustAsk returns what a request for a network gets in place of from.
func mustAsk(t *testing.T, n *Networks, req *api.NetworkRequest, from reach.Network) reach.Network {
	t.Helper()
	got, err := n.asked(nodetest.AsOwner, Owner{Tenant: "a", Tree: "sbx_root"}, req, from)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// TestBranches have their requests held or recorded, and reach nothing that this cannot be done to.
func TestBranches(t *testing.T) {
	n, _ := newNetworks(t, "/bin/false", files(), nil)
	from, err := n.asked(nodetest.AsOwner, Owner{Tenant: "a", Tree: "sbx_root"}, &api.NetworkRequest{NetworkPolicy: api.NetworkPolicy{
		Allow: parse(t, "a.example.org", "192.0.2.1:5432", "profile=git", "udp:192.0.2.1:53"),
		Rules: map[string]api.NetworkTreatment{"b.example.org": {Methods: []string{"POST"}}},
	}}, reach.Network{})
	if err != nil {
		t.Fatal(err)
	}
	if len(from.Authority) == 0 || !strings.Contains(string(from.Certificate), "BEGIN CERTIFICATE") {
		t.Errorf("a document that treats requests has no authority: %+v", from.Kept)
	}
	held, err := n.branch(Owner{Tenant: "a", Tree: "sbx_root"}, Branch{Hold: api.HoldWrites, Record: true}, from)
	if err != nil {
		t.Fatal(err)
	}
	if got := list(held.Policy.Allow); got != "[a.example.org profile=git]" {
		t.Errorf("it allows %s", got)
	}
	want := map[string]api.NetworkTreatment{
		"b.example.org": {Methods: []string{"POST"}, Hold: api.HoldWrites, Record: true}, "*": {Hold: api.HoldWrites, Record: true},
	}
	if !reflect.DeepEqual(held.Policy.Rules, want) || held.RecordGroup == "" || !reflect.DeepEqual(held.Authority, from.Authority) {
		t.Errorf("it treats %+v, in group %q", held.Policy.Rules, held.RecordGroup)
	}
	if len(from.Policy.Allow) != 4 || len(from.Policy.Rules) != 1 || from.RecordGroup != "" {
		t.Errorf("the parent's document is changed: %+v", from.Policy)
	}
	none, err := n.branch(Owner{}, Branch{Hold: api.HoldWrites}, reach.Network{})
	if err != nil || none.Policy != nil {
		t.Errorf("of a sandbox without a network: %+v, %v", none, err)
	}
	// Another network keeps the hold, also one after none, until the request ends it.
	ask := &api.NetworkRequest{NetworkPolicy: api.NetworkPolicy{Allow: parse(t, "c.example.org", "192.0.2.1:5432"), Rules: map[string]api.NetworkTreatment{"d.example.org": {Methods: []string{"POST"}}}}}
	for name, from := range map[string]reach.Network{"held": held, "held without a network": none, "closed": mustAsk(t, n, &api.NetworkRequest{}, held)} {
		got := mustAsk(t, n, ask, from)
		if got.Hold != api.HoldWrites || got.Policy.Rules["*"].Hold != api.HoldWrites || got.Policy.Rules["d.example.org"].Hold != api.HoldWrites || list(got.Policy.Allow) != "[c.example.org]" {
			t.Errorf("%s: %+v of %q", name, got.Policy, got.Hold)
		}
	}
	ask.ReleaseHold = true
	if got := mustAsk(t, n, ask, held); got.Hold != "" || len(got.Policy.Rules) != 1 || got.Policy.Rules["d.example.org"].Hold != "" || len(got.Policy.Allow) != 2 {
		t.Errorf("released: %+v of %q", got.Policy, got.Hold)
	}
	bound := access.With(t.Context(), access.Caller{Tenant: "a", Tree: "sbx_root"})
	if _, err := n.asked(bound, Owner{Tenant: "a", Tree: "sbx_root"}, &api.NetworkRequest{ReleaseHold: true, NetworkPolicy: api.NetworkPolicy{Allow: parse(t, "a.example.org")}}, held); api.CodeOf(err) != api.CodeForbidden {
		t.Errorf("a caller that is bound ends a hold: %v", err)
	}
	if _, err := n.branch(Owner{}, Branch{Hold: "reads"}, from); api.CodeOf(err) != api.CodeInvalid {
		t.Errorf("a bad word: %v", err)
	}
}

// TestSecretsAreNeverTold looks for a value in all that is stored and told.
func TestSecretsAreNeverTold(t *testing.T) {
	n, _ := newNetworks(t, "/bin/false", files(), nil)
	const value = "s3cret-value"
	ask := &api.NetworkRequest{NetworkPolicy: api.NetworkPolicy{Rules: map[string]api.NetworkTreatment{
		"llm.example.org": {Secret: &api.NetworkSecret{Header: "Authorization", Value: "Bearer ${KEY}"}},
	}}}
	if _, err := n.asked(nodetest.AsOwner, Owner{Tenant: access.DefaultTenant, Tree: "sbx_root"}, ask, reach.Network{}); api.CodeOf(err) != api.CodeNotFound {
		t.Errorf("a secret that is not there: %v", err)
	}
	s, err := NewSecrets(n).SetSecret(nodetest.AsOwner, "KEY", api.SecretRequest{Value: value, SecretBinding: api.SecretBinding{Names: []string{"llm.example.org"}, Header: "Authorization"}})
	if err != nil {
		t.Fatal(err)
	}
	list, err := NewSecrets(n).Secrets(nodetest.AsOwner)
	if err != nil || len(list) != 1 || list[0].Name != "KEY" {
		t.Errorf("secrets: %+v, %v", list, err)
	}
	got, err := n.asked(nodetest.AsOwner, Owner{Tenant: access.DefaultTenant, Tree: "sbx_root"}, ask, reach.Network{})
	if err != nil {
		t.Fatal(err)
	}
	env := Environment(map[string]string{"A": "b"}, &got.Kept)
	if !secrets.IsPlaceholder(env["KEY"]) || env["A"] != "b" {
		t.Errorf("programs have %v", env)
	}
	if own := Environment(map[string]string{"KEY": "mine"}, &got.Kept); own["KEY"] != "mine" {
		t.Errorf("a variable of the user's is replaced: %v", own)
	}
	rec := sandboxes.Record{Sandbox: api.Sandbox{ID: "sbx_root", Env: env}}
	rec.SetNetwork(got)
	r := gateway.Registration{Policy: n.spec(got)}
	if err := n.treated(&rec, &r); err != nil || len(r.Secrets) != 1 || r.Secrets[0].Value.Reveal() != value || r.Secrets[0].Placeholder != env["KEY"] {
		t.Fatalf("the gateway is told %+v, %v", r, err)
	}
	told, err := json.Marshal([]any{s, list, got, rec, r})
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(told), value) || strings.Contains(fmt.Sprintf("%+v %#v", r, r), value) {
		t.Errorf("the value is told: %s", told)
	}
	if err := NewSecrets(n).RemoveSecret(nodetest.AsOwner, "KEY"); err != nil {
		t.Fatal(err)
	}
	r = gateway.Registration{Policy: n.spec(got)}
	if err := n.treated(&rec, &r); err != nil || len(r.Secrets) != 0 {
		t.Errorf("without the secret: %+v, %v", r, err)
	}
	bound := access.With(t.Context(), access.Caller{Tenant: "default", Tree: "sbx_root"})
	if _, err := NewSecrets(n).Secrets(bound); api.CodeOf(err) != api.CodeForbidden {
		t.Errorf("a caller that is bound: %v", err)
	}
}

// TestSecretsOfARefusedRequestAreNotStored checks the secrets of a request that makes a sandbox.
func TestSecretsOfARefusedRequestAreNotStored(t *testing.T) {
	n, _ := newNetworks(t, "/bin/false", files(), nil)
	given, err := NewSecrets(n).Given(nodetest.AsOwner, map[string]api.SecretRequest{"KEY": {Value: "v", SecretBinding: api.SecretBinding{Names: []string{"llm.example.org"}, Header: "Authorization"}}})
	if err != nil {
		t.Fatal(err)
	}
	defer given.Clear()
	count := func() int {
		list, err := NewSecrets(n).Secrets(nodetest.AsOwner)
		if err != nil {
			t.Error(err)
		}
		return len(list)
	}
	ask := func(host string) error {
		_, err := n.asked(nodetest.AsOwner, Owner{Tenant: access.DefaultTenant, Tree: "sbx_root", Secrets: given}, &api.NetworkRequest{NetworkPolicy: api.NetworkPolicy{Rules: map[string]api.NetworkTreatment{
			host: {Secret: &api.NetworkSecret{Header: "Authorization", Value: "Bearer ${KEY}"}},
		}}}, reach.Network{})
		return err
	}
	if err := ask(api.HostName); api.CodeOf(err) != api.CodeInvalid || count() != 0 {
		t.Errorf("a refused host: %v, and %d secrets", err, count())
	}
	if err := ask("llm.example.org"); err != nil || count() != 0 {
		t.Errorf("a document whose secret is not stored yet: %v, and %d secrets", err, count())
	}
	failed := errors.New("it did not start")
	if err := given.StoreWith(nodetest.AsOwner, func() error { return failed }); err != failed || count() != 0 {
		t.Errorf("a sandbox that fails: %v, and %d secrets", err, count())
	}
	seen := 0
	if err := given.StoreWith(nodetest.AsOwner, func() error { seen = count(); return nil }); err != nil || seen != 1 || count() != 1 {
		t.Errorf("a sandbox that starts: %v, %d secrets for it, %d afterwards", err, seen, count())
	}
	bound := access.With(t.Context(), access.Caller{Tenant: "default", Tree: "sbx_root"})
	if _, err := NewSecrets(n).Given(bound, map[string]api.SecretRequest{"KEY": {}}); api.CodeOf(err) != api.CodeForbidden {
		t.Errorf("a caller that is bound: %v", err)
	}
}

// TestAChangeOfASecretReachesAll goes on behind a sandbox that cannot be told, and leaves out those that are
// another tenant's, or have ended.
func TestAChangeOfASecretReachesAll(t *testing.T) {
	n, parts := newNetworks(t, "/bin/false", files(), nil)
	set := func(value string) error {
		_, err := NewSecrets(n).SetSecret(nodetest.AsOwner, "KEY", api.SecretRequest{Value: value, SecretBinding: api.SecretBinding{Names: []string{"llm.example.org"}, Header: "Authorization"}})
		return err
	}
	if err := set("first"); err != nil {
		t.Fatal(err)
	}
	network, err := n.asked(nodetest.AsOwner, Owner{Tenant: access.DefaultTenant, Tree: "sbx_root"}, &api.NetworkRequest{NetworkPolicy: api.NetworkPolicy{Rules: map[string]api.NetworkTreatment{
		"llm.example.org": {Secret: &api.NetworkSecret{Header: "Authorization", Value: "Bearer ${KEY}"}},
	}}}, reach.Network{})
	if err != nil {
		t.Fatal(err)
	}
	network.Authority = []byte("nobody can read this")
	with := func() *sandboxes.Instance {
		b := parts.Add(t, nodetest.Answer)
		b.Amend(func(rec *sandboxes.Record) { rec.SetNetwork(network) })
		return b
	}
	one, two, without, ended := with(), with(), parts.Add(t, nodetest.Answer), with()
	ended.Take() // its sentry
	err = set("second")
	if err == nil || !strings.Contains(err.Error(), one.ID) || !strings.Contains(err.Error(), two.ID) {
		t.Errorf("it ended at the first that could not be told: %v", err)
	}
	if err != nil && (strings.Contains(err.Error(), without.ID) || strings.Contains(err.Error(), ended.ID)) {
		t.Errorf("it told others: %v", err)
	}
}

// TestRulesReadLabelsOnly registers a sandbox that has given itself metadata.
func TestRulesReadLabelsOnly(t *testing.T) {
	n, parts := newNetworks(t, "/nonexistent", files(), nil)
	b := parts.Add(t, func(*wire.Call) (any, error) { return struct{}{}, nil })
	rec := b.Record()
	rec.Sandbox.Metadata, rec.Sandbox.Claimed = map[string]string{"team": "a", "role": "web"}, []string{"role"}
	reg, err := n.registration(rec, b.Sentry())
	if err != nil || len(reg.Labels) != 1 || reg.Labels["team"] != "a" {
		t.Errorf("the gateway is told %v (%v)", reg.Labels, err)
	}
}
