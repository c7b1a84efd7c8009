// Package transition holds tables of the transitions that states of a thing allow.
//
// A table is data: the code that changes a state asks it, a test walks it, and the
// documents show the drawing of it. The package must never know which things have
// states, nor how a state is stored or locked.
package transition

import (
	"fmt"
	"slices"
	"strings"

	"ramet.dev/ramet/api"
)

// Step is a transition that is allowed. From is empty where a thing comes to be.
type Step[S ~string] struct {
	From, To S
	By       string // what brings the transition about
}

// Table holds the transitions of one kind of thing.
type Table[S ~string] struct {
	thing string
	steps []Step[S]
}

// New returns the table of a kind of thing, as "sandbox".
func New[S ~string](thing string, steps ...Step[S]) *Table[S] {
	return &Table[S]{thing, steps}
}

// Allows reports whether a thing in the state from may go to the state to.
func (t *Table[S]) Allows(from, to S) bool {
	return slices.ContainsFunc(t.steps, func(s Step[S]) bool { return s.From == from && s.To == to })
}

// Check returns an error of CodeWrongState if the thing called id may not go from one
// state to the other.
func (t *Table[S]) Check(id string, from, to S) error {
	if t.Allows(from, to) {
		return nil
	}
	if from == "" {
		return api.Errorf(api.CodeWrongState, "%s %s cannot begin as %s", t.thing, id, to)
	}
	return api.Errorf(api.CodeWrongState, "%s %s is %s and cannot become %s", t.thing, id, from, to)
}

// Steps returns the allowed transitions in the order of the table.
func (t *Table[S]) Steps() []Step[S] { return slices.Clone(t.steps) }

// String returns the drawing of the table, a Mermaid state diagram.
func (t *Table[S]) String() string {
	var b strings.Builder
	b.WriteString("stateDiagram-v2\n")
	leaves := map[S]bool{}
	for _, s := range t.steps {
		leaves[s.From] = true
		from := string(s.From)
		if from == "" {
			from = "[*]"
		}
		fmt.Fprintf(&b, "    %s --> %s: %s\n", from, s.To, s.By)
	}
	for _, s := range t.steps {
		if !leaves[s.To] {
			leaves[s.To] = true
			fmt.Fprintf(&b, "    %s --> [*]\n", s.To)
		}
	}
	return b.String()
}
