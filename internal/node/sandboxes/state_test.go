package sandboxes

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
)

// TestSandboxStates walks the table: a record changes its state as the table says, each
// state can be reached, and nothing follows the last one.
func TestSandboxStates(t *testing.T) {
	all := append([]api.State{"", api.StateDestroyed}, api.States()...)
	reached := []api.State{""}
	for range all {
		for _, s := range States.Steps() {
			if slices.Contains(reached, s.From) && !slices.Contains(reached, s.To) {
				reached = append(reached, s.To)
			}
		}
	}
	for _, from := range all {
		if !slices.Contains(reached, from) {
			t.Errorf("no transitions lead to %q", from)
		}
		for _, to := range all {
			rec := Record{Sandbox: api.Sandbox{ID: "sbx", State: from, Reason: "before"}}
			err := rec.Become(to, "after")
			want := api.Sandbox{ID: "sbx", State: from, Reason: "before"}
			if err == nil {
				want.State, want.Reason = to, "after"
			}
			if got := rec.Sandbox; (err == nil) != States.Allows(from, to) || got.State != want.State || got.Reason != want.Reason {
				t.Errorf("%q to %q: %v, %q because of %q", from, to, err, got.State, got.Reason)
			}
			if err == nil && (from == api.StateDestroyed || to == "") {
				t.Errorf("%q becomes %q", from, to)
			}
		}
	}
}

// TestStatesAreDrawn compares the drawing in the documents with the table.
func TestStatesAreDrawn(t *testing.T) {
	text, err := os.ReadFile("../../../docs/architecture/states.md")
	if err != nil {
		t.Fatal(err)
	}
	if drawing := "```mermaid\n" + States.String() + "```\n"; !strings.Contains(string(text), drawing) {
		t.Errorf("docs/architecture/states.md does not have the drawing\n%s", drawing)
	}
}

// TestStateHasOneOwner finds assignments of a sandbox's state in the node.
func TestStateHasOneOwner(t *testing.T) {
	var files []string
	for _, in := range []string{"../*.go", "../*/*.go"} {
		list, err := filepath.Glob(in)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, list...)
	}
	if len(files) < 20 {
		t.Fatalf("found %d files of the node", len(files))
	}
	for _, name := range files {
		if name == "../sandboxes/state.go" || strings.HasSuffix(name, "_test.go") {
			continue
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			a, ok := n.(*ast.AssignStmt)
			if !ok {
				return true
			}
			for _, left := range a.Lhs {
				x, ok := left.(*ast.SelectorExpr)
				if !ok || x.Sel.Name != "State" {
					continue
				}
				if of, ok := x.X.(*ast.SelectorExpr); ok && of.Sel.Name == "Sandbox" {
					t.Errorf("%s assigns the state of a sandbox", set.Position(a.Pos()))
				}
			}
			return true
		})
	}
}
