package apitest

import (
	"context"
	"sync"

	"ramet.dev/ramet/api"
)

// Audit keeps entries in memory.
type Audit struct {
	mu sync.Mutex
	// Full refuses changes.
	Full    error
	entries []api.AuditEntry
}

// AuditReady implements service.Audit.
func (s *Audit) AuditReady() error { return s.Full }

// AppendAudit implements service.Audit.
func (s *Audit) AppendAudit(e api.AuditEntry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries = append(s.entries, e)
}

// Audited returns what was appended.
func (s *Audit) Audited() []api.AuditEntry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]api.AuditEntry(nil), s.entries...)
}

// AuditEntries implements service.Audit.
func (s *Audit) AuditEntries(context.Context, int64, int) ([]api.AuditEntry, error) {
	return s.Audited(), nil
}

// VerifyAudit implements service.Audit.
func (s *Audit) VerifyAudit(context.Context, string) (*api.AuditReport, error) {
	return &api.AuditReport{OK: true, Faults: []api.AuditFault{}}, nil
}
