package profiles

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/network/document"
	"ramet.dev/ramet/internal/network/policy"
)

// The profiles that are built in.
const (
	None = "none" // nothing is reached
	Open = "open" // all public addresses are reached
)

// maxFiles bounds how many profiles one Spec takes.
const maxFiles = 64

// Derived makes a document when it is needed.
type Derived func(ctx context.Context) (*api.NetworkPolicy, error)

// Set is the profiles of one daemon.
type Set struct {
	dir     fs.FS // of files NAME.yaml; nil if there is no directory
	derived map[string]Derived
}

// New returns the profiles of the files in dir, which may be nil, and those that are derived.
func New(dir fs.FS, derived map[string]Derived) *Set { return &Set{dir: dir, derived: derived} }

// Names returns the names of all profiles, sorted. Files whose names are none of profiles are left
// out.
func (s *Set) Names() ([]string, error) {
	names := []string{None, Open}
	for name := range s.derived {
		names = append(names, name)
	}
	if s.dir != nil {
		entries, err := fs.ReadDir(s.dir, ".")
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("read directory of network profiles: %w", err)
		}
		for _, e := range entries {
			name, ok := strings.CutSuffix(e.Name(), ".yaml")
			if ok && !e.IsDir() && api.ValidProfileName("profile", name) == nil {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// All returns all profiles. One whose document cannot be made says why.
func (s *Set) All(ctx context.Context) ([]api.NetworkProfile, error) {
	names, err := s.Names()
	if err != nil {
		return nil, err
	}
	out := make([]api.NetworkProfile, len(names))
	for i, name := range names {
		out[i] = api.NetworkProfile{Name: name, Source: s.source(name)}
		if out[i].Policy, err = s.Profile(ctx, name); err != nil {
			out[i].Error = err.Error()
		}
	}
	return out, nil
}

func (s *Set) source(name string) string {
	switch {
	case name == None || name == Open:
		return "built-in"
	case s.derived[name] != nil:
		return "derived"
	}
	return "file"
}

// Profile returns the document of a name. A name of a file must not be that of a profile that is
// built in or derived: it would never be read.
func (s *Set) Profile(ctx context.Context, name string) (*api.NetworkPolicy, error) {
	if err := api.ValidProfileName("network", name); err != nil {
		return nil, err
	}
	file, err := s.file(name)
	if err != nil {
		return nil, err
	}
	derive := s.derived[name]
	switch {
	case file == nil && name == None:
		return &api.NetworkPolicy{Default: api.NetworkDeny}, nil
	case file == nil && name == Open:
		return &api.NetworkPolicy{Default: api.NetworkAllow}, nil
	case file == nil && derive != nil:
		p, err := derive(ctx)
		if err != nil {
			return nil, fmt.Errorf("derive network profile %s: %w", name, err)
		}
		return p, nil
	case file == nil:
		return nil, api.NotFound("network profile", name)
	case derive != nil || name == None || name == Open:
		return nil, api.Invalid("network", "%s.yaml has the name of a profile that is made by the daemon: rename it", name)
	}
	p, err := document.Parse(file)
	if err != nil {
		return nil, fmt.Errorf("network profile %s: %w", name, err)
	}
	return p, nil
}

// file returns the text of a profile's file, or nil if there is none.
func (s *Set) file(name string) ([]byte, error) {
	if s.dir == nil {
		return nil, nil
	}
	f, err := s.dir.Open(name + ".yaml")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("open network profile %s: %w", name, err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, document.MaxSize+1))
	if err != nil {
		return nil, fmt.Errorf("read network profile %s: %w", name, err)
	}
	return text, nil
}

// Named returns the document that a name stands for where it is given in place of one. A profile
// that allows by default is a document itself; any other is named by a document, so that decisions
// tell it.
func (s *Set) Named(ctx context.Context, name string) (*api.NetworkPolicy, error) {
	p, err := s.Profile(ctx, name)
	switch {
	case err != nil:
		return nil, err
	case p.Default == api.NetworkAllow || name == None:
		return p, nil
	}
	return &api.NetworkPolicy{Allow: []api.NetworkRule{{Profile: name}}}, nil
}

// Spec returns what a document is compiled from: itself, and the profiles that it names, as they are
// now.
func (s *Set) Spec(ctx context.Context, doc *api.NetworkPolicy) (policy.Spec, error) {
	spec := policy.Spec{Document: *doc}
	wanted := profilesIn(doc)
	for len(wanted) > 0 {
		name := wanted[0]
		wanted = wanted[1:]
		if _, have := spec.Profiles[name]; have {
			continue
		}
		if len(spec.Profiles) == maxFiles {
			return policy.Spec{}, api.Invalid("network", "the document needs more than %d profiles", maxFiles)
		}
		p, err := s.Profile(ctx, name)
		if err != nil {
			return policy.Spec{}, err
		}
		if spec.Profiles == nil {
			spec.Profiles = map[string]api.NetworkPolicy{}
		}
		spec.Profiles[name] = *p
		wanted = append(wanted, profilesIn(p)...)
	}
	return spec, nil
}

// profilesIn returns the names of the profiles that a document names.
func profilesIn(doc *api.NetworkPolicy) []string {
	var names []string
	for _, list := range [][]api.NetworkRule{doc.Allow, doc.Deny} {
		for i := range list {
			if name := list[i].Profile; name != "" && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}
