package node

import (
	"context"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/node/freezes"
	"ramet.dev/ramet/internal/server/audit"
	"ramet.dev/ramet/internal/service/access"
)

// AuditReady implements httpapi.AuditService.
func (m *Node) AuditReady() error { return m.audit.Ready() }

// AppendAudit implements httpapi.AuditService.
func (m *Node) AppendAudit(e api.AuditEntry) {
	if err := m.audit.Append(e); err != nil {
		m.log.Error("write audit", "action", e.Action, "error", err)
	}
}

// AuditEntries returns what was done in the caller's tenant and to its things, and all
// for the owner of the daemon.
func (m *Node) AuditEntries(ctx context.Context, since int64, limit int) ([]api.AuditEntry, error) {
	c := access.From(ctx)
	if err := c.Known(); err != nil {
		return nil, err
	}
	var list []api.AuditEntry
	err := m.audit.Entries(ctx, since, func(e api.AuditEntry) bool {
		if c.Owner || e.Tenant == c.Tenant || e.Of == c.Tenant {
			list = append(list, e)
		}
		return len(list) < limit
	})
	return list, err
}

// VerifyAudit looks whether the audit is as it was written.
func (m *Node) VerifyAudit(ctx context.Context, head string) (*api.AuditReport, error) {
	return m.audit.Verify(ctx, head)
}

// noteChildren writes down what was made of a frozen state.
func noteChildren(ctx context.Context, f *freezes.Freeze, image string, children []api.Child, more func(*api.AuditDetails)) {
	audit.Of(ctx).Set(func(d *api.AuditDetails) {
		d.Freeze, d.Image, d.Children = f.ID, image, idsOf(children)
		d.Failed = len(children) - len(d.Children)
		more(d)
	})
}
