package service

import (
	"context"

	"ramet.dev/ramet/api"
)

// Audit is the audit log.
type Audit interface {
	// AuditReady returns an error while entries cannot be written. Changes are refused then.
	AuditReady() error
	// AppendAudit writes an entry, or keeps it until it can be written.
	AppendAudit(e api.AuditEntry)
	// AuditEntries returns at most limit entries after since that a caller may see.
	AuditEntries(ctx context.Context, since int64, limit int) ([]api.AuditEntry, error)
	VerifyAudit(ctx context.Context, head string) (*api.AuditReport, error)
}
