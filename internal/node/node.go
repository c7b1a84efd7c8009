package node

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"os"
	"sync"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/cgroup"
	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/image"
	"ramet.dev/ramet/internal/node/compare"
	"ramet.dev/ramet/internal/node/dataplane"
	"ramet.dev/ramet/internal/node/freezes"
	"ramet.dev/ramet/internal/node/images"
	"ramet.dev/ramet/internal/node/memfiles"
	"ramet.dev/ramet/internal/node/quota"
	"ramet.dev/ramet/internal/node/selfcontrol"
	"ramet.dev/ramet/internal/node/snapshots"
	"ramet.dev/ramet/internal/node/spawn"
	"ramet.dev/ramet/internal/node/timeline"
	"ramet.dev/ramet/internal/node/timer"
	"ramet.dev/ramet/internal/observe/events"
	"ramet.dev/ramet/internal/observe/procfs"
	"ramet.dev/ramet/internal/storage/paths"
	"ramet.dev/ramet/internal/storage/store"
)

// Config says where a node keeps things and what it may use.
type Config struct {
	Paths paths.Paths
	// Store keeps the records. It is held by this process.
	Store *store.Store
	// Audit is told of what the node does by itself.
	Audit Audit
	// TokenTenants returns the tenants that have a token the caller may know of.
	TokenTenants func(ctx context.Context) []string
	// Executable is the program that sentries are started from.
	Executable string
	// Engine names what the state of a sandbox depends on: a snapshot can only
	// be restored by the engine that made it.
	Engine string
	// PoolSize is how many blank sentries are kept ready.
	PoolSize launch.PoolSize
	// Command is the program by which a sandbox controls itself, sealed; nil
	// if none may.
	Command *os.File
	Log     *slog.Logger
	// Clock is what sandboxes' times are measured by; nil for the machine's.
	Clock timer.Clock
	// BootID tells one start of the host from another; empty to ask the host.
	BootID string
	// HostMemory is nil to ask the host.
	HostMemory quota.HostMemory
	// PackageCache is how many bytes of cached packages are kept; 0 for all.
	PackageCache int64
	// Observer may be nil.
	Observer Observer
}

// Audit takes entries of the audit.
type Audit interface {
	AppendAudit(e api.AuditEntry)
}

// Node implements the parts of service.Service that are about sandboxes, snapshots and images. It is safe for concurrent use.
type Node struct {
	cfg      Config
	log      *slog.Logger
	store    *store.Store
	cgroups  *cgroup.Hierarchy
	launcher *launch.Launcher
	pool     *launch.Pool
	spawner  *spawn.Spawner
	memFiles *memfiles.Table
	events   *events.Log
	*images.Catalog
	*compare.Comparer
	*dataplane.Plane
	*timeline.Timelines
	selfControl *selfcontrol.Server
	ledger      *quota.Ledger
	*quota.Admission
	room     *quota.Room
	heavy    *quota.Turns // exports and the like
	archives *quota.Turns // of files of sandboxes
	// hostMemory says how much memory is free.
	hostMemory quota.HostMemory

	mu        sync.Mutex
	instances map[string]*instance
	names     map[owned]string // of sandboxes and of those being made, to ids
	snapshots *snapshots.Set
	*snapshots.Requests
	goneNames map[string]goneRecord // of what has living descendants, by id
	freezes   *freezes.Table
	budgets   *selfcontrol.Budgets

	watchers sync.WaitGroup
	closing  chan struct{} // closed by Close: sentries are left alone

	timeout      time.Duration // see callTimeout; shorter in tests
	clock        timer.Clock
	timers       *timer.Queue
	rests        chan struct{} // has a value for each sandbox that is being put to disk because it is idle
	choreContext context.Context
	cancelChores context.CancelFunc // ends background
	chores       sync.WaitGroup     // what is done in background

	background       context.Context
	cancelBackground context.CancelFunc // ends background
	backgroundWork   sync.WaitGroup     // what is written, and which children are made, in background
}

// Open reads the node's records, finds the sandboxes that an earlier daemon left
// running and starts the pool.
func Open(ctx context.Context, cfg Config) (_ *Node, err error) {
	m := &Node{
		cfg: cfg, log: cfg.Log, store: cfg.Store, memFiles: memfiles.New(), events: events.New(keptEvents),
		instances: map[string]*instance{}, names: map[owned]string{},

		goneNames: map[string]goneRecord{}, budgets: selfcontrol.NewBudgets(), closing: make(chan struct{}),
		timeout: callTimeout, clock: cfg.Clock, rests: make(chan struct{}, restsAtOnce),
	}
	if m.clock == nil {
		m.clock = timer.System{}
	}
	m.timers = timer.New(m.clock)
	m.heavy = quota.NewTurns("exports, commits, comparisons and merges", heavyPerTenant, heavyAtOnce, turnTimeout)
	m.archives = quota.NewTurns("archives", archivesPerTenant, archivesAtOnce, turnTimeout)
	m.Comparer = m.newComparer()
	m.Timelines = m.newTimelines()
	m.Plane, m.selfControl = m.newDataPlane(), m.newSelfControl()
	if m.hostMemory = cfg.HostMemory; m.hostMemory == nil {
		m.hostMemory = readHostMemory
	}
	m.choreContext, m.cancelChores = context.WithCancel(context.WithoutCancel(ctx))
	m.background, m.cancelBackground = context.WithCancel(context.WithoutCancel(ctx))
	defer func() {
		if err != nil {
			m.cancelChores()
			m.cancelBackground()
		}
	}()
	if m.cfg.BootID == "" {
		if m.cfg.BootID, err = procfs.BootID(); err != nil {
			return nil, err
		}
	}
	m.freezes = freezes.New(m.memFiles, m.store, m.log, m.timeout, m.inUse)
	m.snapshots = m.newSnapshots()
	m.Requests = snapshots.NewRequests(m.snapshots)
	if m.ledger, err = quota.Open(ctx, m.store); err != nil {
		return nil, err
	}
	m.Admission, m.room = m.newAdmission(), m.newRoom()
	if m.cgroups, err = cgroup.Detect(cgroup.Options{Parent: groupName(cfg.Paths)}); err != nil {
		if !errors.Is(err, cgroup.ErrUnavailable) {
			return nil, fmt.Errorf("find control groups: %w", err)
		}
		m.log.Info("no control groups: limits will be refused", "reason", err)
		m.cgroups = nil
	} else if err := m.cgroups.Prepare(); err != nil {
		m.log.Info("no control groups: limits will be refused", "reason", err)
		m.cgroups = nil
	}
	store, err := image.Open(cfg.Paths.Images())
	if err != nil {
		return nil, err
	}
	m.Catalog = m.newCatalog(store)
	for _, dir := range []string{cfg.Paths.Snapshots(), cfg.Paths.Files()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("make data directory: %w", err)
		}
	}
	m.launcher, err = launch.New(ctx, launch.Config{
		Executable: cfg.Executable, Dir: cfg.Paths.Sandboxes(), FilesDir: cfg.Paths.Files(), BuildID: cfg.Engine, Cgroups: m.cgroups, Log: m.log,
	})
	if err != nil {
		return nil, err
	}
	adopted, err := m.recover(ctx)
	if err != nil {
		m.launcher.Close()
		return nil, err
	}
	m.pool = launch.NewPool(m.launcher, cfg.PoolSize, m.log)
	m.spawner = spawn.New(m.pool, m.launcher, m.cfg.BootID, m.engine())
	// Not before: recovery does not lock what watchers change, and sandboxes ask
	// for forks at once.
	for b, sentry := range adopted {
		m.watch(b, sentry)
	}
	m.arm(m.all()...)
	m.snapshots.Arm(m.snapshots.All()...)
	m.snapshots.Collect()
	m.chore(m.attend)
	m.chore(m.room.Keep)
	m.chore(func(ctx context.Context) { m.timers.Run(ctx, m.timeIsUp) })
	return m, nil
}

// groupName tells daemons apart that share a control group.
func groupName(p paths.Paths) string {
	h := fnv.New32a()
	h.Write([]byte(p.RuntimeDir()))
	return fmt.Sprintf("ramet-%08x", h.Sum32())
}

// Close ends the pool and lets go of the sandboxes, which run on.
func (m *Node) Close() error {
	close(m.closing)
	m.cancelChores()
	m.endBackground() // first: a chore may wait for a child that is being made
	m.chores.Wait()
	m.saveActivity(m.all()...)
	m.pool.Close()
	m.watchers.Wait()
	m.selfControl.Wait()
	m.launcher.Close()
	var err error
	if m.cgroups != nil {
		err = m.cgroups.Close() // stays while sandboxes are in it
	}
	m.bookAll()
	m.saveLedger(context.Background())
	return err
}

const (
	// MaxPoolSize bounds the pool.
	MaxPoolSize = 1024
	// Each blank sentry takes some 7 MiB, so a default pool takes at most a
	// hundredth of the machine's memory.
	memoryPerPooled = 700 << 20
	minDefaultPool  = 8
	maxDefaultPool  = 32
	// While somebody forks into very many, a pool may take a twentieth.
	memoryPerBurst = memoryPerPooled / 5
	maxBurstPool   = 128
)

// DefaultPoolSize is how many blank sentries are kept ready on a machine with so
// many bytes of memory: a third of a large fork, and at least enough for a small
// one with some to spare; after a larger fork enough for the next one like it.
func DefaultPoolSize(memory uint64) launch.PoolSize {
	bounded := func(n, most uint64) int { return int(min(max(n, minDefaultPool), most)) }
	return launch.PoolSize{Least: bounded(memory/memoryPerPooled, maxDefaultPool), Most: bounded(memory/memoryPerBurst, maxBurstPool)}
}

// FixedPoolSize is that of a pool that keeps n.
func FixedPoolSize(n int) launch.PoolSize { return launch.PoolSize{Least: n, Most: n} }

// millis returns how long ago t was.
func millis(t time.Time) float64 { return float64(time.Since(t).Microseconds()) / 1000 }

// stateVersion changes when what Ramet itself puts into a sandbox's saved state
// does.
const stateVersion = 11

// engine is what a snapshot's format depends on.
func (m *Node) engine() string { return fmt.Sprintf("%s, state %d", m.cfg.Engine, stateVersion) }
