package machine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/node"
	"ramet.dev/ramet/internal/server/auditlog"
	"ramet.dev/ramet/internal/server/idempotency"
	"ramet.dev/ramet/internal/server/portguard"
	"ramet.dev/ramet/internal/server/token"
	"ramet.dev/ramet/internal/service"
	"ramet.dev/ramet/internal/storage/paths"
	"ramet.dev/ramet/internal/storage/store"
)

// Machine implements service.Service. It is safe for concurrent use.
type Machine struct {
	*node.Node
	*auditlog.Log
	*token.Service
	*idempotency.Store

	closers []io.Closer // the last one is closed first
}

var _ service.Service = (*Machine)(nil)

// Open opens the records of a machine and its node. Store, Audit, TokenTenants and PortGuard of
// cfg are set by Open.
func Open(ctx context.Context, cfg node.Config) (_ *Machine, err error) {
	m := &Machine{}
	defer func() {
		if err != nil {
			_ = m.Close() // err says more
		}
	}()
	// First of all: it keeps other daemons away from what is touched below.
	if cfg.Store, err = store.OpenIf(ctx, cfg.Paths.Registry(), func() error { return nothingKept(cfg.Paths) }); err != nil {
		return nil, err
	}
	m.closers = append(m.closers, cfg.Store)
	if err := cfg.Store.Hold(os.Getpid(), cfg.Paths.RuntimeDir()); err != nil {
		return nil, err
	}
	tokens, err := token.Open(ctx, cfg.Store)
	if err != nil {
		return nil, err
	}
	if m.Log, err = auditlog.Open(cfg.Paths.Audit(), cfg.Log); err != nil {
		return nil, err
	}
	m.closers = append(m.closers, m.Log)
	if m.Store, err = idempotency.Open(ctx, cfg.Store); err != nil {
		return nil, err
	}
	cfg.Audit = m.Log
	cfg.TokenTenants = func(ctx context.Context) (tenants []string) {
		for _, t := range tokens.KnownTo(ctx) {
			tenants = append(tenants, t.Tenant)
		}
		return tenants
	}
	cfg.PortGuard = portguard.New
	if m.Node, err = node.Open(ctx, cfg); err != nil {
		return nil, err
	}
	m.closers = append(m.closers, m.Node)
	m.Service = token.NewService(tokens, m.Node)
	return m, nil
}

// Close lets go of the sandboxes, which run on, and closes the records.
func (m *Machine) Close() error {
	var errs []error
	for i := len(m.closers) - 1; i >= 0; i-- {
		errs = append(errs, m.closers[i].Close())
	}
	m.closers = nil
	return errors.Join(errs...)
}

// nothingKept returns an error if there are snapshots on disk: without the records they
// would be taken for what a daemon left that died, and removed.
func nothingKept(p paths.Paths) error {
	entries, err := os.ReadDir(p.Snapshots())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("look for snapshots: %w", err)
	}
	for _, e := range entries {
		if api.IsID(api.KindSnapshot, e.Name()) {
			return api.Errorf(api.CodeCorrupt, "%s has no records, but there are snapshots in %s: put back a copy of the former with its -wal, or move the latter aside", p.Registry(), p.Snapshots())
		}
	}
	return nil
}
