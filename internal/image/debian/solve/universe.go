package solve

import (
	"fmt"
	"sort"

	"ramet.dev/ramet/internal/image/debian/archive"
	"ramet.dev/ramet/internal/image/debian/control"
	"ramet.dev/ramet/internal/image/debian/fault"
)

// Universe is everything that could be installed: for each name the newest
// version, and for each provided name its providers.
type Universe struct {
	arch      string
	suite     string
	byName    map[string]*archive.Package
	providers map[string][]*archive.Package
}

// NewUniverse makes a universe of packages. Of those with the same name it takes the newest.
func NewUniverse(arch, suite string, pkgs []*archive.Package) (*Universe, error) {
	u := &Universe{arch: arch, suite: suite, byName: map[string]*archive.Package{}, providers: map[string][]*archive.Package{}}
	for _, p := range pkgs {
		if have := u.byName[p.Name]; have == nil || control.CompareVersions(p.Version, have.Version) > 0 {
			u.byName[p.Name] = p
		}
	}
	if len(u.byName) == 0 {
		return nil, fault.Malformed("package index", "suite %q has no packages for architecture %s", suite, arch)
	}
	return u, u.indexProviders()
}

// indexProviders fills in u.providers, best first.
func (u *Universe) indexProviders() error {
	for _, p := range u.byName {
		names, err := control.ParseRelations(p.Provides)
		if err != nil {
			return fmt.Errorf("read Provides of %s: %w", p.Name, err)
		}
		for _, n := range names {
			u.providers[n[0].Name] = append(u.providers[n[0].Name], p)
		}
	}
	for _, list := range u.providers {
		sortByPriority(list)
	}
	return nil
}

func sortByPriority(list []*archive.Package) {
	sort.Slice(list, func(i, j int) bool {
		if list[i].Priority != list[j].Priority {
			return list[i].Priority < list[j].Priority
		}
		return list[i].Name < list[j].Name
	})
}
