package lineage_test

import (
	"fmt"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/node/lineage"
	"ramet.dev/ramet/internal/node/nodetest"
	"ramet.dev/ramet/internal/node/sandboxes"
	"ramet.dev/ramet/internal/node/selfcontrol"
	"ramet.dev/ramet/internal/storage/store"
)

// TestNamesOfWhatIsGone destroys sandboxes above living ones: the tree shows their names, after
// a restart too, as long as something descends from them.
func TestNamesOfWhatIsGone(t *testing.T) {
	p := nodetest.New(t, nodetest.Options{})
	named := func(name string, ancestors ...*sandboxes.Instance) *sandboxes.Instance {
		b := p.Add(t, nil)
		b.Amend(func(rec *sandboxes.Record) {
			rec.Sandbox.Name = name
			for _, a := range ancestors {
				rec.Ancestors = append(rec.Ancestors, a.ID)
			}
		})
		return b
	}
	root := named("root")
	kid := named("kid", root)
	unnamed := named("", root, kid)
	leaf := named("leaf", root, kid, unnamed)
	lone := named("lone")
	line := func(trees *lineage.Trees) string {
		t.Helper()
		roots, err := trees.Tree(nodetest.AsOwner, "")
		if err != nil {
			t.Fatal(err)
		}
		var text []string
		for ; len(roots) > 0; roots = roots[0].Children {
			text = append(text, fmt.Sprint(roots[0].Name, " ", roots[0].State))
		}
		return strings.Join(text, ", ")
	}
	stored := func() (n int) {
		if err := p.Store.Each(t.Context(), store.Gone, func(string, []byte) error { n++; return nil }); err != nil {
			t.Fatal(err)
		}
		return n
	}
	gone := func(list ...*sandboxes.Instance) {
		t.Helper()
		for _, b := range list {
			if err := p.Sandboxes.Destroy(b, ""); err != nil {
				t.Fatal(err)
			}
		}
	}
	gone(lone, kid, root, unnamed)
	const want = "root destroyed, kid destroyed,  destroyed, leaf running"
	if got := line(p.Trees); got != want {
		t.Errorf("the tree is %q, want %q", got, want)
	}
	read := func() (*lineage.Remains, []store.Change) {
		t.Helper()
		again := lineage.NewRemains(p.Sandboxes, p.Snapshots, selfcontrol.NewBudgets(), p.Store, p.Log)
		changes, err := again.ReadNames(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return again, changes
	}
	again, changes := read()
	if got := line(lineage.NewTrees(again)); got != want || len(changes) > 0 {
		t.Errorf("read %q and changes %v; there was %q", got, changes, want)
	}

	gone(leaf)
	if n := stored(); n > 0 {
		t.Errorf("%d names are kept", n)
	}
	old := store.Change{Table: store.Gone, ID: api.NewID(api.KindSandbox), Doc: map[string]string{"name": "old"}}
	if err := p.Store.Apply(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	if _, changes := read(); len(changes) != 1 || changes[0].ID != old.ID || changes[0].Doc != nil {
		t.Errorf("a name that nothing needs: %v", changes)
	}
}
