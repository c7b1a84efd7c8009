package node

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"ramet.dev/ramet/api"
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
func noteChildren(ctx context.Context, f *freeze, image string, children []api.Child, more func(*api.AuditDetails)) {
	audit.Of(ctx).Set(func(d *api.AuditDetails) {
		d.Freeze, d.Image, d.Children = f.id, image, idsOf(children)
		d.Failed = len(children) - len(d.Children)
		more(d)
	})
}

// answerDigest returns a digest of a list that was answered, by which it is known again.
func answerDigest(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return "" // text and numbers always can be
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// note writes down that it is about s.
func (s *snapshot) note(ctx context.Context) {
	audit.Of(ctx).Set(func(d *api.AuditDetails) {
		s.mu.Lock()
		defer s.mu.Unlock()
		d.Snapshot, d.Digest, d.Image = s.id, s.rec.Digest, s.rec.Snapshot.Image
	})
}

// noteDiff writes down what a comparison said.
func noteDiff(ctx context.Context, diff *api.Diff) {
	audit.Of(ctx).Set(func(d *api.AuditDetails) {
		d.From, d.Base, d.Changes, d.Digest = []string{diff.From, diff.To}, diff.Base, len(diff.Changes), answerDigest(diff.Changes)
	})
}

// noteMerge writes down what a merge decided.
func noteMerge(ctx context.Context, from []*fsView, req *api.MergeRequest, res *api.MergeResult) {
	audit.Of(ctx).Set(func(d *api.AuditDetails) {
		for _, mo := range from {
			d.From = append(d.From, mo.id)
		}
		d.Strategy, d.DryRun, d.Changes, d.Conflicts, d.Digest = string(req.Strategy), req.DryRun, len(res.Applied), len(res.Conflicts), answerDigest(res)
	})
}

// noteImage writes down which image was made.
func noteImage(ctx context.Context, id string) {
	audit.Of(ctx).Object(id)
	audit.Of(ctx).Set(func(d *api.AuditDetails) { d.Image = id })
}
