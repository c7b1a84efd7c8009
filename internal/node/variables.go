package node

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/interp"
	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/engine/wire"
)

// variablesTimeout is how long an interpreter may take to describe its variables.
const variablesTimeout = 30 * time.Second

// variables compares the variables of the interpreters in two running sandboxes.
func (m *Node) variables(ctx context.Context, fromRef, toRef string) ([]api.VariableChange, error) {
	from, err := m.describeVariables(ctx, fromRef)
	if err != nil {
		return nil, err
	}
	to, err := m.describeVariables(ctx, toRef)
	if err != nil {
		return nil, err
	}
	changes := []api.VariableChange{}
	for _, c := range slices.Sorted(maps.Keys(joined(from, to))) {
		language := cmp.Or(from[c].language, to[c].language)
		for _, change := range compareVariables(from[c].variables, to[c].variables) {
			change.Context, change.Language = c, language
			changes = append(changes, change)
		}
	}
	return changes, nil
}

// described are the variables of one context, by name.
type described struct {
	language  string
	variables map[string]interp.Variable
}

func joined[V any](a, b map[string]V) map[string]V {
	all := map[string]V{}
	maps.Copy(all, a)
	maps.Copy(all, b)
	return all
}

// describeVariables asks the interpreters of a sandbox for their variables. The
// shell's are not looked at.
func (m *Node) describeVariables(ctx context.Context, ref string) (map[string]described, error) {
	b, err := m.resolve(ctx, ref)
	if api.CodeOf(err) == api.CodeNotFound {
		return nil, api.Invalid("variables", "%q is not a running sandbox: only those have variables", ref)
	}
	if err != nil {
		return nil, err
	}
	contexts, err := m.Contexts(ctx, b.id)
	if err != nil {
		return nil, err
	}
	sentry, err := b.running(api.StateRunning)
	if err != nil {
		return nil, err
	}
	all := map[string]described{}
	for _, c := range contexts {
		if c.Language == string(interp.Bash) || c.State == api.ContextEnded {
			continue
		}
		if c.State == api.ContextBusy {
			return nil, api.Errorf(api.CodeConflict, "the context %s of %s is running something: its variables can be compared when that has ended", c.Name, ref)
		}
		found, err := variablesOf(ctx, sentry, c.Name)
		if err != nil {
			return nil, fmt.Errorf("variables of %s in %s: %w", c.Name, ref, m.explain(b, sentry, err))
		}
		all[c.Name] = described{c.Language, found}
	}
	return all, nil
}

func variablesOf(ctx context.Context, sentry *launch.Sentry, name string) (map[string]interp.Variable, error) {
	a := &interpAnswer{}
	ran, err := sentry.Run(ctx, &wire.Run{Context: name, Kind: interp.KindVariables, TimeoutMS: variablesTimeout.Milliseconds()}, nil,
		launch.RunIO{Stdout: io.Discard, Stderr: io.Discard, Part: a.take})
	if err != nil {
		return nil, err
	}
	res, err := a.result(name, ran)
	if err != nil {
		return nil, err
	}
	if res.Error != nil {
		return nil, api.Errorf(api.CodeConflict, "%s: %s", res.Error.Name, res.Error.Value)
	}
	found := map[string]interp.Variable{}
	for _, v := range a.done.Variables {
		found[v.Name] = v
	}
	return found, nil
}

// compareVariables returns what differs, or may, by name.
func compareVariables(from, to map[string]interp.Variable) []api.VariableChange {
	var changes []api.VariableChange
	for _, name := range slices.Sorted(maps.Keys(joined(from, to))) {
		old, had := from[name]
		now, has := to[name]
		change := api.VariableChange{
			Name: name, Kind: api.Modified, Type: now.Type, Size: now.Size, Repr: now.Repr,
			Opaque: now.Opaque || old.Opaque, Partial: now.Partial || old.Partial,
		}
		switch {
		case !has:
			change.Kind, change.Type, change.Size, change.Repr = api.Deleted, old.Type, old.Size, old.Repr
		case !had:
			change.Kind = api.Added
		case sameVariable(old, now) && change.Partial:
			change.Kind = api.Undecided
		case sameVariable(old, now):
			continue
		default:
			change.OldSize, change.OldRepr = old.Size, old.Repr
			if old.Type != now.Type {
				change.OldType = old.Type
			}
		}
		changes = append(changes, change)
	}
	return changes
}

// sameVariable compares the text of those that have no value to compare.
func sameVariable(a, b interp.Variable) bool {
	if a.Type != b.Type || a.Opaque != b.Opaque {
		return false
	}
	return a.Digest == b.Digest && (!a.Opaque || a.Repr == b.Repr)
}
