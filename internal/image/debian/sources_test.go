package debian

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func summary(srcs []source) []string {
	var out []string
	for _, s := range srcs {
		out = append(out, strings.Join([]string{
			s.uri.String(), s.suite, strings.Join(s.components, ","), strings.Join(s.archs, ","), strings.Join(s.signedBy, ","), s.keyBlock,
		}, "|"))
	}
	return out
}

func TestParseOneLine(t *testing.T) {
	got, err := parseOneLine("test.list", strings.Join([]string{
		"# deb http://comment.example/ x main",
		"deb http://a.example/debian/ stable main contrib # trailing",
		"deb\t[ arch=amd64,arm64 signed-by=/k.gpg,/l.gpg trusted=yes ]\thttps://b.example/x  stable/updates main",
		"deb-src http://a.example/debian stable main",
		"deb cdrom:[Disc]/ stable main",
		"deb mirror://c.example/list stable main",
		"deb http://flat.example/ ./",
		"deb copy:///srv/mirror stable main",
	}, "\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"http://a.example/debian|stable|main,contrib|||",
		"https://b.example/x|stable/updates|main|amd64,arm64|/k.gpg,/l.gpg|",
		"file:///srv/mirror|stable|main|||",
	}
	if d := cmp.Diff(want, summary(got)); d != "" {
		t.Error(d)
	}
	for _, bad := range []string{"deb http://a.example/", "deb [arch=amd64 http://a.example/ x main"} {
		var e *MalformedError
		if _, err := parseOneLine("test.list", bad); !errors.As(err, &e) {
			t.Errorf("%q: got %v, want a MalformedError", bad, err)
		}
	}
}

func TestParseDeb822(t *testing.T) {
	got, err := parseDeb822("test.sources", []byte(`# comment
Types: deb deb-src
URIs: http://a.example/debian http://b.example/debian/
Suites: stable stable-updates
Components: main
# inside
 contrib
Architectures: amd64
Signed-By: /k.gpg

Types: deb-src
URIs: http://a.example/debian
Suites: stable
Components: main

Types: deb
Enabled: no
URIs: http://a.example/debian
Suites: stable
Components: main

Types: deb
URIs: http://c.example
Suites: x
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 abc
 -----END PGP PUBLIC KEY BLOCK-----
`))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"http://a.example/debian|stable|main,contrib|amd64|/k.gpg|",
		"http://a.example/debian|stable-updates|main,contrib|amd64|/k.gpg|",
		"http://b.example/debian|stable|main,contrib|amd64|/k.gpg|",
		"http://b.example/debian|stable-updates|main,contrib|amd64|/k.gpg|",
		"http://c.example|x|main|||-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nabc\n-----END PGP PUBLIC KEY BLOCK-----\n",
	}
	if d := cmp.Diff(want, summary(got)); d != "" {
		t.Error(d)
	}
}

func TestSuiteFamily(t *testing.T) {
	for name, want := range map[string]bool{
		"stable": true, "stable-updates": true, "stable-security": true, "stable/updates": true,
		"stable-backports": false, "stable-proposed-updates": false, "unstable": false, "oldstable": false, "-updates": false,
	} {
		if got := suiteFamily("stable", name); got != want {
			t.Errorf("suiteFamily(stable, %s) = %v", name, got)
		}
	}
}

func TestAptConfig(t *testing.T) {
	conf := aptConfig{}
	conf.parse(`// comment
# another { "x"; }
/* and { one }; more */
Acquire::http::Proxy "http://all.example:3128/";
Acquire {
  Check-Valid-Until "False";
  http {
    Proxy { direct.example "DIRECT"; own.example "http://own.example:1"; };
    Timeout 30;
  };
  Languages { "none"; };
}
unfinished "quote`)
	if !conf.disabled("Acquire::Check-Valid-Until") || conf.disabled("Acquire::http::Timeout") || conf.disabled("Unknown") {
		t.Errorf("settings are read wrong: %v", conf)
	}
	for addr, want := range map[string]string{
		"http://x.example/a":       "http://all.example:3128/",
		"https://x.example/a":      "http://all.example:3128/",
		"http://direct.example/a":  "",
		"https://own.example:81/a": "http://own.example:1",
	} {
		req, err := http.NewRequest(http.MethodGet, addr, nil)
		if err != nil {
			t.Fatal(err)
		}
		u, err := conf.proxy(req)
		got := ""
		if u != nil {
			got = u.String()
		}
		if err != nil || got != want {
			t.Errorf("proxy for %s is %q, %v, want %q", addr, got, err, want)
		}
	}
}

func TestBoundedReader(t *testing.T) {
	for limit, fits := range map[int64]bool{9: false, 10: true, 11: true} {
		r := &boundedReader{r: strings.NewReader("0123456789"), what: "x", left: limit, limit: limit}
		data, err := readLimited("x", r, 100)
		var e *LimitError
		if fits && (err != nil || len(data) != 10) || !fits && !errors.As(err, &e) {
			t.Errorf("limit %d: %q, %v", limit, data, err)
		}
	}
}

func TestExcluder(t *testing.T) {
	e := excluder(DefaultWithout)
	for _, tt := range []struct {
		path string
		dir  bool
		want bool
	}{
		{"usr/share/doc", true, false},
		{"usr/share/doc/x", true, true},
		{"usr/share/doc/x/y", false, true},
		{"usr/share/docs/x", false, false},
		{"usr/share/locale/locale.alias", false, false},
		{"usr/share/man/man1", true, false},
		{"usr/share/man/man1/x.1", false, true},
		{"var/cache/x", true, false},
		{"var/cache/x/y", false, true},
		{"etc/x", false, false},
	} {
		if got := e.drops(tt.path, tt.dir); got != tt.want {
			t.Errorf("drops(%q, %v) = %v", tt.path, tt.dir, got)
		}
	}
}

func TestRedact(t *testing.T) {
	if got := redact("http://user:secret@a.example/x"); strings.Contains(got, "secret") {
		t.Errorf("password shown: %s", got)
	}
}
