package egress

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
)

// TestNetworks of clients are documents of ours; what has no equal is refused.
func TestNetworks(t *testing.T) {
	yes, no := true, false
	for _, c := range []struct {
		internet *bool
		network  string
		want     string
		refused  api.Code
	}{
		{nil, `null`, `open | | `, ""},
		{&yes, `{}`, `open | | `, ""},
		{&no, `null`, `none | | `, ""},
		{nil, `{"denyOut":["0.0.0.0/0"],"allowOut":["example.org","192.0.2.0/24"]}`, `none | example.org:443,80 192.0.2.0/24 | `, ""},
		{nil, `{"denyOut":["192.0.2.1"]}`, `open | | 192.0.2.1`, ""},
		{&no, `{"allowOut":["*.example.org"]}`, `none | *.example.org | `, ""},
		{nil, `{"allow_internet_access":false}`, `none | | `, ""},
		{nil, `{"allowOut":["a b"]}`, ``, api.CodeInvalid},
		{nil, `{"egressProxy":{"address":"192.0.2.1:1080"}}`, ``, api.CodeUnsupported},
		{nil, `{"maskRequestHost":"localhost:${PORT}"}`, `open | | `, ""},
		{nil, `{"maskRequestHost":"a\r\nb"}`, ``, api.CodeInvalid},
		{nil, `{"dnsServers":["192.0.2.53"]}`, ``, api.CodeUnsupported},
		{nil, `{"httpsPorts":[8443]}`, ``, api.CodeUnsupported},
		{nil, `{"rules":{"example.org":[{"transform":{"headers":{"A":"${e2b.identity.tokens.x}"}}}]}}`, ``, api.CodeUnsupported},
	} {
		var n *Network
		if err := json.Unmarshal([]byte(c.network), &n); err != nil {
			t.Fatal(err)
		}
		got, err := n.Request(c.internet)
		if api.CodeOf(err) != c.refused {
			t.Errorf("%s: %v", c.network, err)
			continue
		}
		if err != nil {
			continue
		}
		if err := got.Valid(); err != nil {
			t.Errorf("%s: %v", c.network, err)
		}
		if len(got.Rules) > 0 {
			t.Errorf("%s: rules %v", c.network, got.Rules)
		}
		var allow, deny []string
		for _, r := range got.Allow {
			if r.Profile != "" {
				continue // the registries of the host
			}
			allow = append(allow, r.Address)
		}
		for _, r := range got.NetworkPolicy.Deny {
			deny = append(deny, r.Address)
		}
		text := got.Profile + " | " + strings.Join(allow, " ") + " | " + strings.Join(deny, " ")
		if want := strings.ReplaceAll(strings.ReplaceAll(c.want, ":443,80", ""), "| | ", "|  | "); text != want {
			t.Errorf("%s: %q, not %q", c.network, text, want)
		}
	}
}

// TestRules put headers into requests to hosts that are allowed, and allow none by themselves.
func TestRules(t *testing.T) {
	const rules = `"rules":{"api.example.org":[{"transform":{"headers":{"X-Team":"blue","Authorization":"Bearer ${e2b.secrets.llm-key}"}}},{}]}`
	want := []api.NetworkSecret{{Header: "Authorization", Value: "Bearer ${llm-key}"}, {Header: "X-Team", Value: "blue", Plain: true}}
	for text, kept := range map[string]bool{
		`{` + rules + `}`: true,
		`{"denyOut":["0.0.0.0/0"],"allowOut":["api.example.org"],` + rules + `}`: true,
		`{"denyOut":["0.0.0.0/0"],"allowOut":["*.example.org"],` + rules + `}`:   true,
		`{"denyOut":["0.0.0.0/0"],"allowOut":["example.org"],` + rules + `}`:     false,
		`{"denyOut":["0.0.0.0/0"],` + rules + `}`:                                false,
		`{"denyOut":["api.example.org"],` + rules + `}`:                          false,
	} {
		n := new(Network)
		if err := json.Unmarshal([]byte(text), n); err != nil {
			t.Fatal(err)
		}
		got, err := n.Request(nil)
		if err == nil {
			err = got.Valid()
		}
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		has, ok := got.Rules["api.example.org"]
		if ok != kept || kept && !reflect.DeepEqual(has.Headers, want) {
			t.Errorf("%s: the rules are %+v", text, got.Rules)
		}
	}
}
