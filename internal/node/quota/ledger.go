package quota

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/network/policy"
	"ramet.dev/ramet/internal/storage/store"
)

// account is what is stored of a tenant.
type account struct {
	Quota api.Quota `json:"quota"`
	Tree  api.Quota `json:"tree_quota"`
	// NetworkMax bounds what its sandboxes may reach; nil if nothing does.
	NetworkMax *policy.Bound `json:"network_max,omitempty"`
	// CPU is the processor time that was used, in seconds: in all, and of each tree.
	CPU   float64            `json:"cpu"`
	Trees map[string]float64 `json:"trees,omitempty"`
	// Seen is what each process had used when it was looked at last.
	Seen map[string]float64 `json:"seen,omitempty"`
}

func (a *account) clone() account {
	c := *a
	c.Trees, c.Seen = maps.Clone(a.Trees), maps.Clone(a.Seen)
	return c
}

// Ledger is the accounts of all tenants. It is safe for concurrent use.
type Ledger struct {
	store *store.Store

	mu       sync.Mutex
	accounts map[string]*account
	dirty    map[string]bool
}

// Open reads the accounts.
func Open(ctx context.Context, s *store.Store) (*Ledger, error) {
	l := &Ledger{store: s, accounts: map[string]*account{}, dirty: map[string]bool{}}
	err := s.Each(ctx, store.Tenants, func(name string, doc []byte) error {
		var a account
		if err := json.Unmarshal(doc, &a); err != nil {
			return api.Errorf(api.CodeCorrupt, "record of tenant %s: %w", name, err)
		}
		l.accounts[name] = &a
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read tenants: %w", err)
	}
	return l, nil
}

func (l *Ledger) account(tenant string) *account {
	a := l.accounts[tenant]
	if a == nil {
		a = &account{}
		l.accounts[tenant] = a
	}
	if a.Trees == nil {
		a.Trees = map[string]float64{}
	}
	if a.Seen == nil {
		a.Seen = map[string]float64{}
	}
	return a
}

// Tenants returns the names of those that have an account.
func (l *Ledger) Tenants() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(maps.Keys(l.accounts))
}

// Quotas returns what a tenant may have, and each of its trees.
func (l *Ledger) Quotas(tenant string) (all, tree api.Quota) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a := l.accounts[tenant]; a != nil {
		return a.Quota, a.Tree
	}
	return all, tree
}

// NetworkMax returns the upper bound of the networks of a tenant, or nil. It is not to be changed.
func (l *Ledger) NetworkMax(tenant string) *policy.Bound {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a := l.accounts[tenant]; a != nil {
		return a.NetworkMax
	}
	return nil
}

// Set changes quotas. max is the upper bound that u asks for.
func (l *Ledger) Set(ctx context.Context, tenant string, u api.TenantUpdate, max *policy.Bound) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	next := l.account(tenant).clone()
	if u.Quota != nil {
		next.Quota = *u.Quota
	}
	if u.Tree != nil {
		next.Tree = *u.Tree
	}
	if u.NetworkMax != nil || u.NoNetworkMax {
		next.NetworkMax = max
	}
	if err := l.store.Apply(ctx, store.Change{Table: store.Tenants, ID: tenant, Doc: next}); err != nil {
		return fmt.Errorf("change quota: %w", err)
	}
	l.accounts[tenant] = &next
	return nil
}

// Spent returns the processor time of a tenant, and of a tree of it.
func (l *Ledger) Spent(tenant, tree string) (all, ofTree float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a := l.accounts[tenant]; a != nil {
		return a.CPU, a.Trees[tree]
	}
	return 0, 0
}

// Spend books what a process, which key names, has used so far.
func (l *Ledger) Spend(tenant, tree, key string, total float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.account(tenant)
	if more := total - a.Seen[key]; more > 0 {
		a.CPU += more
		a.Trees[tree] += more
		a.Seen[key] = total
		l.dirty[tenant] = true
	}
}

// Save writes down what was booked, and forgets trees and processes that are gone.
func (l *Ledger) Save(ctx context.Context, treeLives, processLives func(string) bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var changes []store.Change
	for tenant := range l.dirty {
		a := l.accounts[tenant]
		maps.DeleteFunc(a.Trees, func(id string, _ float64) bool { return !treeLives(id) })
		maps.DeleteFunc(a.Seen, func(key string, _ float64) bool { return !processLives(key) })
		changes = append(changes, store.Change{Table: store.Tenants, ID: tenant, Doc: a.clone()})
	}
	if len(changes) == 0 {
		return nil
	}
	if err := l.store.Apply(ctx, changes...); err != nil {
		return fmt.Errorf("write usage: %w", err)
	}
	clear(l.dirty)
	return nil
}

// Ask is what somebody wants more of.
type Ask struct {
	Sandboxes int64
	Depth     int64 // of what is to be made
	Disk      bool  // it writes to disk
}

// Check refuses what would exceed q. of is whose it is, as in api.Exceeded.
func Check(of string, q api.Quota, used api.Consumption, ask Ask) error {
	making := ask.Sandboxes > 0
	for _, c := range []struct {
		name  string
		max   int64
		used  float64
		asked int64
		full  bool
		text  string
	}{
		{"sandboxes", q.Sandboxes, float64(used.Sandboxes), ask.Sandboxes, making && used.Sandboxes+ask.Sandboxes > q.Sandboxes, "sandboxes"},
		{"depth", q.Depth, float64(ask.Depth), 0, making && ask.Depth > q.Depth, "generations below the first sandbox"},
		{"memory_mib", q.MemoryMiB, used.MemoryMiB, 0, making && used.MemoryMiB >= float64(q.MemoryMiB), "MiB of memory"},
		{"disk_mib", q.DiskMiB, used.DiskMiB, 0, (making || ask.Disk) && used.DiskMiB >= float64(q.DiskMiB), "MiB on disk"},
		{"cpu_seconds", q.CPUSeconds, used.CPUSeconds, 0, used.CPUSeconds >= float64(q.CPUSeconds), "seconds of processor time"},
	} {
		if c.max == 0 || !c.full {
			continue
		}
		e := api.Errorf(api.CodeLimit, "%s: %s uses %.6g of %d %s", c.name, of, c.used, c.max, c.text)
		switch c.name {
		case "depth":
			e = api.Errorf(api.CodeLimit, "%s: %s may have %d %s, and this would be number %d", c.name, of, c.max, c.text, ask.Depth)
		case "sandboxes":
			e = api.Errorf(api.CodeLimit, "%s: %s has %d of %d %s, and the call asks for %d more", c.name, of, used.Sandboxes, c.max, c.text, c.asked)
		}
		e.Exceeded = &api.Exceeded{Limit: c.name, Of: of, Max: c.max, Used: c.used, Asked: c.asked}
		return e
	}
	return nil
}
