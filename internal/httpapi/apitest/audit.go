package apitest

import (
	"context"
	"sync"

	"ramet.dev/ramet/internal/sandbox"
)

// Audit keeps entries in memory.
type Audit struct {
	mu sync.Mutex
	// Full refuses changes.
	Full    error
	entries []sandbox.AuditEntry
}

// AuditReady implements httpapi.AuditService.
func (s *Audit) AuditReady() error { return s.Full }

// AppendAudit implements httpapi.AuditService.
func (s *Audit) AppendAudit(e sandbox.AuditEntry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries = append(s.entries, e)
}

// Audited returns what was appended.
func (s *Audit) Audited() []sandbox.AuditEntry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]sandbox.AuditEntry(nil), s.entries...)
}

// AuditEntries implements httpapi.AuditService.
func (s *Audit) AuditEntries(context.Context, int64, int) ([]sandbox.AuditEntry, error) {
	return s.Audited(), nil
}

// VerifyAudit implements httpapi.AuditService.
func (s *Audit) VerifyAudit(context.Context, string) (*sandbox.AuditReport, error) {
	return &sandbox.AuditReport{OK: true, Faults: []sandbox.AuditFault{}}, nil
}
