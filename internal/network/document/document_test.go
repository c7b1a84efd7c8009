package document

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
)

// example is the document of the design, with a rule of each form.
const example = `
default: deny                  # or allow
allow:
  - packages.example.org
  - "*.files.example.org"
  - git.example.com:22
  - 10.1.0.0/16:5432
  - "[2001:db8::1]:443"
  - 2001:db8::/32
  - udp:192.0.2.1:53
  - {address: wiki.example.net, ports: [443, "8000-8099"], private: true}
  - sandbox: db
    ports: [5432]
  - sandbox: {role: store}
  - profile: git-hosts
deny: [ "telemetry.example.com" ]
accept: [{sandbox: web}]
rules:
  llm.example.com:
    secret: { header: Authorization, value: "Bearer ${LLM_API_KEY}" }
    methods: [POST]
    paths: [/v1/responses]
limits: { connections: 256, rate_mbit: 200, dns_per_s: 50 }
`

func TestParse(t *testing.T) {
	p, err := Parse([]byte(example))
	if err != nil {
		t.Fatal(err)
	}
	var short []string
	for _, r := range p.Allow {
		short = append(short, r.String())
	}
	want := []string{
		"packages.example.org", "*.files.example.org", "git.example.com:22", "10.1.0.0/16:5432", "[2001:db8::1]:443", "2001:db8::/32", "udp:192.0.2.1:53",
		`{"address":"wiki.example.net","ports":[443,"8000-8099"],"private":true}`, "sandbox=db:5432", `{"sandbox":{"role":"store"}}`, "profile=git-hosts",
	}
	if !reflect.DeepEqual(short, want) {
		t.Errorf("it allows %q, not %q", short, want)
	}
	if p.Limits != (api.NetworkLimits{Connections: 256, RateMbit: 200, DNSPerS: 50}) || len(p.Deny) != 1 || len(p.Accept) != 1 {
		t.Errorf("it is %+v", p)
	}
	// JSON is the same document.
	asJSON, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse(asJSON)
	if err != nil || !reflect.DeepEqual(p, again) {
		t.Errorf("as JSON it is %+v, %v", again, err)
	}
	if p, err := Parse([]byte("{\"allow\":[{\"sandbox\":{\"a\":\"\x7f\"}}]}")); err != nil || len(p.Allow) != 1 {
		t.Errorf("JSON with a character that YAML does not have is %+v, %v", p, err)
	}
	for _, empty := range []string{"", "# nothing\n", "---\n", "{}", "null"} {
		if p, err := Parse([]byte(empty)); err != nil || !reflect.DeepEqual(p, &api.NetworkPolicy{}) {
			t.Errorf("%q is %+v, %v", empty, p, err)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"allow: [*.example.org]":                      `a name that begins with * is quoted`,
		"allow:\n  - *.example.org":                   `a name that begins with * is quoted`,
		"allow: &a [x.example.org]\ndeny: *a":         "line 2: references",
		"a: &a {default: deny}\n<<: *a":               "keys are plain words",
		"default: deny\ndefault: allow":               `"default" is given twice`,
		"default: deny\n---\ndefault: allow":          "second document",
		"allowed: []":                                 "allowed",
		"default: yes":                                "network.default",
		"allow: [443]":                                "a rule is a string",
		"allow: [22.5]":                               "no use here",
		"allow: [!!binary aGk=]":                      "no use here",
		"limits: {connections: 1e3}":                  "no use here",
		"limits: {connections: 99999999999999999999}": "no use here",
		"[a, b]":        "network",
		"just a word":   "network",
		"? [a]\n: b":    "keys are plain words",
		"allow: [":      "no YAML",
		"\x00":          "no YAML",
		"allow: [a..b]": "a..b",
		strings.Repeat("[", 40) + strings.Repeat("]", 40):                  "nested",
		"allow: [" + strings.Repeat("a.example.org, ", MaxSize/15+1) + "]": "more than 524288 bytes",
		"allow: [" + strings.Repeat("1,", maxNodes+1) + "]":                "more than 100000 values",
		`{"allow": ["a.example.org"], "allow": ["b.example.org"]}`:         "given twice",
		"rules: {a.example.org: {secret: {header: X, value: literally}}}":  "names no secret",
		"allow: [{address: a.example.org, private: \"true\"}]":             "private",
		"allow: [{address: a.example.org, port: 22}]":                      "port",
		"allow: [{sandbox: [a]}]":                                          "sandbox is a name",
		"rules: {a.example.org: {paths: [v1]}}":                            "network.rules.a.example.org.paths",
	} {
		p, err := Parse([]byte(text))
		if api.CodeOf(err) != api.CodeInvalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80q is %+v, %v", text, p, err)
		}
	}
}

func TestFormat(t *testing.T) {
	p, err := Parse([]byte(example))
	if err != nil {
		t.Fatal(err)
	}
	text, err := Format(p)
	if err != nil {
		t.Fatal(err)
	}
	const want = `default: deny
allow:
  - packages.example.org
  - '*.files.example.org'
  - git.example.com:22
  - 10.1.0.0/16:5432
  - '[2001:db8::1]:443'
  - 2001:db8::/32
  - udp:192.0.2.1:53
  - address: wiki.example.net
    ports:
      - 443
      - 8000-8099
    private: true
  - sandbox: db
    ports:
      - 5432
  - sandbox:
      role: store
  - profile: git-hosts
deny:
  - telemetry.example.com
accept:
  - sandbox: web
rules:
  llm.example.com:
    secret:
      header: Authorization
      value: Bearer ${LLM_API_KEY}
    methods:
      - POST
    paths:
      - /v1/responses
limits:
  connections: 256
  rate_mbit: 200
  dns_per_s: 50
`
	if string(text) != want {
		t.Errorf("it is written as\n%s", text)
	}
	again, err := Parse(text)
	if err != nil || !reflect.DeepEqual(p, again) {
		t.Errorf("it is read again as %+v, %v", again, err)
	}
	none := api.NetworkPolicy{}.Normal()
	if text, err := Format(&none); err != nil || string(text) != "default: deny\n" {
		t.Errorf("a document that says nothing is written as %q, %v", text, err)
	}
}

// FuzzParse reads any text, and what is written of the document in it.
func FuzzParse(f *testing.F) {
	f.Add([]byte(example))
	f.Add([]byte(`{"default":"allow","allow":["a.example.org"]}`))
	f.Add([]byte("a: &a [*a]\n? x\n: |\n  y\n--- >\nz"))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := Parse(text)
		if err != nil {
			if api.CodeOf(err) != api.CodeInvalid {
				t.Fatalf("%v has the code %s", err, api.CodeOf(err))
			}
			return
		}
		out, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Parse(out); err != nil {
			t.Fatalf("%s: %v", out, err)
		}
		text2, err := Format(p)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse(text2)
		if err != nil {
			t.Fatalf("%s: %v", text2, err)
		}
		if before, after := p.Normal(), again.Normal(); !reflect.DeepEqual(before, after) {
			t.Fatalf("%+v is written as\n%s\nand read as %+v", before, text2, after)
		}
	})
}

// The plan of an exploration has fractions, and the bounds of documents.
func TestParsePlan(t *testing.T) {
	v, err := ParsePlan([]byte("a: 0.5\nb: [1, x, true]\n"))
	if want := map[string]any{"a": 0.5, "b": []any{int64(1), "x", true}}; err != nil || !reflect.DeepEqual(v, want) {
		t.Errorf("%v, %v", v, err)
	}
	for text, want := range map[string]string{
		"a: .nan": "no use here", "a: .inf": "no use here", "a: 1\na: 2": "given twice", "a: 1\n---\nb: 2": "second document", "a: &x [1]\nb: *x": "not followed",
		strings.Repeat("[", 200) + strings.Repeat("]", 200): "nested more",
	} {
		if _, err := ParsePlan([]byte(text)); err == nil || api.AsError(err).Field != "plan" || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: %v, not %q", text, err, want)
		}
	}
	if _, err := Parse([]byte("a: 0.5")); err == nil {
		t.Error("a network document has no fractions")
	}
}
