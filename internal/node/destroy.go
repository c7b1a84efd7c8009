package node

import (
	"context"

	"ramet.dev/ramet/api"
)

// Destroy ends a sandbox. Its memory stays as far as its children need it.
func (m *Node) Destroy(ctx context.Context, ref string) (err error) {
	ctx, ended := m.meter.Observe(ctx, "destroy")
	defer ended(&err)
	b, err := m.sandboxes.Find(ctx, ref)
	if err != nil {
		return err
	}
	return m.sandboxes.Destroy(b, "")
}

// timeIsUp has done what is due of the sandbox or snapshot called id.
func (m *Node) timeIsUp(id string) {
	if api.IsID(api.KindSnapshot, id) {
		m.chores.Go(func(context.Context) { m.snapshots.Expire(id) })
		return
	}
	m.lifecycles.TimeIsUp(id)
}
