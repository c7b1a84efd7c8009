package policy

import (
	"strings"

	"golang.org/x/net/idna"
	"ramet.dev/ramet/api"
)

// CanonicalName returns a name as the package compares it: ASCII by IDNA, lower-case, without the
// last dot. It returns false for what is no name; an IP address is none.
func CanonicalName(s string) (name string, ok bool) {
	name = strings.TrimSuffix(s, ".")
	if !isASCII(name) {
		encoded, err := idna.Lookup.ToASCII(name)
		if err != nil {
			return "", false
		}
		name = encoded
	}
	name = strings.ToLower(name)
	if len(name) == 0 || len(name) > 253 {
		return "", false
	}
	label := 0
	for i := range len(name) {
		switch c := name[i]; {
		case c == '.':
			if label == 0 {
				return "", false
			}
			label = 0
			continue
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '-', c == '_':
		default:
			return "", false
		}
		if label++; label > 63 {
			return "", false
		}
	}
	last := name[strings.LastIndexByte(name, '.')+1:]
	numeric := strings.Trim(last, "0123456789") == "" // as in 192.0.2.1
	return name, label > 0 && !numeric
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}

// parent returns the name one label up, "" for a name of one label. All names are below "".
func parent(name string) string {
	_, up, _ := strings.Cut(name, ".")
	return up
}

// below reports whether name is below the domain. A domain is not below itself.
func below(name, domain string) bool {
	if domain == "" {
		return true
	}
	rest, ok := strings.CutSuffix(name, domain)
	return ok && len(rest) > 1 && rest[len(rest)-1] == '.'
}

// forbiddenNames are names of services that are never reached by name: addresses of such services
// need an address rule.
var forbiddenNames = map[string]*rule{
	"metadata.google.internal":   {text: "never by name: cloud metadata"},
	"metadata.goog":              {text: "never by name: cloud metadata"},
	"instance-data":              {text: "never by name: cloud metadata"},
	"instance-data.ec2.internal": {text: "never by name: cloud metadata"},
	"localhost":                  {text: "never by name: loopback"},
}

// forbiddenName returns the rule that forbids a name whatever a document says, or nil.
func forbiddenName(name string) *rule {
	if below(name, "localhost") {
		name = "localhost"
	}
	return forbiddenNames[name]
}

// canonicalPattern returns the kind and the name of an address of a rule that is no range.
func canonicalPattern(field, s string) (kind kind, name string, err error) {
	if s == "*" {
		return wildcard, "", nil
	}
	rest, isWildcard := strings.CutPrefix(s, "*.")
	name, ok := CanonicalName(rest)
	if !ok {
		return 0, "", api.Invalid(field, "%.300q is not a name that can be looked up", s)
	}
	if isWildcard {
		return wildcard, name, nil
	}
	return single, name, nil
}
