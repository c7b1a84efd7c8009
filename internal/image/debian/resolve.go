package debian

import (
	"fmt"
	"slices"
	"sort"
	"strings"
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
	needs     []alternatives // Pre-Depends, then Depends
	conflicts []alternatives
	breaks    []alternatives
	provides  []alternatives
}

// choice is a dependency that more than one package could satisfy. Choices are
// made only when nothing definite is left to do, so that packages wanted for
// other reasons win.
type choice struct {
	alts alternatives
	by   *pkg
}

type resolver struct {
	u         *universe
	selected  map[string]*pkg
	deps      map[*pkg]*deps
	wantedBy  map[*pkg]*pkg // nil: essential or included
	providers map[string][]*pkg
	queue     []*pkg
	choices   []choice
}

// resolve selects the essential packages of u, netbase, those included, and all that
// they depend on. order then lists them. Both depend on the input only, not on
// map order.
func resolve(u *universe, include []string) (*resolver, error) {
	r := &resolver{
		u:         u,
		selected:  map[string]*pkg{},
		deps:      map[*pkg]*deps{},
		wantedBy:  map[*pkg]*pkg{},
		providers: map[string][]*pkg{},
	}
	if err := r.seed(include); err != nil {
		return nil, err
	}
	for len(r.queue) > 0 || len(r.choices) > 0 {
		if err := r.step(); err != nil {
			return nil, err
		}
	}
	if err := r.checkConflicts(); err != nil {
		return nil, err
	}
	// The other hundred thousand packages are not needed any more.
	r.u = &universe{arch: u.arch, suite: u.suite}
	return r, nil
}

func (r *resolver) seed(include []string) error {
	var base []string
	for name, p := range r.u.byName {
		if p.essential || name == mergedMarker || name == netbase {
			base = append(base, name)
		}
	}
	sort.Strings(base)
	for _, name := range base {
		if err := r.add(r.u.byName[name], nil); err != nil {
			return err
		}
	}
	for _, name := range include {
		if err := r.need(alternatives{{name: name}}, nil); err != nil {
			return err
		}
	}
	return nil
}

// step handles one queued package, or else one open choice.
func (r *resolver) step() error {
	if len(r.queue) > 0 {
		p := r.queue[0]
		r.queue = r.queue[1:]
		for _, alts := range r.deps[p].needs {
			if err := r.need(alts, p); err != nil {
				return err
			}
		}
		return nil
	}
	c := r.choices[0]
	r.choices = r.choices[1:]
	if r.satisfier(c.alts) != nil {
		return nil
	}
	p, err := r.choose(c)
	if err != nil {
		return err
	}
	return r.add(p, c.by)
}

// need selects the only package that can satisfy alts, or notes the choice.
func (r *resolver) need(alts alternatives, by *pkg) error {
	if r.satisfier(alts) != nil {
		return nil
	}
	if len(alts) == 1 {
		if p := r.u.byName[alts[0].name]; p != nil && r.matches(p, alts[0]) {
			return r.add(p, by)
		}
	}
	r.choices = append(r.choices, choice{alts, by})
	return nil
}

func (r *resolver) add(p, by *pkg) error {
	if r.selected[p.name] != nil {
		return nil
	}
	d := &deps{}
	for _, f := range []struct {
		text string
		dst  *[]alternatives
	}{{p.preDepends, &d.needs}, {p.depends, &d.needs}, {p.conflicts, &d.conflicts}, {p.breaks, &d.breaks}, {p.provides, &d.provides}} {
		rels, err := parseRelations(f.text)
		if err != nil {
			return fmt.Errorf("read relations of %s: %w", p.name, err)
		}
		*f.dst = append(*f.dst, rels...)
	}
	r.selected[p.name], r.deps[p], r.wantedBy[p] = p, d, by
	for _, prov := range d.provides {
		r.providers[prov[0].name] = append(r.providers[prov[0].name], p)
	}
	r.queue = append(r.queue, p)
	return nil
}

// matches reports whether the real package p satisfies rel.
func (r *resolver) matches(p *pkg, rel relation) bool {
	return p.name == rel.name && rel.archOK(r.u.arch) && rel.versionOK(p.version)
}

// provided reports whether p satisfies rel by its Provides. A version bound
// needs a versioned Provides.
func (r *resolver) provided(p *pkg, rel relation) bool {
	provides, err := parseRelations(p.provides)
	if err != nil || !rel.archOK(r.u.arch) {
		return false
	}
	for _, prov := range provides {
		if v := prov[0]; v.name == rel.name && (rel.op == "" || v.version != "" && rel.versionOK(v.version)) {
			return true
		}
	}
	return false
}

// satisfier returns the selected package that satisfies alts, nil if none.
func (r *resolver) satisfier(alts alternatives) *pkg {
	for _, rel := range alts {
		if p := r.selected[rel.name]; p != nil && r.matches(p, rel) {
			return p
		}
		for _, p := range r.providers[rel.name] {
			if r.provided(p, rel) {
				return p
			}
		}
	}
	return nil
}

// choose returns the first candidate that conflicts with nothing selected, or
// the first of all, whose conflict is then reported.
func (r *resolver) choose(c choice) (*pkg, error) {
	var first *pkg
	for _, rel := range c.alts {
		var cands []*pkg
		if p := r.u.byName[rel.name]; p != nil && r.matches(p, rel) {
			cands = append(cands, p)
		}
		for _, p := range r.u.providers[rel.name] {
			if r.provided(p, rel) {
				cands = append(cands, p)
			}
		}
		for _, p := range cands {
			if have := r.selected[p.name]; have != nil && have != p {
				continue
			}
			if !r.excluded(p) {
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
	return nil, r.missing(c)
}

// excluded reports whether p and a selected package exclude each other.
func (r *resolver) excluded(p *pkg) bool {
	for _, field := range []string{p.conflicts, p.breaks} {
		rels, err := parseRelations(field)
		if err != nil {
			return false // add reports it
		}
		for _, alts := range rels {
			if r.hit(p, alts[0]) != nil {
				return true
			}
		}
	}
	for _, q := range r.selected {
		for _, alts := range slices.Concat(r.deps[q].conflicts, r.deps[q].breaks) {
			if q != p && (r.matches(p, alts[0]) || r.provided(p, alts[0])) {
				return true
			}
		}
	}
	return false
}

// hit returns the selected package, other than p, that rel names.
func (r *resolver) hit(p *pkg, rel relation) *pkg {
	if q := r.selected[rel.name]; q != nil && q != p && r.matches(q, rel) {
		return q
	}
	for _, q := range r.providers[rel.name] {
		if q != p && r.provided(q, rel) {
			return q
		}
	}
	return nil
}

func (r *resolver) checkConflicts() error {
	for _, name := range r.names() {
		p := r.selected[name]
		for _, f := range []struct {
			field string
			rels  []alternatives
		}{{"Conflicts", r.deps[p].conflicts}, {"Breaks", r.deps[p].breaks}} {
			for _, alts := range f.rels {
				if q := r.hit(p, alts[0]); q != nil {
					return &ConflictError{Package: p.name, With: q.name, Field: f.field, Relation: alts.String()}
				}
			}
		}
	}
	return nil
}

// missing explains why no candidate of c exists.
func (r *resolver) missing(c choice) error {
	e := &DependencyError{Wanted: c.alts.String()}
	for p := c.by; p != nil && len(e.By) < 20; p = r.wantedBy[p] {
		e.By = append(e.By, p.name)
	}
	var why []string
	for _, rel := range c.alts {
		switch p := r.u.byName[rel.name]; {
		case p == nil && len(r.u.providers[rel.name]) == 0:
			why = append(why, fmt.Sprintf("suite %s has no package %s for %s", r.u.suite, rel.name, r.u.arch))
		case p == nil:
			why = append(why, fmt.Sprintf("%s is only provided by packages that do not match", rel.name))
		default:
			why = append(why, fmt.Sprintf("suite %s has only %s %s", r.u.suite, rel.name, p.version))
		}
	}
	e.Reason = strings.Join(why, "; ")
	return e
}

func (r *resolver) names() []string {
	out := make([]string, 0, len(r.selected))
	for name := range r.selected {
		out = append(out, name)
	}
	sort.Strings(out)
	return out
}

// order lists the selected packages depth first, so that each follows what it
// depends on except where dependencies form a circle.
func (r *resolver) order() []*pkg {
	var out []*pkg
	seen := map[*pkg]bool{}
	var visit func(p *pkg)
	visit = func(p *pkg) {
		if p == nil || seen[p] {
			return
		}
		seen[p] = true
		for _, alts := range r.deps[p].needs {
			visit(r.satisfier(alts))
		}
		out = append(out, p)
	}
	for _, name := range configureFirst {
		visit(r.selected[name])
	}
	for _, name := range r.names() {
		visit(r.selected[name])
	}
	return out
}

func sortByPriority(list []*pkg) {
	sort.Slice(list, func(i, j int) bool {
		if list[i].priority != list[j].priority {
			return list[i].priority < list[j].priority
		}
		return list[i].name < list[j].name
	})
}
