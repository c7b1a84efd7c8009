package accounting

import (
	"context"
	"log/slog"
	"strings"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/node/memfiles"
	"ramet.dev/ramet/internal/node/quota"
	"ramet.dev/ramet/internal/node/sandboxes"
	"ramet.dev/ramet/internal/node/snapshots"
)

// Books has the resources that tenants and trees have and have used. It is safe for
// concurrent use.
type Books struct {
	ledger    *quota.Ledger
	sandboxes *sandboxes.Registry
	snapshots *snapshots.Set
	memFiles  *memfiles.Table
	log       *slog.Logger
}

// NewBooks returns the books of the sandboxes of a registry and the snapshots of a set.
func NewBooks(ledger *quota.Ledger, registry *sandboxes.Registry, set *snapshots.Set, files *memfiles.Table, log *slog.Logger) *Books {
	return &Books{ledger, registry, set, files, log}
}

// Book books the processor time that a sandbox has used, and returns it. ok is false
// if there is no sentry, or it has ended.
func (k *Books) Book(b *sandboxes.Instance, s *launch.Sentry) (seconds float64, ok bool) {
	if s == nil {
		return 0, false
	}
	used, err := s.CPU()
	if err != nil {
		return 0, false
	}
	seconds = used.Seconds()
	k.ledger.Spend(b.Tenant(), quota.Tree(b.Lineage()), s.Key(), seconds)
	return seconds, true
}

// Holdings adds up the resources of a tenant, or of one tree of it, except processor time.
// It asks no sandbox: memory files say themselves how large they are.
func (k *Books) Holdings(tenant, tree string) api.Consumption {
	var c api.Consumption
	sizes := map[string]int64{} // of files, by name: what several share counts once
	shared := k.memFiles.Sizes()
	add := func(names []string) {
		for _, name := range names {
			sizes[name] = shared[name]
		}
	}
	for _, b := range k.sandboxes.All() {
		rec := b.Record()
		if rec.Tenant() != tenant || tree != "" && quota.Tree(rec.Lineage()) != tree {
			continue
		}
		c.Sandboxes++
		c.Depth = max(c.Depth, int64(rec.Sandbox.Depth))
		if s := b.Sentry(); s != nil {
			sizes[s.Key()], sizes[s.FilesName()] = launch.Allocated(s.Memory()), launch.Allocated(s.Files()) // 0 if they are closed by now
		}
		add(b.Generations())
	}
	const mib = 1 << 20
	for _, s := range k.snapshots.All() {
		rec := s.Record()
		if rec.Tenant() == tenant && (tree == "" || quota.Tree(rec.Ancestors) == tree) {
			c.DiskMiB += float64(rec.Snapshot.SizeBytes) / mib
			if f := s.Frozen(); f != nil && !rec.Snapshot.OnDisk {
				add(f.Generations)
			}
		}
	}
	for name, bytes := range sizes {
		if strings.Contains(name, "/") {
			c.DiskMiB += float64(bytes) / mib
		} else {
			c.MemoryMiB += float64(bytes) / mib
		}
	}
	return c
}

// Save writes down what was booked.
func (k *Books) Save(ctx context.Context) {
	trees, processes := map[string]bool{}, map[string]bool{}
	for _, b := range k.sandboxes.All() {
		rec := b.Record()
		trees[quota.Tree(rec.Lineage())] = true
		processes[rec.Key] = true
	}
	for _, s := range k.snapshots.All() {
		trees[quota.Tree(s.Ancestors())] = true
	}
	if err := k.ledger.Save(ctx, func(id string) bool { return trees[id] }, func(key string) bool { return processes[key] }); err != nil {
		k.log.Error("write down what tenants used", "error", err)
	}
}
