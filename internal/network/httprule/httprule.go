package httprule

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	// MaxPattern bounds the length of a pattern, and of a method.
	MaxPattern = 1024
	maxMethod  = 32
)

// Pattern is a pattern of paths. A `*` at its end is anything, also with slashes; a `*`
// elsewhere is anything within a segment. All other characters are themselves: a pattern is
// written as the decoded path.
type Pattern struct {
	text string
	// segments are those of the pattern, each cut at its stars.
	segments [][]string
	// open says that the last star is at the end.
	open bool
}

// ParsePattern reads a pattern.
func ParsePattern(text string) (Pattern, error) {
	switch {
	case text == "*":
		text = "/*"
	case !strings.HasPrefix(text, "/"):
		return Pattern{}, fmt.Errorf("path %q does not begin with a slash", text)
	case len(text) > MaxPattern:
		return Pattern{}, fmt.Errorf("path has %d bytes: at most %d", len(text), MaxPattern)
	}
	if strings.ContainsAny(text, "%?#") {
		return Pattern{}, fmt.Errorf("path %q has one of %%, ? and #: patterns are decoded paths without a query", text)
	}
	body := strings.TrimSuffix(text, "*")
	if strings.Contains(body, "**") || strings.HasSuffix(body, "*") {
		return Pattern{}, fmt.Errorf("path %q has two stars in a row: one at the end is anything", text)
	}
	if err := checkDecoded(strings.ReplaceAll(body, "*", "x")); err != nil {
		return Pattern{}, fmt.Errorf("path %q matches nothing: %w", text, err)
	}
	p := Pattern{text: text, open: body != text}
	for s := range strings.SplitSeq(body[1:], "/") {
		p.segments = append(p.segments, strings.Split(s, "*"))
	}
	return p, nil
}

// String returns the text of a pattern.
func (p Pattern) String() string { return p.text }

// Match reports whether a path of Canonical fits. It takes time in proportion to the
// lengths of both.
func (p Pattern) Match(path string) bool {
	rest := path[1:]
	for i, parts := range p.segments {
		segment, after, more := strings.Cut(rest, "/")
		last := i == len(p.segments)-1
		switch {
		case last && p.open:
			return matchSegment(segment, parts, true)
		case !matchSegment(segment, parts, false) || more == last:
			return false
		}
		rest = after
	}
	return true
}

// matchSegment matches a segment with parts between which anything may stand, and behind
// them too if open. A part is taken where it is found first, which leaves the most for the
// others.
func matchSegment(s string, parts []string, open bool) bool {
	s, ok := strings.CutPrefix(s, parts[0])
	if !ok {
		return false
	}
	parts = parts[1:]
	for i, part := range parts {
		if i == len(parts)-1 && !open {
			return strings.HasSuffix(s, part)
		}
		at := strings.Index(s, part)
		if at < 0 {
			return false
		}
		s = s[at+len(part):]
	}
	return open || s == ""
}

// ErrAmbiguous is wrapped by the errors of Canonical.
var ErrAmbiguous = errors.New("the path can be read in more than one way")

// Canonical decodes the path of a request target, as it was received and without its query.
func Canonical(escaped string) (string, error) {
	if !strings.HasPrefix(escaped, "/") {
		return "", fmt.Errorf("%w: it does not begin with a slash", ErrAmbiguous)
	}
	path := escaped
	if strings.Contains(escaped, "%") {
		var err error
		if path, err = decode(escaped); err != nil {
			return "", err
		}
	}
	if err := checkDecoded(path); err != nil {
		return "", fmt.Errorf("%w: %w", ErrAmbiguous, err)
	}
	return path, nil
}

// decode resolves percent signs once. What decodes to a character with a meaning in paths
// is refused.
func decode(escaped string) (string, error) {
	var b strings.Builder
	b.Grow(len(escaped))
	for i := 0; i < len(escaped); i++ {
		if escaped[i] != '%' {
			b.WriteByte(escaped[i])
			continue
		}
		if i+2 >= len(escaped) {
			return "", fmt.Errorf("%w: a percent sign without two digits", ErrAmbiguous)
		}
		hi, lo := hexValue(escaped[i+1]), hexValue(escaped[i+2])
		if hi < 0 || lo < 0 {
			return "", fmt.Errorf("%w: a percent sign without two digits", ErrAmbiguous)
		}
		c := byte(hi<<4 | lo)
		if strings.IndexByte("./\\%;?#", c) >= 0 {
			return "", fmt.Errorf("%w: %%%02X stands for %q", ErrAmbiguous, c, c)
		}
		b.WriteByte(c)
		i += 2
	}
	return b.String(), nil
}

func hexValue(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

// checkDecoded refuses decoded paths that servers clean in different ways.
func checkDecoded(path string) error {
	if !utf8.ValidString(path) {
		return errors.New("it is not UTF-8")
	}
	for _, c := range path {
		if c < ' ' || c == 0x7f || c == '\\' {
			return fmt.Errorf("it has the character %q", c)
		}
	}
	segments := strings.Split(path[1:], "/")
	for i, s := range segments {
		s, _, _ = strings.Cut(s, ";") // parameters of a segment
		switch {
		case s == "" && i < len(segments)-1:
			return errors.New("it has an empty segment")
		case s == "." || s == "..":
			return errors.New("it has a segment of dots")
		}
	}
	return nil
}

// Methods is a set of methods, nil for all of them.
type Methods []string

// ParseMethods reads a list of methods; none is all.
func ParseMethods(list []string) (Methods, error) {
	for _, m := range list {
		if m == "" || len(m) > maxMethod || strings.Trim(m, "ABCDEFGHIJKLMNOPQRSTUVWXYZ-_") != "" {
			return nil, fmt.Errorf("method %q: a method has 1 to %d capital letters", m, maxMethod)
		}
		if m == http.MethodConnect {
			return nil, errors.New("method CONNECT makes a tunnel and cannot be allowed")
		}
	}
	return Methods(slices.Clone(list)), nil
}

// Match reports whether a method is in the set.
func (m Methods) Match(method string) bool { return len(m) == 0 || slices.Contains(m, method) }

// Paths is a set of paths, nil for all of them.
type Paths []Pattern

// ParsePaths reads a list of patterns; none is all.
func ParsePaths(list []string) (Paths, error) {
	var paths Paths
	for _, text := range list {
		p, err := ParsePattern(text)
		if err != nil {
			return nil, err
		}
		paths = append(paths, p)
	}
	return paths, nil
}

// Match reports whether a path of Canonical is in the set.
func (p Paths) Match(path string) bool {
	return len(p) == 0 || slices.ContainsFunc(p, func(p Pattern) bool { return p.Match(path) })
}

// Safe reports whether a method only reads, as RFC 9110 says in section 9.2.1.
func Safe(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return false
}

// Names of headers, and of parameters of a query, by which some servers take another method or path than those of the
// request. They are compared as gateways like CGI and WSGI make variables of them, see folded.
var (
	methodOverrides = []string{"x-http-method-override", "x-http-method", "x-method-override", "x-original-method", "x-forwarded-method", "x-rewrite-method"}
	methodQueries   = []string{"-method", "-http-method", "-httpmethod", "http-method", "httpmethod"} // _method, $httpMethod
	pathOverrides   = []string{
		"x-original-url", "x-original-uri", "x-original-path", "x-rewrite-url", "x-rewrite-uri", "x-rewrite-path", "x-override-url", "x-forwarded-uri", "x-forwarded-url",
		"x-forwarded-path", "x-forwarded-prefix", "x-envoy-original-path", "x-request-uri", "request-uri", "x-script-name", "script-name", "path-info", "x-path-info",
		"destination", // of MOVE and COPY
	}
)

// folded returns a name in lower case, with a dash for all that is no letter or digit: servers behind CGI, WSGI or PHP
// see one variable for X-A, X_A and, some of them, X.A.
func folded(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case 'A' <= r && r <= 'Z':
			return r + 'a' - 'A'
		case 'a' <= r && r <= 'z', '0' <= r && r <= '9':
			return r
		}
		return '-'
	}, name)
}

// EffectiveMethods returns all methods that a server may take a request for, with the query that it was sent with.
func EffectiveMethods(method, query string, h http.Header) []string {
	methods := []string{method}
	add := func(v string) { methods = append(methods, strings.ToUpper(strings.TrimSpace(v))) }
	for name, values := range h {
		if slices.Contains(methodOverrides, folded(name)) {
			for _, v := range values {
				add(v)
			}
		}
	}
	// Servers end parameters at & and, the old ones, at ; as well.
	for part := range strings.FieldsFuncSeq(query, func(r rune) bool { return r == '&' || r == ';' }) {
		name, value, _ := strings.Cut(part, "=")
		if name = folded(unescaped(name)); slices.Contains(methodQueries, name) || slices.Contains(methodOverrides, name) {
			add(unescaped(value))
		}
	}
	return methods
}

// unescaped returns a part of a query as a server reads it, or as it is if it cannot be read.
func unescaped(text string) string {
	if plain, err := url.QueryUnescape(text); err == nil {
		return plain
	}
	return text
}

// OverridesPath returns the name of a header by which a server may take a request for one
// of another path, or "".
func OverridesPath(h http.Header) string {
	for name, values := range h {
		if len(values) > 0 && slices.Contains(pathOverrides, folded(name)) {
			return name
		}
	}
	return ""
}
