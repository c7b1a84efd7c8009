// Package transitiontest tests that states follow a table of transitions, and that the documents
// show the table.
//
// The package must never know which things have states.
package transitiontest

import (
	"os"
	"slices"
	"strings"
	"testing"

	"ramet.dev/ramet/internal/node/transition"
)

// Change makes a thing in the state from, with its reason, changes its state to another with a new
// reason, and returns both as they are then.
type Change[S ~string] func(from S, reason string, to S, newReason string) (state S, now string, err error)

// Walk checks that a thing changes its state as the table says, that each state of all can be
// reached, and that nothing follows last.
func Walk[S ~string](t *testing.T, table *transition.Table[S], all []S, last S, change Change[S]) {
	t.Helper()
	all = append([]S{"", last}, all...)
	reached := []S{""}
	for range all {
		for _, s := range table.Steps() {
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
			wantState, wantReason := from, "before"
			state, reason, err := change(from, "before", to, "after")
			if err == nil {
				wantState, wantReason = to, "after"
			}
			if (err == nil) != table.Allows(from, to) || state != wantState || reason != wantReason {
				t.Errorf("%q to %q: %v, %q because of %q", from, to, err, state, reason)
			}
			if err == nil && (from == last || to == "") {
				t.Errorf("%q becomes %q", from, to)
			}
		}
	}
}

// Drawn compares the drawing in the document at path with the table.
func Drawn[S ~string](t *testing.T, table *transition.Table[S], path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if drawing := "```mermaid\n" + table.String() + "```\n"; !strings.Contains(string(text), drawing) {
		t.Errorf("%s does not have the drawing\n%s", path, drawing)
	}
}
