package httprule

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
)

func TestPattern(t *testing.T) {
	for _, c := range []struct {
		pattern, path string
		want          bool
	}{
		{"/v1/responses", "/v1/responses", true},
		{"/v1/responses", "/v1/responses/", false},
		{"/v1/responses", "/v1/responsesx", false},
		{"/v1/responses", "/v1", false},
		{"/v1/responses", "/V1/responses", false},
		{"/v1/*", "/v1/", true},
		{"/v1/*", "/v1/a/b/c", true},
		{"/v1/*", "/v1", false},
		{"/v1/*", "/v2/a", false},
		{"/v1*", "/v1", true},
		{"/v1*", "/v10/a", true},
		{"/*", "/", true},
		{"*", "/anything/at/all", true},
		{"/", "/", true},
		{"/", "/a", false},
		{"/repos/*/issues", "/repos/a/issues", true},
		{"/repos/*/issues", "/repos/a/b/issues", false},
		{"/repos/*/issues", "/repos//issues", true}, // Canonical refuses such a path
		{"/repos/*/issues", "/repos/issues", false},
		{"/repos/*/*/git-*", "/repos/o/r/git-upload-pack/x", true},
		{"/repos/*/*/git-*", "/repos/o/r/info", false},
		{"/a*b*c", "/aXbYc", true},
		{"/a*b*c", "/abbcXbc", true},
		{"/a*b*c", "/aXcYb", false},
		{"/a*b*c", "/aXb/Yc", false},
		{"/a*b*", "/aXbY/z", true},
		{"/a*b*", "/aX/b", false},
		{"/files/*.json", "/files/x.json", true},
		{"/files/*.json", "/files/.json.json", true},
		{"/files/*.json", "/files/x.jsonx", false},
		{"/ä", "/ä", true},
	} {
		p, err := ParsePattern(c.pattern)
		if err != nil {
			t.Errorf("%s: %v", c.pattern, err)
			continue
		}
		if got := p.Match(c.path); got != c.want {
			t.Errorf("%s matches %s: %t", c.pattern, c.path, got)
		}
	}
	for _, bad := range []string{"", "v1", "/v1/../x", "/v1//x", "/a/./b", "/%41", "/a?b", "/a#b", "/a**", "/a**b", "/a\\b", "/a\x00", "/" + strings.Repeat("a", MaxPattern), "/\xff", "**"} {
		if p, err := ParsePattern(bad); err == nil {
			t.Errorf("pattern %q is %v", bad, p)
		}
	}
}

func TestCanonical(t *testing.T) {
	for escaped, want := range map[string]string{
		"/":                "/",
		"/v1/x":            "/v1/x",
		"/v1/x/":           "/v1/x/",
		"/a%20b":           "/a b",
		"/%c3%A4":          "/ä",
		"/a;v=1/b":         "/a;v=1/b",
		"/...":             "/...",
		"/.well-known/x":   "/.well-known/x",
		"/a..b":            "/a..b",
		"/@scope/pkg":      "/@scope/pkg",
		"/a%40b":           "/a@b",
		"/v1/x:generate":   "/v1/x:generate",
		"/a+b":             "/a+b",
		"/%E2%82%AC/%7Eme": "/€/~me",
	} {
		if got, err := Canonical(escaped); err != nil || got != want {
			t.Errorf("%s is %q, %v", escaped, got, err)
		}
	}
	for _, bad := range []string{
		"", "*", "v1", "/v1/../admin", "/v1/..", "/..", "/./x", "/v1/.", "//v1", "/v1//x", "/v1/x//",
		"/v1/%2e%2e/admin", "/v1/%2E./admin", "/v1/.%2e/admin", "/v1%2fadmin", "/v1%2Fadmin", "/v1%5cadmin",
		"/v1/%252e%252e/admin", "/v1/..;/admin", "/v1/..;x=1/admin", "/v1/;/admin", "/v1\\..\\admin",
		"/v1/%00", "/v1/%0d%0a", "/v1/%0A", "/v1/\x7f", "/v1/%", "/v1/%4", "/v1/%zz", "/v1/%c0%ae%c0%ae/admin", "/v1/%ff",
		"/v1/%3bx", "/v1/%3fx", "/v1/%23x",
	} {
		if got, err := Canonical(bad); !errors.Is(err, ErrAmbiguous) {
			t.Errorf("%s is %q, %v", bad, got, err)
		}
	}
}

func TestMethods(t *testing.T) {
	m, err := ParseMethods([]string{"GET", "PROPFIND", "M-SEARCH"})
	if err != nil {
		t.Fatal(err)
	}
	for method, want := range map[string]bool{"GET": true, "get": false, "POST": false, "PROPFIND": true, "": false} {
		if m.Match(method) != want {
			t.Errorf("%q: %t", method, !want)
		}
	}
	if all, err := ParseMethods(nil); err != nil || !all.Match("DELETE") {
		t.Errorf("no methods are not all: %v", err)
	}
	for _, bad := range []string{"", "get", "GET ", "G\n", "CONNECT", strings.Repeat("A", 33)} {
		if _, err := ParseMethods([]string{bad}); err == nil {
			t.Errorf("%q is a method", bad)
		}
	}
	for method, want := range map[string]bool{"GET": true, "HEAD": true, "OPTIONS": true, "TRACE": true, "POST": false, "get": false, "DELETE": false, "X": false} {
		if Safe(method) != want {
			t.Errorf("%s is safe: %t", method, !want)
		}
	}
}

func TestPaths(t *testing.T) {
	p, err := ParsePaths([]string{"/a", "/b/*"})
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{"/a": true, "/b/c": true, "/c": false} {
		if p.Match(path) != want {
			t.Errorf("%s: %t", path, !want)
		}
	}
	if _, err := ParsePaths([]string{"/a", "b"}); err == nil {
		t.Error("a path without a slash is taken")
	}
	if !Paths(nil).Match("/x") {
		t.Error("no paths are not all")
	}
}

// FuzzCanonical looks for a path that is taken and is not what every way to read it says.
func FuzzCanonical(f *testing.F) {
	for _, s := range []string{"/", "/v1/x", "/v1/%2e%2e/x", "/a;b/..;/c", "/%25", "/%c3%a4"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, escaped string) {
		path, err := Canonical(escaped)
		if err != nil {
			return
		}
		if !strings.HasPrefix(path, "/") || strings.Contains(path, "//") || strings.ContainsAny(path, "\x00\r\n\\") {
			t.Errorf("%q is %q", escaped, path)
		}
		if again, err := decode(path); strings.Contains(path, "%") || err != nil || again != path {
			t.Errorf("%q is %q, and once more %q, %v", escaped, path, again, err)
		}
		for s := range strings.SplitSeq(path, "/") {
			if s == "." || s == ".." || strings.HasPrefix(s, "..;") || strings.HasPrefix(s, ".;") {
				t.Errorf("%q has segment %q", escaped, s)
			}
		}
	})
}

// FuzzPattern compares Match with a slow matcher that tries everything.
func FuzzPattern(f *testing.F) {
	f.Add("/a*b*c", "/aXbYc")
	f.Add("/a*b/*", "/aab/x/y")
	f.Add("/*/b*", "/a/bc/d")
	f.Fuzz(func(t *testing.T, pattern, path string) {
		if len(pattern) > 16 || len(path) > 16 {
			return
		}
		p, err := ParsePattern(pattern)
		if err != nil {
			return
		}
		if path, err = Canonical(path); err != nil {
			return
		}
		if got, want := p.Match(path), slowMatch(p.String(), path); got != want {
			t.Errorf("%q matches %q: %t", p, path, got)
		}
	})
}

func slowMatch(pattern, path string) bool {
	switch {
	case pattern == "":
		return path == ""
	case pattern == "*":
		return true
	case pattern[0] == '*':
		return slowMatch(pattern[1:], path) || path != "" && path[0] != '/' && slowMatch(pattern, path[1:])
	}
	return path != "" && pattern[0] == path[0] && slowMatch(pattern[1:], path[1:])
}

// TestOverrides finds what servers may take for another method or path.
func TestOverrides(t *testing.T) {
	for _, name := range []string{
		"X-HTTP-Method-Override", "X_HTTP_METHOD_OVERRIDE", "x-http_method.override", "X-Original-Method", "X_Method_Override", "X-HTTP-Method",
	} {
		h := http.Header{name: {" delete "}}
		if got := EffectiveMethods("GET", "", h); !slices.Equal(got, []string{"GET", "DELETE"}) {
			t.Errorf("%s: %v", name, got)
		}
	}
	for query, want := range map[string]string{
		"": "GET", "method=DELETE": "GET", "a=_method=DELETE": "GET", "_method=DELETE": "GET DELETE", "a=1&_method=put": "GET PUT", "a=1;_METHOD=put": "GET PUT",
		"%5Fmethod=%64elete": "GET DELETE", "$httpMethod=PATCH": "GET PATCH", "x-http-method-override=PATCH": "GET PATCH", "_method=POST&_method=PUT": "GET POST PUT",
		"_method=%zz": "GET %ZZ", "_method": "GET ",
	} {
		if got := strings.Join(EffectiveMethods("GET", query, nil), " "); got != want {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
	for name, want := range map[string]bool{
		"X-Original-URL": true, "X_Original_URL": true, "X-Original-URI": true, "X-Forwarded-Uri": true, "x_rewrite_url": true, "Destination": true,
		"X-Original": false, "X-Forwarded-Host": false, "Accept": false,
	} {
		if got := OverridesPath(http.Header{name: {"/x"}}); (got != "") != want {
			t.Errorf("%s: %q", name, got)
		}
	}
}
