package solve

import (
	"slices"
	"strings"

	"ramet.dev/ramet/internal/image/debian/archive"
	"ramet.dev/ramet/internal/image/debian/control"
)

// Plan returns the order in which unpacked packages are configured. Each line is a verb
// and dpkg's names of packages: "configure NAME..." or "preinst NAME".
//
// Scripts of ordinary packages rely on the essential ones being configured, and preinst
// scripts on the packages that their own package pre-depends on. dpkg would have seen to
// both, had it unpacked the packages. The preinst scripts of essential packages are left
// out: they prepare a tree that exists already.
func (s *Selection) Plan(order []*archive.Package, hasPreinst func(*archive.Package) bool) string {
	var lines []string
	done := map[*archive.Package]bool{}
	configure := func(roots []*archive.Package) {
		var names []string
		for _, p := range s.closure(roots) {
			if !done[p] {
				done[p] = true
				names = append(names, p.DpkgName())
			}
		}
		if len(names) > 0 {
			lines = append(lines, "configure "+strings.Join(names, " "))
		}
	}
	var base []*archive.Package
	for _, p := range order {
		if p.Essential || slices.Contains(configureFirst, p.Name) {
			base = append(base, p)
		}
	}
	configure(base)
	for _, p := range order {
		if done[p] || !hasPreinst(p) {
			continue
		}
		var pre []*archive.Package
		rels, _ := control.ParseRelations(p.PreDepends) // parsed before, in add
		for _, alts := range rels {
			if q := s.satisfier(alts); q != nil {
				pre = append(pre, q)
			}
		}
		configure(pre)
		if !done[p] { // it can be in a circle with what it pre-depends on
			lines = append(lines, "preinst "+p.DpkgName())
		}
	}
	return strings.Join(lines, "\n") + "\n"
}

// closure returns roots and all selected packages they depend on.
func (s *Selection) closure(roots []*archive.Package) []*archive.Package {
	out := slices.Clone(roots)
	seen := map[*archive.Package]bool{}
	for _, p := range out {
		seen[p] = true
	}
	for i := 0; i < len(out); i++ {
		for _, alts := range s.deps[out[i]].needs {
			if q := s.satisfier(alts); q != nil && !seen[q] {
				seen[q] = true
				out = append(out, q)
			}
		}
	}
	return out
}
