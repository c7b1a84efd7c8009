package sandboxes

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/node/transition/transitiontest"
)

// TestSandboxStates walks the table: a record changes its state as the table says, each
// state can be reached, and nothing follows the last one.
func TestSandboxStates(t *testing.T) {
	transitiontest.Walk(t, States, api.States(), api.StateDestroyed, func(from api.State, reason string, to api.State, newReason string) (api.State, string, error) {
		rec := Record{Sandbox: api.Sandbox{ID: "sbx", State: from, Reason: reason}}
		err := rec.Become(to, newReason)
		return rec.Sandbox.State, rec.Sandbox.Reason, err
	})
}

// TestStatesAreDrawn compares the drawing in the documents with the table.
func TestStatesAreDrawn(t *testing.T) {
	transitiontest.Drawn(t, States, "../../../docs/architecture/states.md")
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

// TestAFailedSandboxBecomesNothingElse tells a request that its sandbox has ended meanwhile.
func TestAFailedSandboxBecomesNothingElse(t *testing.T) {
	for _, to := range []api.State{api.StatePaused, api.StateCreating} {
		rec := Record{Sandbox: api.Sandbox{ID: "sbx_a", State: api.StateFailed, Reason: "sentry ended"}}
		if err := rec.Become(to, ""); api.CodeOf(err) != api.CodeSandboxDied {
			t.Errorf("to %s: %v", to, err)
		}
	}
}
