package node

import (
	"context"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/node/freezes"
	"ramet.dev/ramet/internal/server/audit"
)

// noteChildren writes down what was made of a frozen state.
func noteChildren(ctx context.Context, f *freezes.Freeze, image string, children []api.Child, more func(*api.AuditDetails)) {
	audit.Of(ctx).Set(func(d *api.AuditDetails) {
		d.Freeze, d.Image, d.Children = f.ID, image, idsOf(children)
		d.Failed = len(children) - len(d.Children)
		more(d)
	})
}
