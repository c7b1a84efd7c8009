package node

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"os"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/cgroup"
	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/image"
	"ramet.dev/ramet/internal/network/held"
	"ramet.dev/ramet/internal/node/accounting"
	"ramet.dev/ramet/internal/node/background"
	"ramet.dev/ramet/internal/node/branching"
	"ramet.dev/ramet/internal/node/capture"
	"ramet.dev/ramet/internal/node/compare"
	"ramet.dev/ramet/internal/node/dataplane"
	"ramet.dev/ramet/internal/node/engines"
	"ramet.dev/ramet/internal/node/explore"
	"ramet.dev/ramet/internal/node/freezes"
	"ramet.dev/ramet/internal/node/images"
	"ramet.dev/ramet/internal/node/inspect"
	"ramet.dev/ramet/internal/node/lineage"
	"ramet.dev/ramet/internal/node/memfiles"
	"ramet.dev/ramet/internal/node/meter"
	"ramet.dev/ramet/internal/node/networks"
	"ramet.dev/ramet/internal/node/portable"
	"ramet.dev/ramet/internal/node/published"
	"ramet.dev/ramet/internal/node/quota"
	"ramet.dev/ramet/internal/node/resting"
	"ramet.dev/ramet/internal/node/sandboxes"
	"ramet.dev/ramet/internal/node/selfcontrol"
	"ramet.dev/ramet/internal/node/snapshots"
	"ramet.dev/ramet/internal/node/spawn"
	"ramet.dev/ramet/internal/node/swap"
	"ramet.dev/ramet/internal/node/timeline"
	"ramet.dev/ramet/internal/node/timer"
	"ramet.dev/ramet/internal/node/trust"
	"ramet.dev/ramet/internal/node/views"
	"ramet.dev/ramet/internal/node/volumes"
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
	// Trust are the keys one of which must have signed a snapshot that arrives; empty for none.
	Trust []string
	// KeepEngines has programs that snapshots were written by outlive their version.
	KeepEngines bool
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
	// PortGuard makes the handlers of published ports with a token; nil if none may have one.
	PortGuard published.NewGuard
	// PackageCache is how many bytes of cached packages are kept; 0 for all.
	PackageCache int64
	// Observer may be nil.
	Observer meter.Observer
	// Gateway is the program that opens the connections of sandboxes, and GatewayBuild what tells it
	// from others.
	Gateway, GatewayBuild string
	// ResolvConf and Hosts are the files of the resolver that gateways ask for names; empty for
	// those of the machine.
	ResolvConf, Hosts string
	// HostCAs is the bundle of certificate authorities that the host trusts; empty for that of the machine.
	HostCAs string
	// Held bounds the requests that are held of a sandbox; zero for the usual limits.
	Held held.Limits
	// NetworkMax asks for the document that has to allow what sandboxes may reach; nil if nothing
	// bounds them.
	NetworkMax *api.NetworkRequest
}

// Audit takes entries of the audit.
type Audit interface {
	AppendAudit(e api.AuditEntry)
}

// Node implements the parts of service.Service that are about sandboxes, snapshots and
// images. It only composes: each part of it is a package. It is safe for concurrent use.
type Node struct {
	offers

	cfg      Config
	cgroups  *cgroup.Hierarchy
	launcher *launch.Launcher
	engines  *engines.Engines
	pool     *launch.Pool
	spawner  *spawn.Spawner
	meter    meter.Meter

	// What sandboxes and snapshots consist of, and what is known of them.
	memFiles  *memfiles.Table
	freezes   *freezes.Table
	snapshots *snapshots.Set
	sandboxes *sandboxes.Registry
	remains   *lineage.Remains
	budgets   *selfcontrol.Budgets
	networks  *networks.Networks
	volumes   *volumes.Volumes
	trust     *trust.Trust
	events    *sandboxes.EventLog
	trees     *lineage.Trees
	inspector *inspect.Inspector
	images    *images.Catalog

	// What is done with them.
	views       *views.Views
	swapper     *swap.Swapper
	rester      *resting.Rester
	lifecycles  *resting.Lifecycles
	taker       *capture.Taker
	forker      *branching.Forker
	comparer    *compare.Comparer
	plane       *dataplane.Plane
	timelines   *timeline.Timelines
	publisher   *published.Publisher
	explorer    *explore.Explorer
	selfControl *selfcontrol.Server

	// What they may take.
	ledger    *quota.Ledger
	books     *accounting.Books
	attendant *accounting.Attendant
	admission *quota.Admission
	room      *quota.Room
	heavy     *quota.Turns // exports and the like
	archives  *quota.Turns // of files of sandboxes

	alarms     *timer.Queue
	timers     *resting.Timers
	chores     *background.Group // what has become due
	background *background.Group // what is written, and which children are made, in background
}

// callTimeout bounds calls that freeze, stop or clean up: a sentry that hangs must not
// keep its sandbox from being destroyed, nor others waiting. What it did not give back
// goes when it ends.
const callTimeout = 30 * time.Second

// Open reads the node's records, finds the sandboxes that an earlier daemon left
// running and starts the pool.
func Open(ctx context.Context, cfg Config) (_ *Node, err error) {
	if cfg.Clock == nil {
		cfg.Clock = timer.System{}
	}
	if cfg.HostMemory == nil {
		cfg.HostMemory = readHostMemory
	}
	if cfg.BootID == "" {
		if cfg.BootID, err = procfs.BootID(); err != nil {
			return nil, err
		}
	}
	if err := portable.ValidTrust(cfg.Trust); err != nil {
		return nil, err
	}
	m := &Node{cfg: cfg, chores: background.New(ctx), background: background.New(ctx)}
	defer func() {
		if err != nil {
			m.chores.Cancel()
			m.background.Cancel()
		}
	}()
	if m.ledger, err = quota.Open(ctx, cfg.Store); err != nil {
		return nil, err
	}
	if m.cgroups, err = cgroup.Detect(cgroup.Options{Parent: groupName(cfg.Paths)}); err != nil {
		if !errors.Is(err, cgroup.ErrUnavailable) {
			return nil, fmt.Errorf("find control groups: %w", err)
		}
		cfg.Log.Info("no control groups: limits will be refused", "reason", err)
		m.cgroups = nil
	} else if err := m.cgroups.Prepare(); err != nil {
		cfg.Log.Info("no control groups: limits will be refused", "reason", err)
		m.cgroups = nil
	}
	catalog, err := image.Open(cfg.Paths.Images())
	if err != nil {
		return nil, err
	}
	for _, dir := range []string{cfg.Paths.Snapshots(), cfg.Paths.Files()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("make data directory: %w", err)
		}
	}
	starts := launch.Config{
		Executable: cfg.Executable, Dir: cfg.Paths.Sandboxes(), FilesDir: cfg.Paths.Files(), BuildID: cfg.Engine, Cgroups: m.cgroups, Log: cfg.Log,
	}
	if m.engines, err = m.openEngines(starts); err != nil {
		return nil, err
	}
	if m.launcher, err = launch.New(ctx, starts); err != nil {
		return nil, err
	}
	m.composeThings(catalog)
	if m.trust, err = trust.New(trust.Config{Bundle: cfg.HostCAs, Views: m.views, Log: cfg.Log}); err != nil {
		m.launcher.Close()
		return nil, err
	}
	if m.networks, err = m.newNetworks(ctx); err != nil {
		m.launcher.Close()
		return nil, err
	}
	if m.volumes, err = m.openVolumes(ctx); err != nil {
		m.networks.Close()
		m.launcher.Close()
		return nil, err
	}
	adopted, err := m.recover(ctx)
	if err != nil {
		m.networks.Close()
		m.launcher.Close()
		return nil, err
	}
	m.pool = launch.NewPool(m.launcher, cfg.PoolSize, cfg.Log)
	m.composeUses()
	// Last of what can fail.
	if m.publisher, err = m.openPublisher(ctx); err != nil {
		m.pool.Close()
		m.networks.Close()
		m.launcher.Close()
		return nil, err
	}
	m.offers.listens = m.publisher
	if m.explorer, err = m.openExplorer(ctx); err != nil {
		m.publisher.Close()
		m.pool.Close()
		m.networks.Close()
		m.launcher.Close()
		return nil, err
	}
	m.offers.explores = m.explorer
	m.networks.Adopt(ctx)
	// Not before: recovery does not lock what watchers change, and sandboxes ask
	// for forks at once.
	adopted.Watch()
	for _, b := range m.sandboxes.All() {
		m.timers.Arm(b)
	}
	m.snapshots.Arm(m.snapshots.All()...)
	m.snapshots.Collect()
	m.chores.Go(m.attendant.Attend)
	m.chores.Go(m.room.Keep)
	m.chores.Go(func(ctx context.Context) { m.alarms.Run(ctx, m.timeIsUp) })
	m.explorer.Resume()
	return m, nil
}

// composeThings puts together what sandboxes, snapshots and images are, and what is known of
// them.
func (m *Node) composeThings(catalog *image.Store) {
	cfg := m.cfg
	m.meter = meter.Meter{Observer: cfg.Observer}
	m.alarms = timer.New(cfg.Clock)
	m.timers = resting.NewTimers(m.alarms, cfg.Clock)
	m.memFiles, m.budgets = memfiles.New(), selfcontrol.NewBudgets()
	m.freezes = freezes.New(m.memFiles, cfg.Store, cfg.Log, callTimeout, func(s *launch.Sentry) bool { return m.sandboxes.InUse(s) })
	m.sandboxes = sandboxes.NewRegistry(sandboxes.Config{
		Store: cfg.Store, Freezes: m.freezes, Clock: cfg.Clock, Log: cfg.Log, Timeout: callTimeout, Listener: listener{m},
	})
	m.events = m.sandboxes.Events
	m.snapshots = snapshots.New(snapshots.Config{
		Paths: cfg.Paths, Store: cfg.Store, MemFiles: m.memFiles, Freezes: m.freezes, Alarms: m.alarms, Log: cfg.Log, Engines: m.engines,
		Keeps:    m.sandboxes.Keeps,
		Gone:     func(rec *snapshots.Record) []store.Change { return m.remains.SnapshotGone(rec) },
		Dropped:  func(rec *snapshots.Record) { m.remains.DropBudget(rec.Control) },
		Panicked: func(doing string, v any) error { return background.Recovered(cfg.Log, doing, v) },
	})
	m.remains = lineage.NewRemains(m.sandboxes, m.snapshots, m.budgets, cfg.Store, cfg.Log)
	m.trees = lineage.NewTrees(m.remains)
	m.images = m.newCatalog(catalog)
	m.inspector = inspect.New(inspect.Config{Sandboxes: m.sandboxes, Snapshots: m.snapshots, Trees: m.trees, Images: m.images, Clock: cfg.Clock})
	m.views = views.New(views.Config{Sandboxes: m.sandboxes, Snapshots: m.snapshots, Freezes: m.freezes, MemFiles: m.memFiles, Images: m.images})
	m.books = accounting.NewBooks(m.ledger, m.sandboxes, m.snapshots, m.memFiles, cfg.Log)
}

// composeUses puts together what is done with sandboxes, snapshots and images.
func (m *Node) composeUses() {
	cfg := m.cfg
	m.admission, m.heavy, m.archives = m.newAdmission(), newHeavyTurns(), newArchiveTurns()
	m.spawner = spawn.New(spawn.Config{Pool: m.pool, Launcher: m.launcher, Freezes: m.freezes, Images: m.images, Volumes: shared{m}, BootID: cfg.BootID, Log: cfg.Log, Engines: m.engines})
	freezer := capture.NewFreezer(m.freezes, cfg.Clock, m.engines, m.meter)
	m.swapper = swap.New(swap.Config{
		Sandboxes: m.sandboxes, Snapshots: m.snapshots, Freezes: m.freezes, Spawner: m.spawner, Trust: m.trust, Admission: m.admission, Meter: m.meter,
	})
	m.rester = resting.New(resting.Config{
		Sandboxes: m.sandboxes, Snapshots: m.snapshots, Freezes: m.freezes, Freezer: freezer, Swapper: m.swapper, Inspector: m.inspector,
		Admission: m.admission, Timers: m.timers, Images: m.images, Networks: m.networks, Store: cfg.Store, Clock: cfg.Clock, Meter: m.meter, Timeout: callTimeout,
	})
	m.lifecycles = resting.NewLifecycles(m.rester, m.chores, cfg.Audit, cfg.Log)
	m.room = quota.NewRoom(quota.RoomConfig{HostMemory: cfg.HostMemory, Idle: m.lifecycles.Idle, After: cfg.Clock.After, Background: m.chores.Go})
	m.taker = capture.NewTaker(capture.Config{
		Freezer: freezer, Sandboxes: m.sandboxes, Snapshots: m.snapshots, Store: cfg.Store, Admission: m.admission, Images: m.images,
		Uses: m.rester, Background: m.background, Meter: m.meter, Log: cfg.Log,
	})
	m.forker = branching.NewForker(branching.Config{
		Sandboxes: m.sandboxes, Snapshots: m.snapshots, Freezes: m.freezes, Freezer: freezer, Rester: m.rester, Timers: m.timers, Spawner: m.spawner,
		Admission: m.admission, Images: m.images, Networks: m.networks, Trust: m.trust, Volumes: m.volumes, Background: m.background, Audit: cfg.Audit, Clock: cfg.Clock, Meter: m.meter, Log: cfg.Log,
	})
	creator := branching.NewCreator(m.forker, branching.CreatorConfig{
		Secrets:   networks.NewSecrets(m.networks),
		Inspector: m.inspector, Remains: m.remains, Command: cfg.Command, HostMemory: cfg.HostMemory, FilesDir: cfg.Paths.Files(),
	})
	m.attendant = accounting.NewAttendant(accounting.Config{
		Books: m.books, Admission: m.admission, Pauser: m.rester, Chores: m.chores, Audit: cfg.Audit, Clock: cfg.Clock, Meter: m.meter, Log: cfg.Log,
	})
	m.plane, m.selfControl = m.newDataPlane(), m.newSelfControl()
	m.comparer, m.timelines = m.newComparer(), m.newTimelines()
	m.offers = offers{
		creates: creator, inspects: m.inspector, updates: m.lifecycles, rests: m.rester, forks: m.forker, swaps: m.swapper, draws: m.trees,
		takes: m.taker, keeps: snapshots.NewRequests(m.snapshots), travels: m.newPorter(), imports: m.images, admits: m.admission,
		runs: m.plane, connects: m.networks, guards: networks.NewSecrets(m.networks), holds: networks.NewHeld(m.networks), shares: m.volumes, compares: m.comparer, steps: m.timelines, publishes: m.events,
	}
}

// groupName tells daemons apart that share a control group.
func groupName(p paths.Paths) string {
	h := fnv.New32a()
	h.Write([]byte(p.RuntimeDir()))
	return fmt.Sprintf("ramet-%08x", h.Sum32())
}

// backgroundGrace is how long what is being written, and a child that is being made, may
// take when the daemon is to end.
const backgroundGrace = 10 * time.Second

// Close ends the pool and lets go of the sandboxes, which run on.
func (m *Node) Close() error {
	m.explorer.Close() // first of all: it ends sandboxes
	m.publisher.Close()
	m.sandboxes.Close()
	m.chores.Cancel()
	m.background.Finish(backgroundGrace) // first: a chore may wait for a child that is being made
	m.chores.Wait()
	resting.SaveActivity(m.cfg.Store, m.cfg.Log, m.cfg.Clock.Now(), m.sandboxes.All()...)
	m.pool.Close()
	m.sandboxes.Wait()
	m.selfControl.Wait()
	m.volumes.Close()
	m.networks.Close()
	m.launcher.Close()
	m.engines.Close()
	var err error
	if m.cgroups != nil {
		err = m.cgroups.Close() // stays while sandboxes are in it
	}
	m.attendant.BookAll()
	m.books.Save(context.Background())
	return err
}

// stateVersion changes when what Ramet itself puts into a sandbox's saved state
// does.
const stateVersion = 13

// engine is what a snapshot's format depends on.
func (m *Node) engine() string { return fmt.Sprintf("%s, state %d", m.cfg.Engine, stateVersion) }

// openEngines finds the programs that snapshots were written by.
func (m *Node) openEngines(starts launch.Config) (*engines.Engines, error) {
	cfg := engines.Config{Own: engines.Program{Name: m.engine(), Build: m.cfg.Engine}, Executable: m.cfg.Executable, Launch: starts, Log: m.cfg.Log}
	if m.cfg.KeepEngines {
		cfg.Dir = m.cfg.Paths.Engines()
	}
	return engines.Open(cfg)
}

// keepEngines keeps the own program if snapshots on disk are its, and removes those that no snapshot and no
// sandbox is of.
func (m *Node) keepEngines() error {
	needed := map[string]bool{}
	for _, s := range m.snapshots.All() {
		if v := s.View(); v.OnDisk && v.State == api.SnapshotReady {
			needed[v.Engine] = true
		}
	}
	if needed[m.engine()] {
		if err := m.engines.Keep(); err != nil {
			m.cfg.Log.Warn("a later version of Ramet may not restore snapshots", "error", err)
		}
	}
	for _, b := range m.sandboxes.All() {
		needed[b.Record().Engine] = true
	}
	return m.engines.Sweep(func(name string) bool { return needed[name] })
}
