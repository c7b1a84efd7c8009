package profiles

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/network/document"
	"ramet.dev/ramet/internal/network/policy"
)

func testSet(extra map[string]string) *Set {
	dir := fstest.MapFS{
		"git-hosts.yaml": {Data: []byte("allow: [git.example.org:22, {profile: shared}]")},
		"shared.yaml":    {Data: []byte("allow: ['*.example.net']")},
		"most.yaml":      {Data: []byte("default: allow\ndeny: [bad.example.org]")},
		"wrong.yaml":     {Data: []byte("allow: [a..b]")},
		"large.yaml":     {Data: make([]byte, document.MaxSize+10)},
		"README.md":      {Data: []byte("no profile")},
		"UPPER.yaml":     {Data: []byte("{}")},
	}
	for name, text := range extra {
		dir[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return New(dir, map[string]Derived{
		"host-registries": func(context.Context) (*api.NetworkPolicy, error) {
			return &api.NetworkPolicy{Allow: []api.NetworkRule{{Address: "packages.example.org", Private: true}}}, nil
		},
		"broken": func(context.Context) (*api.NetworkPolicy, error) { return nil, errors.New("no tool answers") },
	})
}

func TestNames(t *testing.T) {
	names, err := testSet(nil).Names()
	want := []string{"broken", "git-hosts", "host-registries", "large", "most", "none", "open", "shared", "wrong"}
	if err != nil || !slices.Equal(names, want) {
		t.Errorf("profiles are %q, %v", names, err)
	}
	for name, s := range map[string]*Set{"no directory": New(nil, nil), "an empty one": New(fstest.MapFS{}, nil)} {
		if names, err := s.Names(); err != nil || !slices.Equal(names, []string{None, Open}) {
			t.Errorf("with %s profiles are %q, %v", name, names, err)
		}
	}
}

func TestProfile(t *testing.T) {
	s := testSet(map[string]string{"open.yaml": "{}", "host-registries.yaml": "{}"})
	for name, want := range map[string]struct {
		code api.Code
		text string
	}{
		"git-hosts":       {"", ""},
		"none":            {"", ""},
		"wrong":           {api.CodeInvalid, "network profile wrong: "},
		"large":           {api.CodeInvalid, "more than 524288 bytes"},
		"open":            {api.CodeInvalid, "rename it"},
		"host-registries": {api.CodeInvalid, "rename it"},
		"none-such":       {api.CodeNotFound, `no network profile "none-such"`},
		"../x":            {api.CodeInvalid, "is not a profile"},
		"broken":          {api.CodeInternal, "no tool answers"},
	} {
		p, err := s.Profile(t.Context(), name)
		if api.CodeOf(err) != want.code || err != nil && !strings.Contains(err.Error(), want.text) || (err == nil) != (p != nil) {
			t.Errorf("%s is %+v, %v", name, p, err)
		}
	}
}

func TestNamed(t *testing.T) {
	s := testSet(nil)
	for name, want := range map[string]string{"none": "deny", "open": "allow", "most": "allow", "git-hosts": "profile=git-hosts", "host-registries": "profile=host-registries"} {
		p, err := s.Named(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		got := string(p.Default)
		if len(p.Allow) > 0 {
			got = p.Allow[0].String()
		}
		if got != want {
			t.Errorf("%s stands for %+v", name, p)
		}
		spec, err := s.Spec(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := policy.Compile(spec, func(netip.Addr) bool { return false }); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := s.Named(t.Context(), "none-such"); api.CodeOf(err) != api.CodeNotFound {
		t.Errorf("a profile that is not there: %v", err)
	}
}

func TestSpec(t *testing.T) {
	s := testSet(nil)
	doc := &api.NetworkPolicy{Allow: []api.NetworkRule{{Profile: "git-hosts"}, {Profile: "shared"}}}
	spec, err := s.Spec(t.Context(), doc)
	if err != nil {
		t.Fatal(err)
	}
	if len(spec.Profiles) != 2 || len(spec.Profiles["shared"].Allow) != 1 {
		t.Errorf("it is %+v", spec)
	}
	p, err := policy.Compile(spec, func(netip.Addr) bool { return false })
	if err != nil {
		t.Fatal(err)
	}
	if d := p.JudgeName("x.example.net"); !d.Allowed || d.Rule != "profile git-hosts: profile shared: *.example.net" {
		t.Errorf("a name of a profile's profile is decided by %s", d)
	}
	for name, want := range map[string]api.Code{"none-such": api.CodeNotFound, "wrong": api.CodeInvalid, "broken": api.CodeInternal} {
		if _, err := s.Spec(t.Context(), &api.NetworkPolicy{Deny: []api.NetworkRule{{Profile: name}}}); api.CodeOf(err) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Profiles that name each other in a circle are found where they are compiled.
	loop := testSet(map[string]string{"a.yaml": "allow: [profile=b]", "b.yaml": "allow: [profile=a]"})
	spec, err = loop.Spec(t.Context(), &api.NetworkPolicy{Allow: []api.NetworkRule{{Profile: "a"}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := policy.Compile(spec, func(netip.Addr) bool { return false }); err == nil || !strings.Contains(err.Error(), "names itself") {
		t.Errorf("a circle: %v", err)
	}
}
