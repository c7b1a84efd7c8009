package apt

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ramet.dev/ramet/internal/image/debian/fault"
)

func summary(srcs []Source) []string {
	var out []string
	for _, s := range srcs {
		out = append(out, strings.Join([]string{
			s.URI.String(), s.Suite, strings.Join(s.Components, ","), strings.Join(s.archs, ","), strings.Join(s.SignedBy, ","), s.KeyBlock,
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
		var e *fault.MalformedError
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

func TestRedact(t *testing.T) {
	if got := Redact("http://user:secret@a.example/x"); strings.Contains(got, "secret") {
		t.Errorf("password shown: %s", got)
	}
}
