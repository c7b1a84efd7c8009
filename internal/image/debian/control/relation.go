package control

import (
	"strings"

	"ramet.dev/ramet/internal/image/debian/fault"
)

// Relation is one alternative of a dependency: a package name, an optional
// architecture qualifier and an optional version bound.
type Relation struct {
	Name, Qual  string
	Op, Version string
}

// Alternatives is "a | b | c"; one of them is enough.
type Alternatives []Relation

func (r Relation) String() string {
	s := r.Name
	if r.Qual != "" {
		s += ":" + r.Qual
	}
	if r.Op != "" {
		s += " (" + r.Op + " " + r.Version + ")"
	}
	return s
}

func (a Alternatives) String() string {
	parts := make([]string, len(a))
	for i, r := range a {
		parts[i] = r.String()
	}
	return strings.Join(parts, " | ")
}

// ParseRelations reads a relationship field such as Depends.
func ParseRelations(field string) ([]Alternatives, error) {
	var out []Alternatives
	for _, part := range strings.Split(field, ",") {
		if strings.TrimSpace(part) == "" {
			continue // a trailing comma is common and legal
		}
		var alts Alternatives
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

func parseRelation(s string) (Relation, error) {
	s = strings.TrimSpace(s)
	var rel Relation
	name, rest := s, ""
	if i := strings.IndexAny(s, " (\t\n"); i >= 0 {
		name, rest = s[:i], strings.TrimSpace(s[i:])
	}
	rel.Name, rel.Qual, _ = strings.Cut(name, ":")
	if !ValidName(rel.Name) || strings.HasSuffix(name, ":") {
		return rel, fault.Malformed("package relation", "bad package name in %.80q", s)
	}
	if rest == "" {
		return rel, nil
	}
	if !strings.HasPrefix(rest, "(") || !strings.HasSuffix(rest, ")") {
		return rel, fault.Malformed("package relation", "cannot read %.80q", s)
	}
	rest = strings.TrimSpace(rest[1 : len(rest)-1])
	i := 0
	for i < len(rest) && strings.IndexByte("<>=", rest[i]) >= 0 {
		i++
	}
	rel.Op, rel.Version = rest[:i], strings.TrimSpace(rest[i:])
	switch rel.Op {
	case "<<", "<=", "=", ">=", ">>":
	case "<": // the two oldest operators mean "or equal"
		rel.Op = "<="
	case ">":
		rel.Op = ">="
	default:
		return rel, fault.Malformed("package relation", "unknown operator in %.80q", s)
	}
	if !ValidVersion(rel.Version) {
		return rel, fault.Malformed("package relation", "bad version in %.80q", s)
	}
	return rel, nil
}

// VersionOK reports whether version have is within the bound of r.
func (r Relation) VersionOK(have string) bool {
	if r.Op == "" {
		return true
	}
	c := CompareVersions(have, r.Version)
	switch r.Op {
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

// ArchOK reports whether the qualifier of r can be met by packages of arch.
func (r Relation) ArchOK(arch string) bool {
	return r.Qual == "" || r.Qual == "any" || r.Qual == "native" || r.Qual == arch
}
