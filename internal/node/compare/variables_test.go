package compare

import (
	"encoding/json"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/interp"
)

func TestCompareVariables(t *testing.T) {
	of := func(name, kind, digest, repr string, opaque bool) interp.Variable {
		return interp.Variable{Name: name, Type: kind, Digest: digest, Repr: repr, Opaque: opaque, Size: int64(len(repr))}
	}
	named := func(all ...interp.Variable) map[string]interp.Variable {
		m := map[string]interp.Variable{}
		for _, v := range all {
			m[v.Name] = v
		}
		return m
	}
	large := of("large", "list", "7", "[0, ", false)
	large.Partial = true
	got := compareVariables(
		named(of("changed", "int", "1", "1", false), of("gone", "str", "2", "'x'", false), large, of("lock", "lock", "", "<lock>", true), of("same", "int", "3", "3", false), of("type", "int", "4", "4", false)),
		named(of("changed", "int", "9", "900", false), large, of("lock", "lock", "", "<locked>", true), of("new", "list", "5", "[]", false), of("same", "int", "3", "3", false), of("type", "str", "4", "4", false)),
	)
	want := []api.VariableChange{
		{Name: "changed", Kind: api.Modified, Type: "int", Size: 3, OldSize: 1, Repr: "900", OldRepr: "1"},
		{Name: "gone", Kind: api.Deleted, Type: "str", Size: 3, Repr: "'x'"},
		{Name: "large", Kind: api.Undecided, Type: "list", Size: 4, Repr: "[0, ", Partial: true},
		{Name: "lock", Kind: api.Modified, Type: "lock", Size: 8, OldSize: 6, Repr: "<locked>", OldRepr: "<lock>", Opaque: true},
		{Name: "new", Kind: api.Added, Type: "list", Size: 2, Repr: "[]"},
		{Name: "type", Kind: api.Modified, Type: "str", OldType: "int", Size: 1, OldSize: 1, Repr: "4", OldRepr: "4"},
	}
	if all := compareVariables(nil, named(of("x", "int", "1", "1", false))); len(all) != 1 || all[0].Kind != api.Added {
		t.Errorf("%+v", all)
	}
	g, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	w, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	if string(g) != string(w) {
		t.Errorf("%s\nwant %s", g, w)
	}
}
