package sandboxes

import (
	"maps"
	"slices"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/node/reach"
)

// TestInherit hands over what programs of a child know when the child is promoted.
func TestInherit(t *testing.T) {
	of := func(authority string, env, placeholders map[string]string) Record {
		k := reach.Kept{Placeholders: placeholders}
		if authority != "" {
			k.Authority, k.Certificate = []byte("key of "+authority), []byte(authority)
		}
		return Record{Sandbox: api.Sandbox{ID: "child", Env: env}, Reach: k}
	}
	parents := map[string]string{"A": "ours", "B": "ours"}
	for name, c := range map[string]struct {
		parent, child     Record
		certificate       string
		releases          []string
		env, placeholders map[string]string
	}{
		"a child without": {
			of("mine", map[string]string{"A": "ours", "X": "1"}, parents), of("", nil, nil),
			"mine", nil, map[string]string{"A": "ours", "X": "1"}, parents,
		},
		"a parent without": {
			of("", map[string]string{"X": "1"}, nil), of("its", nil, map[string]string{"A": "its"}),
			"its", []string{"child"}, map[string]string{"X": "1"}, map[string]string{"A": "its"},
		},
		// B is set by the user: its variable is not that of the placeholder.
		"both": {
			of("mine", map[string]string{"A": "ours", "B": "own"}, parents), of("its", nil, map[string]string{"A": "its", "B": "its", "C": "its"}),
			"its", []string{"child"}, map[string]string{"A": "its", "B": "own"}, map[string]string{"A": "its", "B": "its", "C": "its"},
		},
		"other secrets": {
			of("mine", map[string]string{"A": "ours", "B": "ours"}, parents), of("its", nil, map[string]string{"A": "its"}),
			"its", []string{"child"}, map[string]string{"A": "its", "B": "ours"}, map[string]string{"A": "its", "B": "ours"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := c.parent
			r.Inherit(&c.child)
			k := &r.Reach
			if string(k.Certificate) != c.certificate || string(k.Authority) != "key of "+c.certificate || !slices.Equal(k.Releases, c.releases) {
				t.Errorf("it has authority %q with certificate %q, and releases %q", k.Authority, k.Certificate, k.Releases)
			}
			if !maps.Equal(r.Sandbox.Env, c.env) || !maps.Equal(k.Placeholders, c.placeholders) {
				t.Errorf("it has variables %v, placeholders %v", r.Sandbox.Env, k.Placeholders)
			}
		})
	}
	if parents["A"] != "ours" || len(parents) != 2 {
		t.Errorf("placeholders that others have were changed: %v", parents)
	}
}
