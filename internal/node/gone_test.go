package node

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/service/access"
)

// TestNamesOfWhatIsGone destroys sandboxes above living ones: the tree shows their names, after
// a restart too, as long as something descends from them.
func TestNamesOfWhatIsGone(t *testing.T) {
	m, root := nodeOf(t, nil)
	ctx := access.With(t.Context(), access.Owner(0))
	named := func(b *instance, name string, ancestors ...*instance) *instance {
		b.rec.Sandbox.Name = name
		for _, a := range ancestors {
			b.rec.Ancestors = append(b.rec.Ancestors, a.id)
		}
		return b
	}
	named(root, "root")
	kid := named(boxIn(t, m, nil), "kid", root)
	unnamed := named(boxIn(t, m, nil), "", root, kid)
	leaf := named(boxIn(t, m, nil), "leaf", root, kid, unnamed)
	lone := named(boxIn(t, m, nil), "lone")
	line := func() string {
		t.Helper()
		roots, err := m.Tree(ctx, "")
		if err != nil {
			t.Fatal(err)
		}
		var text []string
		for ; len(roots) > 0; roots = roots[0].Children {
			text = append(text, fmt.Sprint(roots[0].Name, " ", roots[0].State))
		}
		return strings.Join(text, ", ")
	}
	gone := func(b *instance) {
		t.Helper()
		if err := m.destroy(b, ""); err != nil {
			t.Fatal(err)
		}
	}
	gone(lone)
	for _, b := range []*instance{kid, root, unnamed} {
		gone(b)
	}
	const want = "root destroyed, kid destroyed,  destroyed, leaf running"
	if got := line(); got != want {
		t.Errorf("the tree is %q, want %q", got, want)
	}
	before := maps.Clone(m.goneNames)
	m.goneNames = map[string]goneRecord{}
	r := &recovery{m: m, ctx: ctx}
	if err := r.readGone(); err != nil || !maps.Equal(m.goneNames, before) || len(r.changes) > 0 {
		t.Errorf("read %v, %v and changes %v; there were %v", m.goneNames, err, r.changes, before)
	}

	gone(leaf)
	if len(m.goneNames) > 0 {
		t.Errorf("kept %v", m.goneNames)
	}
	m.goneNames[api.NewID(api.KindSandbox)] = goneRecord{Name: "old"}
	if err := (&recovery{m: m, ctx: ctx}).readGone(); err != nil || len(m.goneNames) > 0 {
		t.Errorf("read %v, %v", m.goneNames, err)
	}
}
