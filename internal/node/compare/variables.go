package compare

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/interp"
)

// variables compares the variables of the interpreters in two running sandboxes.
func (c *Comparer) variables(ctx context.Context, fromRef, toRef string) ([]api.VariableChange, error) {
	from, err := c.describeVariables(ctx, fromRef)
	if err != nil {
		return nil, err
	}
	to, err := c.describeVariables(ctx, toRef)
	if err != nil {
		return nil, err
	}
	changes := []api.VariableChange{}
	for _, name := range slices.Sorted(maps.Keys(joined(from, to))) {
		language := cmp.Or(from[name].language, to[name].language)
		for _, change := range compareVariables(from[name].variables, to[name].variables) {
			change.Context, change.Language = name, language
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
// variables of shells are not compared.
func (c *Comparer) describeVariables(ctx context.Context, ref string) (map[string]described, error) {
	done, err := c.turns.take(ctx, ref)
	if err != nil {
		return nil, err
	}
	defer done()
	contexts, err := c.cfg.Guests.Contexts(ctx, ref)
	if api.CodeOf(err) == api.CodeNotFound {
		return nil, api.Invalid("variables", "%q is not a running sandbox: only those have variables", ref)
	}
	if err != nil {
		return nil, err
	}
	all := map[string]described{}
	for _, x := range contexts {
		if x.Language == string(interp.Bash) || x.State == api.ContextEnded {
			continue
		}
		if x.State == api.ContextBusy {
			return nil, api.Errorf(api.CodeConflict, "the context %s of %s is running something: its variables can be compared when that has ended", x.Name, ref)
		}
		list, err := c.cfg.Guests.Variables(ctx, ref, x.Name)
		if err != nil {
			return nil, fmt.Errorf("variables of %s in %s: %w", x.Name, ref, err)
		}
		found := map[string]interp.Variable{}
		for _, v := range list {
			found[v.Name] = v
		}
		all[x.Name] = described{x.Language, found}
	}
	return all, nil
}

// compareVariables returns the variables that differ or may differ, sorted by name.
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

// sameVariable compares digests of values, and the texts of opaque ones.
func sameVariable(a, b interp.Variable) bool {
	if a.Type != b.Type || a.Opaque != b.Opaque {
		return false
	}
	return a.Digest == b.Digest && (!a.Opaque || a.Repr == b.Repr)
}
