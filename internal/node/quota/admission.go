package quota

import (
	"context"
	"sync"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/network/policy"
)

const (
	// PerSandbox is what a new sandbox needs at least, in bytes: its processes on the
	// host, and the first pages that it writes.
	PerSandbox = 12 << 20
	// RoomTimeout bounds how long a request waits until room was made, and how long
	// Room waits for all sandboxes of which none is on disk yet.
	RoomTimeout = 20 * time.Second
)

// HostMemory says how many bytes of memory the host has, and how many are free for
// something new.
type HostMemory func() (free, total int64, err error)

// Reserve is what is to stay free of a machine's memory: a fiftieth, within bounds.
func Reserve(total int64) int64 { return min(max(total/50, 96<<20), 1<<30) }

// Tree returns the tree that something with a lineage belongs to: its first sandbox or
// snapshot, "" for a tree that is to be.
func Tree(lineage []string) string {
	if len(lineage) == 0 {
		return ""
	}
	return lineage[0]
}

// Config is what an Admission needs of the node.
type Config struct {
	Ledger *Ledger
	// HostMemory is asked at each admission.
	HostMemory HostMemory
	// Holdings adds up what a tenant has, or one tree of it, except processor time.
	Holdings func(tenant, tree string) api.Consumption
	// MakeRoom frees memory, and reports whether it could.
	MakeRoom func(ctx context.Context) bool
	// Owners returns the tenants that own anything, whether they have a quota or not.
	Owners func(ctx context.Context) (map[string]bool, error)
	// Networks has the networks of tenants.
	Networks Networks
}

// Networks enforces what tenants may do with networks.
type Networks interface {
	// Bound returns the upper bound that is asked for the networks of a tenant.
	Bound(ctx context.Context, tenant string, req *api.NetworkRequest) (*policy.Bound, error)
	// Enforce puts what the ledger says of a tenant in force.
	Enforce(ctx context.Context, tenant string) error
	// Traffic returns what the networks of tenants do now.
	Traffic(ctx context.Context) map[string]api.Consumption
}

// Admission decides what may be made. What is about to be made counts like what there
// is, from the moment that it is admitted: of two requests for the last place one is
// refused. It is safe for concurrent use.
type Admission struct {
	cfg      Config
	updating sync.Mutex // of a tenant; before mu

	mu      sync.Mutex
	making  map[string]int64 // sandboxes, by tenant
	inTree  map[string]int64 // sandboxes, by tree
	pending int64            // bytes of memory that they will need
}

// NewAdmission returns an Admission that has promised nothing.
func NewAdmission(cfg Config) *Admission {
	return &Admission{cfg: cfg, making: map[string]int64{}, inTree: map[string]int64{}}
}

// Admit refuses n new sandboxes that would exceed a quota or do not fit the machine.
// lineage is what they descend from. With n = 0 something is written to disk. done is
// called when they are there, or failed. If memory is short, Admit waits for MakeRoom:
// the caller must not hold the lock of a sandbox that could be put to disk.
func (a *Admission) Admit(ctx context.Context, tenant string, lineage []string, n int) (done func(), err error) {
	return a.withRoom(ctx, func() (func(), error) { return a.try(tenant, lineage, n) })
}

// AdmitAgain is Admit for a sandbox that there is, and to which no process on the host
// belongs: it counts already, and needs memory again.
func (a *Admission) AdmitAgain(ctx context.Context) (done func(), err error) {
	return a.withRoom(ctx, func() (func(), error) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if err := a.fitsLocked(PerSandbox); err != nil {
			return nil, err
		}
		return a.promiseLocked(PerSandbox), nil
	})
}

// Promise keeps memory for n sandboxes that were admitted and are not made yet.
func (a *Admission) Promise(n int) (done func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.promiseLocked(int64(n) * PerSandbox)
}

// Promised returns the bytes of memory that are kept for what is being made.
func (a *Admission) Promised() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.pending
}

// promiseLocked is called with a.mu held.
func (a *Admission) promiseLocked(bytes int64) (done func()) {
	a.pending += bytes
	return sync.OnceFunc(func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.pending -= bytes
	})
}

// withRoom makes room as long as try fails for want of memory, and there is some to make.
func (a *Admission) withRoom(ctx context.Context, try func() (func(), error)) (done func(), err error) {
	waiting, cancel := context.WithTimeout(ctx, RoomTimeout)
	defer cancel()
	for {
		done, err := try()
		if api.CodeOf(err) != api.CodeNoMemory || waiting.Err() != nil || !a.cfg.MakeRoom(waiting) {
			return done, err
		}
	}
}

func (a *Admission) try(tenant string, lineage []string, n int) (done func(), err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	tree := Tree(lineage)
	if err := a.checkLocked(tenant, tree, Ask{Sandboxes: int64(n), Depth: int64(len(lineage)), Disk: n == 0}); err != nil {
		return nil, err
	}
	need := int64(n) * PerSandbox
	if err := a.fitsLocked(need); err != nil {
		return nil, err
	}
	a.making[tenant] += int64(n)
	a.inTree[tree] += int64(n)
	kept := a.promiseLocked(need)
	return sync.OnceFunc(func() {
		kept()
		a.mu.Lock()
		defer a.mu.Unlock()
		subtract(a.making, tenant, int64(n))
		subtract(a.inTree, tree, int64(n))
	}), nil
}

func subtract(from map[string]int64, key string, n int64) {
	if from[key] -= n; from[key] == 0 {
		delete(from, key)
	}
}

// checkLocked compares with the quotas of a tenant and a tree. It is called with a.mu held.
func (a *Admission) checkLocked(tenant, tree string, ask Ask) error {
	ofTenant, ofTree := a.cfg.Ledger.Quotas(tenant)
	if ofTenant != (api.Quota{}) {
		used := a.consumption(tenant, "")
		used.Sandboxes += a.making[tenant]
		if err := Check("tenant "+tenant, ofTenant, used, ask); err != nil {
			return err
		}
	}
	if ofTree == (api.Quota{}) {
		return nil
	}
	of := "tree " + tree
	var used api.Consumption
	if tree == "" {
		of = "a new tree"
	} else {
		used = a.consumption(tenant, tree)
		used.Sandboxes += a.inTree[tree]
	}
	return Check(of, ofTree, used, ask)
}

// fitsLocked refuses what needs more memory than is free. It is called with a.mu held.
func (a *Admission) fitsLocked(need int64) error {
	free, total, err := a.cfg.HostMemory()
	if err != nil || need == 0 { // nothing is known, and so nothing is refused
		return nil
	}
	const mib = 1 << 20
	if keep := Reserve(total); free-need-a.pending < keep {
		return api.Errorf(api.CodeNoMemory, "this needs %d MiB of memory and %d MiB are to stay free, but %d MiB of %d MiB are free, of which %d MiB are promised: remove or hibernate sandboxes",
			need/mib, keep/mib, free/mib, total/mib, a.pending/mib)
	}
	return nil
}

// MayRun refuses to do anything in a sandbox whose processor time is used up.
func (a *Admission) MayRun(tenant, tree string) error {
	ofTenant, ofTree := a.cfg.Ledger.Quotas(tenant)
	all, ours := a.cfg.Ledger.Spent(tenant, tree)
	if err := Check("tenant "+tenant, api.Quota{CPUSeconds: ofTenant.CPUSeconds}, api.Consumption{CPUSeconds: all}, Ask{}); err != nil {
		return err
	}
	return Check("tree "+tree, api.Quota{CPUSeconds: ofTree.CPUSeconds}, api.Consumption{CPUSeconds: ours}, Ask{})
}

// consumption adds up what a tenant has and used, or one tree of it.
func (a *Admission) consumption(tenant, tree string) api.Consumption {
	c := a.cfg.Holdings(tenant, tree)
	all, ours := a.cfg.Ledger.Spent(tenant, tree)
	if c.CPUSeconds = all; tree != "" {
		c.CPUSeconds = ours
	}
	return c
}
