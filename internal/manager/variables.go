package manager

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"ramet.dev/ramet/internal/interp"
	"ramet.dev/ramet/internal/launch"
	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/wire"
)

// variablesTimeout is how long an interpreter may take to describe its variables.
const variablesTimeout = 30 * time.Second

// variables compares the variables of the interpreters in two running sandboxes.
func (m *Manager) variables(ctx context.Context, fromRef, toRef string) ([]sandbox.VariableChange, error) {
	from, err := m.describeVariables(ctx, fromRef)
	if err != nil {
		return nil, err
	}
	to, err := m.describeVariables(ctx, toRef)
	if err != nil {
		return nil, err
	}
	changes := []sandbox.VariableChange{}
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
func (m *Manager) describeVariables(ctx context.Context, ref string) (map[string]described, error) {
	b, err := m.resolve(ctx, ref)
	if sandbox.CodeOf(err) == sandbox.CodeNotFound {
		return nil, sandbox.Invalid("variables", "%q is not a running sandbox: only those have variables", ref)
	}
	if err != nil {
		return nil, err
	}
	contexts, err := m.Contexts(ctx, b.id)
	if err != nil {
		return nil, err
	}
	sentry, err := b.running(sandbox.StateRunning)
	if err != nil {
		return nil, err
	}
	all := map[string]described{}
	for _, c := range contexts {
		if c.Language == string(interp.Bash) || c.State == sandbox.ContextEnded {
			continue
		}
		if c.State == sandbox.ContextBusy {
			return nil, sandbox.Errorf(sandbox.CodeConflict, "the context %s of %s is running something: its variables can be compared when that has ended", c.Name, ref)
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
		return nil, sandbox.Errorf(sandbox.CodeConflict, "%s: %s", res.Error.Name, res.Error.Value)
	}
	found := map[string]interp.Variable{}
	for _, v := range a.done.Variables {
		found[v.Name] = v
	}
	return found, nil
}

// compareVariables returns what differs, or may, by name.
func compareVariables(from, to map[string]interp.Variable) []sandbox.VariableChange {
	var changes []sandbox.VariableChange
	for _, name := range slices.Sorted(maps.Keys(joined(from, to))) {
		old, had := from[name]
		now, has := to[name]
		change := sandbox.VariableChange{
			Name: name, Kind: sandbox.Modified, Type: now.Type, Size: now.Size, Repr: now.Repr,
			Opaque: now.Opaque || old.Opaque, Partial: now.Partial || old.Partial,
		}
		switch {
		case !has:
			change.Kind, change.Type, change.Size, change.Repr = sandbox.Deleted, old.Type, old.Size, old.Repr
		case !had:
			change.Kind = sandbox.Added
		case sameVariable(old, now) && change.Partial:
			change.Kind = sandbox.Undecided
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
