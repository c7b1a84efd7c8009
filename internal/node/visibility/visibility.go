// Package visibility decides what a caller sees of the things of a node.
//
// Found and Of are the only places that decide it: what a caller does not see is not
// there. The package must never know how things are stored or looked up.
package visibility

import (
	"context"
	"slices"

	"ramet.dev/ramet/internal/service/access"
	"ramet.dev/ramet/internal/service/audit"
)

// Thing is what not every caller sees.
type Thing interface {
	SeenBy(access.Caller) bool
	Tenant() string
}

// Found reports whether the caller sees the thing called id, which a request refers to,
// and if so notes it for the audit.
func Found(ctx context.Context, id string, thing Thing) bool {
	caller := access.From(ctx)
	if !thing.SeenBy(caller) {
		return false
	}
	audit.Of(ctx).Object(id)
	if of := thing.Tenant(); of != caller.Tenant {
		audit.Of(ctx).Of(of)
	}
	return true
}

// Of returns the things of list that the caller sees, in its place.
func Of[T Thing](ctx context.Context, list []T) []T {
	caller := access.From(ctx)
	return slices.DeleteFunc(list, func(x T) bool { return !x.SeenBy(caller) })
}
