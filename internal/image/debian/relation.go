package debian

import "strings"

// relation is one alternative of a dependency: a package name, an optional
// architecture qualifier and an optional version bound.
type relation struct {
	name, qual  string
	op, version string
}

// alternatives is "a | b | c"; one of them is enough.
type alternatives []relation

func (r relation) String() string {
	s := r.name
	if r.qual != "" {
		s += ":" + r.qual
	}
	if r.op != "" {
		s += " (" + r.op + " " + r.version + ")"
	}
	return s
}

func (a alternatives) String() string {
	parts := make([]string, len(a))
	for i, r := range a {
		parts[i] = r.String()
	}
	return strings.Join(parts, " | ")
}

// parseRelations reads a relationship field such as Depends.
func parseRelations(field string) ([]alternatives, error) {
	var out []alternatives
	for _, part := range strings.Split(field, ",") {
		if strings.TrimSpace(part) == "" {
			continue // a trailing comma is common and legal
		}
		var alts alternatives
		for _, one := range strings.Split(part, "|") {
			rel, err := parseRelation(one)
			if err != nil {
				return nil, err
			}
			alts = append(alts, rel)
		}
		out = append(out, alts)
	}
	return out, nil
}

func parseRelation(s string) (relation, error) {
	s = strings.TrimSpace(s)
	var rel relation
	name, rest := s, ""
	if i := strings.IndexAny(s, " (\t\n"); i >= 0 {
		name, rest = s[:i], strings.TrimSpace(s[i:])
	}
	rel.name, rel.qual, _ = strings.Cut(name, ":")
	if !validPackageName(rel.name) || strings.HasSuffix(name, ":") {
		return rel, malformed("package relation", "bad package name in %.80q", s)
	}
	if rest == "" {
		return rel, nil
	}
	if !strings.HasPrefix(rest, "(") || !strings.HasSuffix(rest, ")") {
		return rel, malformed("package relation", "cannot read %.80q", s)
	}
	rest = strings.TrimSpace(rest[1 : len(rest)-1])
	i := 0
	for i < len(rest) && strings.IndexByte("<>=", rest[i]) >= 0 {
		i++
	}
	rel.op, rel.version = rest[:i], strings.TrimSpace(rest[i:])
	switch rel.op {
	case "<<", "<=", "=", ">=", ">>":
	case "<": // the two oldest operators mean "or equal"
		rel.op = "<="
	case ">":
		rel.op = ">="
	default:
		return rel, malformed("package relation", "unknown operator in %.80q", s)
	}
	if !validVersion(rel.version) {
		return rel, malformed("package relation", "bad version in %.80q", s)
	}
	return rel, nil
}

// versionOK reports whether version have is within the bound of r.
func (r relation) versionOK(have string) bool {
	if r.op == "" {
		return true
	}
	c := CompareVersions(have, r.version)
	switch r.op {
	case "<<":
		return c < 0
	case "<=":
		return c <= 0
	case "=":
		return c == 0
	case ">=":
		return c >= 0
	}
	return c > 0
}

// archOK reports whether the qualifier of r can be met by packages of arch.
func (r relation) archOK(arch string) bool {
	return r.qual == "" || r.qual == "any" || r.qual == "native" || r.qual == arch
}
