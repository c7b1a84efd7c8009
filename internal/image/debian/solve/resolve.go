package solve

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"ramet.dev/ramet/internal/image/debian/archive"
	"ramet.dev/ramet/internal/image/debian/control"
	"ramet.dev/ramet/internal/image/debian/fault"
)

// Without these first, no maintainer script finds its users and directories.
var configureFirst = []string{"base-passwd", "base-files"}

// mergedMarker satisfies "usrmerge | usr-is-merged" without the package that
// would convert a running system: the tree is made merged from the start.
const mergedMarker = "usr-is-merged"

// netbase has /etc/services and /etc/protocols, by which getservbyname(3) and getprotobyname(3) know names. It has
// 13 KiB and no dependencies; an archive without it builds an image without them.
const netbase = "netbase"

// deps are the parsed relations of one selected package.
type deps struct {
	needs     []control.Alternatives // Pre-Depends, then Depends
	conflicts []control.Alternatives
	breaks    []control.Alternatives
	provides  []control.Alternatives
}

// choice is a dependency that more than one package could satisfy. Choices are
// made only when nothing definite is left to do, so that packages wanted for
// other reasons win.
type choice struct {
	alts control.Alternatives
	by   *archive.Package
}

type Selection struct {
	u         *Universe
	selected  map[string]*archive.Package
	deps      map[*archive.Package]*deps
	wantedBy  map[*archive.Package]*archive.Package // nil: essential or included
	providers map[string][]*archive.Package
	queue     []*archive.Package
	choices   []choice
}

// Resolve selects the essential packages of u, netbase, those included, and all that
// they depend on. Order then lists them. Both depend on the input only, not on
// map order.
func Resolve(u *Universe, include []string) (*Selection, error) {
	s := &Selection{
		u:         u,
		selected:  map[string]*archive.Package{},
		deps:      map[*archive.Package]*deps{},
		wantedBy:  map[*archive.Package]*archive.Package{},
		providers: map[string][]*archive.Package{},
	}
	if err := s.seed(include); err != nil {
		return nil, err
	}
	for len(s.queue) > 0 || len(s.choices) > 0 {
		if err := s.step(); err != nil {
			return nil, err
		}
	}
	if err := s.checkConflicts(); err != nil {
		return nil, err
	}
	// The other hundred thousand packages are not needed any more.
	s.u = &Universe{arch: u.arch, suite: u.suite}
	return s, nil
}

func (s *Selection) seed(include []string) error {
	var base []string
	for name, p := range s.u.byName {
		if p.Essential || name == mergedMarker || name == netbase {
			base = append(base, name)
		}
	}
	sort.Strings(base)
	for _, name := range base {
		if err := s.add(s.u.byName[name], nil); err != nil {
			return err
		}
	}
	for _, name := range include {
		if err := s.need(control.Alternatives{{Name: name}}, nil); err != nil {
			return err
		}
	}
	return nil
}

// step handles one queued package, or else one open choice.
func (s *Selection) step() error {
	if len(s.queue) > 0 {
		p := s.queue[0]
		s.queue = s.queue[1:]
		for _, alts := range s.deps[p].needs {
			if err := s.need(alts, p); err != nil {
				return err
			}
		}
		return nil
	}
	c := s.choices[0]
	s.choices = s.choices[1:]
	if s.satisfier(c.alts) != nil {
		return nil
	}
	p, err := s.choose(c)
	if err != nil {
		return err
	}
	return s.add(p, c.by)
}

// need selects the only package that can satisfy alts, or notes the choice.
func (s *Selection) need(alts control.Alternatives, by *archive.Package) error {
	if s.satisfier(alts) != nil {
		return nil
	}
	if len(alts) == 1 {
		if p := s.u.byName[alts[0].Name]; p != nil && s.matches(p, alts[0]) {
			return s.add(p, by)
		}
	}
	s.choices = append(s.choices, choice{alts, by})
	return nil
}

func (s *Selection) add(p, by *archive.Package) error {
	if s.selected[p.Name] != nil {
		return nil
	}
	d := &deps{}
	for _, f := range []struct {
		text string
		dst  *[]control.Alternatives
	}{{p.PreDepends, &d.needs}, {p.Depends, &d.needs}, {p.Conflicts, &d.conflicts}, {p.Breaks, &d.breaks}, {p.Provides, &d.provides}} {
		rels, err := control.ParseRelations(f.text)
		if err != nil {
			return fmt.Errorf("read relations of %s: %w", p.Name, err)
		}
		*f.dst = append(*f.dst, rels...)
	}
	s.selected[p.Name], s.deps[p], s.wantedBy[p] = p, d, by
	for _, prov := range d.provides {
		s.providers[prov[0].Name] = append(s.providers[prov[0].Name], p)
	}
	s.queue = append(s.queue, p)
	return nil
}

// matches reports whether the real package p satisfies rel.
func (s *Selection) matches(p *archive.Package, rel control.Relation) bool {
	return p.Name == rel.Name && rel.ArchOK(s.u.arch) && rel.VersionOK(p.Version)
}

// provided reports whether p satisfies rel by its Provides. A version bound
// needs a versioned Provides.
func (s *Selection) provided(p *archive.Package, rel control.Relation) bool {
	provides, err := control.ParseRelations(p.Provides)
	if err != nil || !rel.ArchOK(s.u.arch) {
		return false
	}
	for _, prov := range provides {
		if v := prov[0]; v.Name == rel.Name && (rel.Op == "" || v.Version != "" && rel.VersionOK(v.Version)) {
			return true
		}
	}
	return false
}

// satisfier returns the selected package that satisfies alts, nil if none.
func (s *Selection) satisfier(alts control.Alternatives) *archive.Package {
	for _, rel := range alts {
		if p := s.selected[rel.Name]; p != nil && s.matches(p, rel) {
			return p
		}
		for _, p := range s.providers[rel.Name] {
			if s.provided(p, rel) {
				return p
			}
		}
	}
	return nil
}

// choose returns the first candidate that conflicts with nothing selected, or
// the first of all, whose conflict is then reported.
func (s *Selection) choose(c choice) (*archive.Package, error) {
	var first *archive.Package
	for _, rel := range c.alts {
		var cands []*archive.Package
		if p := s.u.byName[rel.Name]; p != nil && s.matches(p, rel) {
			cands = append(cands, p)
		}
		for _, p := range s.u.providers[rel.Name] {
			if s.provided(p, rel) {
				cands = append(cands, p)
			}
		}
		for _, p := range cands {
			if have := s.selected[p.Name]; have != nil && have != p {
				continue
			}
			if !s.excluded(p) {
				return p, nil
			}
			if first == nil {
				first = p
			}
		}
	}
	if first != nil {
		return first, nil
	}
	return nil, s.missing(c)
}

// excluded reports whether p and a selected package exclude each other.
func (s *Selection) excluded(p *archive.Package) bool {
	for _, field := range []string{p.Conflicts, p.Breaks} {
		rels, err := control.ParseRelations(field)
		if err != nil {
			return false // add reports it
		}
		for _, alts := range rels {
			if s.hit(p, alts[0]) != nil {
				return true
			}
		}
	}
	for _, q := range s.selected {
		for _, alts := range slices.Concat(s.deps[q].conflicts, s.deps[q].breaks) {
			if q != p && (s.matches(p, alts[0]) || s.provided(p, alts[0])) {
				return true
			}
		}
	}
	return false
}

// hit returns the selected package, other than p, that rel names.
func (s *Selection) hit(p *archive.Package, rel control.Relation) *archive.Package {
	if q := s.selected[rel.Name]; q != nil && q != p && s.matches(q, rel) {
		return q
	}
	for _, q := range s.providers[rel.Name] {
		if q != p && s.provided(q, rel) {
			return q
		}
	}
	return nil
}

func (s *Selection) checkConflicts() error {
	for _, name := range s.names() {
		p := s.selected[name]
		for _, f := range []struct {
			field string
			rels  []control.Alternatives
		}{{"Conflicts", s.deps[p].conflicts}, {"Breaks", s.deps[p].breaks}} {
			for _, alts := range f.rels {
				if q := s.hit(p, alts[0]); q != nil {
					return &fault.ConflictError{Package: p.Name, With: q.Name, Field: f.field, Relation: alts.String()}
				}
			}
		}
	}
	return nil
}

// missing explains why no candidate of c exists.
func (s *Selection) missing(c choice) error {
	e := &fault.DependencyError{Wanted: c.alts.String()}
	for p := c.by; p != nil && len(e.By) < 20; p = s.wantedBy[p] {
		e.By = append(e.By, p.Name)
	}
	var why []string
	for _, rel := range c.alts {
		switch p := s.u.byName[rel.Name]; {
		case p == nil && len(s.u.providers[rel.Name]) == 0:
			why = append(why, fmt.Sprintf("suite %s has no package %s for %s", s.u.suite, rel.Name, s.u.arch))
		case p == nil:
			why = append(why, fmt.Sprintf("%s is only provided by packages that do not match", rel.Name))
		default:
			why = append(why, fmt.Sprintf("suite %s has only %s %s", s.u.suite, rel.Name, p.Version))
		}
	}
	e.Reason = strings.Join(why, "; ")
	return e
}

func (s *Selection) names() []string {
	out := make([]string, 0, len(s.selected))
	for name := range s.selected {
		out = append(out, name)
	}
	sort.Strings(out)
	return out
}

// Order lists the selected packages depth first, so that each follows what it
// depends on except where dependencies form a circle.
func (s *Selection) Order() []*archive.Package {
	var out []*archive.Package
	seen := map[*archive.Package]bool{}
	var visit func(p *archive.Package)
	visit = func(p *archive.Package) {
		if p == nil || seen[p] {
			return
		}
		seen[p] = true
		for _, alts := range s.deps[p].needs {
			visit(s.satisfier(alts))
		}
		out = append(out, p)
	}
	for _, name := range configureFirst {
		visit(s.selected[name])
	}
	for _, name := range s.names() {
		visit(s.selected[name])
	}
	return out
}
