package guest

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/cpuid"
	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/pkg/rand"
	"gvisor.dev/gvisor/pkg/sentry/fsimpl/cgroup2fs"
	"gvisor.dev/gvisor/pkg/sentry/inet"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
	"gvisor.dev/gvisor/pkg/sentry/loader"
	"gvisor.dev/gvisor/pkg/sentry/time"
	"gvisor.dev/gvisor/pkg/sentry/usage"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
	"gvisor.dev/gvisor/pkg/sighandling"

	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/sentry/birth"
	"ramet.dev/ramet/internal/sentry/codectx"
	"ramet.dev/ramet/internal/sentry/cow"
	"ramet.dev/ramet/internal/sentry/dormant"
	"ramet.dev/ramet/internal/sentry/fspatch"
	"ramet.dev/ramet/internal/sentry/gate"
	"ramet.dev/ramet/internal/sentry/guestfs"
	"ramet.dev/ramet/internal/sentry/kern"
	"ramet.dev/ramet/internal/sentry/limitfs"
	"ramet.dev/ramet/internal/sentry/netspaces"
	"ramet.dev/ramet/internal/sentry/platforms"
	"ramet.dev/ramet/internal/sentry/ports"
	"ramet.dev/ramet/internal/sentry/proc"
	"ramet.dev/ramet/internal/sentry/rootfs"
	"ramet.dev/ramet/internal/sentry/selfctl"
	"ramet.dev/ramet/internal/sentry/selffork"
	"ramet.dev/ramet/internal/sentry/spawn"
	"ramet.dev/ramet/internal/sentry/syscalls"
	"ramet.dev/ramet/internal/sentry/uplink"
	"ramet.dev/ramet/internal/sentry/volumes"
)

// Blank is a process that is ready to become a sandbox: it has all parts that are the same
// in every sandbox.
type Blank struct {
	plat   *cow.Platform
	hosted *dormant.Platform // which plat wraps
	mem    *cow.Memory
	files  *os.File
	clocks time.Clocks

	inherited *inheritance // of a fork of a Template; nil if Load decodes

	Volumes *volumes.Client  // which asks the daemon
	Forker  *selffork.Forker // of this process; nil in tests: then nothing is saved apart
}

// Initialize prepares gVisor's packages. Call it once per process, while the
// host's /proc can be read.
func Initialize(kind platforms.Platform) error {
	// seccheck.Initialize is left out: it takes longer than all the rest, and its result is
	// not used without a sink for its events.
	cpuid.Initialize()
	if err := rand.Init(); err != nil {
		return fmt.Errorf("initialize random source: %w", err)
	}
	readMaxMappings()
	if err := readMachine(); err != nil {
		return err
	}
	netspaces.Replace()
	return syscalls.Replace(kind.Calls())
}

// Born is what a process is born with: memory, a memfd, and files, an empty file for what the sandbox writes
// to its file system.
type Born struct {
	Memory, Files *os.File
	// Template is set in a fork of one.
	Template *Template
}

// NewBlank makes the platform, whose processes inherit the privileges that are
// left, and the memory. It calls born when all is done that is the same for every
// sentry: born may return in another process, and gives what is that one's own,
// which is taken over. Call it once per process, after Initialize and before
// system calls are filtered.
func NewBlank(kind platforms.Platform, born func() Born) (*Blank, error) {
	if err := sighandling.IgnoreChildStop(); err != nil {
		return nil, fmt.Errorf("ignore stopped children: %w", err)
	}
	var own Born
	made, err := kind.Make(func() { own = born() })
	if err != nil {
		return nil, err
	}
	if err := birth.ForgetRandom(); err != nil {
		return nil, err
	}
	if own.Template != nil {
		return own.Template.bear(own, made)
	}
	mem, err := newMemory(own.Memory)
	if err != nil {
		return nil, err
	}
	b := newBlank(dormant.NewPlatform(made), mem, own.Files)
	if err := b.plat.Spare(kind.Spares()); err != nil {
		log.Warningf("Spare address spaces: %v", err) // a process that needs one asks the host again
	}
	return b, nil
}

// newMemory makes the memory of a sandbox. Call it once per process.
func newMemory(file *os.File) (*cow.Memory, error) {
	if err := usage.Init(); err != nil {
		return nil, fmt.Errorf("initialize memory accounting: %w", err)
	}
	// gVisor counts in shared memory, for readers that Ramet does not have: forks of the process would share it.
	page := usage.MemoryAccounting.RTMemoryStats
	usage.MemoryAccounting.RTMemoryStats = &usage.RTMemoryStats{}
	if err := errors.Join(unix.MunmapPtr(unsafe.Pointer(page), usage.RTMemoryStatsSize), usage.MemoryAccounting.File.Close()); err != nil {
		return nil, fmt.Errorf("give up shared memory accounting: %w", err)
	}
	return cow.NewMemory(file)
}

func newBlank(hosted *dormant.Platform, mem *cow.Memory, files *os.File) *Blank {
	plat := cow.NewPlatform(hosted, mem)
	limitfs.PeakMemory = plat.PeakUsage
	return &Blank{
		plat: plat, hosted: hosted, mem: mem, files: files,
		clocks: time.NewCalibratedClocks(false), Volumes: &volumes.Client{},
	}
}

// Guest is a running sandbox.
type Guest struct {
	Gate      *gate.Gate
	Files     *guestfs.Files
	Tree      *fspatch.Tree
	Processes *proc.Processes
	Contexts  *codectx.Contexts
	Ports     *ports.Ports
	Network   *Network
	Control   *selfctl.Controller // nil if the sandbox may not control itself

	k         *kern.Kernel
	mem       *cow.Memory
	disk      *disk
	spawner   *spawn.Spawner
	table     *proc.Table
	freezes   int64            // made so far; guarded by Gate
	forker    *selffork.Forker // see Blank
	collector collector
	forked    bool // from a Template
	spaces    *netspaces.Namespaces
}

func (b *Blank) newGuest(k *kernel.Kernel, id wire.Common, d *disk, spaces *netspaces.Namespaces) *Guest {
	g := &Guest{Gate: gate.NewAtRest(k), k: &kern.Kernel{Kernel: k}, mem: b.mem, disk: d, forker: b.Forker, spaces: spaces}
	k.AddStateToCheckpoint(netspaces.Key, spaces)
	settings, _ := k.PopCheckpointState(limitfs.SettingsKey).(*limitfs.Settings)
	k.AddStateToCheckpoint(limitfs.SettingsKey, limitfs.UseSettings(settings))
	g.spawner = spawn.New(g.k, id)
	g.Network = &Network{k: g.k, gate: g.Gate, uplink: uplink.New(g.k, g.Gate, func(port uint16, gone <-chan struct{}) (uplink.Stream, error) {
		return g.Ports.Dial(port, 0, gone)
	})}
	return g
}

// equip gives the guest the objects that are saved with its kernel.
func (g *Guest) equip(table *proc.Table, contexts *codectx.Contexts, held *guestfs.Held, conns *ports.Conns) {
	g.table, g.Contexts = table, contexts
	g.Processes = proc.New(g.k, g.Gate, g.spawner, table)
	g.Tree = fspatch.New(g.k, g.Gate, g.disk.fs)
	g.Files, g.Ports = guestfs.New(g.k, g.Gate, held), ports.New(g.k, g.Gate, conns)
	g.k.AddStateToCheckpoint(proc.TableKey, table)
	g.k.AddStateToCheckpoint(codectx.StateKey, contexts)
	g.k.AddStateToCheckpoint(guestfs.HeldKey, held)
	g.k.AddStateToCheckpoint(ports.ConnsKey, conns)
}

// id returns the names, environment and limits of the sandbox. They change with the gate
// locked.
func (g *Guest) id() *wire.Common { return &g.spawner.Identity }

// Boot makes b a new sandbox whose root file system is image, a descriptor that
// it takes over. mounts are its volumes. command is the program by which a sandbox that may control
// itself does, nil for others. channel is that to the gateway, nil for a sandbox without
// a network; it is taken over, too.
func (b *Blank) Boot(id wire.Common, mounts []wire.VolumeMount, image, command, channel *os.File) (*Guest, error) {
	birth.UseProcessors() // the network stack has as many goroutines for TCP, and so have all descendants
	unsettled(id.Limits.MemoryMiB)
	showMemory(id.Limits)
	k := &kernel.Kernel{Platform: b.plat, AllowSUID: true} // as on any machine: sudo, su
	k.SetMemoryFile(b.mem.MemoryFile())
	vdso, err := loader.PrepareVDSO(b.mem.MemoryFile())
	if err != nil {
		return nil, fmt.Errorf("prepare vdso: %w", err)
	}
	params := kernel.NewVDSOParamPage(b.mem.MemoryFile(), vdso.ParamPage.FileRange())
	tk := kernel.NewTimekeeper()
	tk.SetClocks(b.clocks, params)
	userNS := auth.NewRootUserNamespace()
	spaces := netspaces.New(k)
	stack, err := netspaces.NewRoot(tk, k)
	if err != nil {
		return nil, err
	}
	err = k.Init(kernel.InitKernelArgs{
		FeatureSet:           hostFeatures(),
		Timekeeper:           tk,
		RootUserNamespace:    userNS,
		RootNetworkNamespace: inet.NewRootNamespace(stack, spaces, userNS),
		ApplicationCores:     processorsOf(id.Limits),
		Vdso:                 vdso,
		VdsoParams:           params,
		RootUTSNamespace:     kernel.NewUTSNamespace(id.Hostname, "", userNS),
		RootIPCNamespace:     kernel.NewIPCNamespace(userNS),
		RootPIDNamespace:     kernel.NewRootPIDNamespace(userNS),
		Cgroup2FSInit:        cgroup2fs.NewFilesystem,
	})
	if err != nil {
		return nil, fmt.Errorf("initialize kernel: %w", err)
	}
	d, err := b.newDisk(image, nil, nil)
	if err != nil {
		return nil, err
	}
	g := b.newGuest(k, id, d, spaces)
	if err := g.start(command, func() error { return volumes.Mount(k.SupervisorContext(), g.k, b.Volumes, mounts) }); err != nil {
		return nil, err
	}
	if g.Control != nil {
		g.Control.Serve()
	}
	if channel != nil {
		unwritten, err := g.Network.Connect(channel)
		if err == nil && len(unwritten) > 0 {
			err = errUnwritten(unwritten)
		}
		if err != nil {
			return nil, err
		}
	}
	return g, nil
}

// start mounts the file systems and runs init.
func (g *Guest) start(command *os.File, mountVolumes func() error) error {
	if err := registerFilesystems(g.k.Kernel); err != nil {
		return err
	}
	ctx := g.k.SupervisorContext()
	creds := g.k.RootCredentials()
	mns, err := g.mountAll(ctx, creds)
	if err != nil {
		return err
	}
	if err := g.spawner.LimitTasks(ctx, creds); err != nil {
		return err
	}
	if err := g.createInit(mns, creds); err != nil {
		return err
	}
	unwritten, err := g.writeIdentity(ctx, identityFiles)
	if err == nil && len(unwritten) > 0 {
		err = errUnwritten(unwritten)
	}
	if err != nil {
		return err
	}
	if command != nil {
		if g.Control, err = selfctl.New(g.k, g.Gate, command); err != nil {
			return err
		}
		g.k.AddStateToCheckpoint(selfctl.StateKey, g.Control)
	}
	g.equip(proc.NewTable(g.k, g.Gate), codectx.New(g.k, g.Gate, g.spawner), &guestfs.Held{}, &ports.Conns{})
	if err := mountVolumes(); err != nil {
		return err
	}
	g.Gate.Begin()
	return g.k.Start()
}

// createInit makes pid 1 of the static init program. It takes over mns.
func (g *Guest) createInit(mns *vfs.MountNamespace, creds *auth.Credentials) error {
	ctx := g.k.SupervisorContext()
	file, err := newInitFile(ctx, g.k.Kernel, creds)
	if err != nil {
		return err
	}
	defer file.DecRef(ctx)
	group, err := g.spawner.Group(ctx)
	if err != nil {
		return err
	}
	fds := g.k.NewFDTable()
	defer fds.DecRef(ctx)
	groups := g.spawner.GroupNamespace(ctx, group)
	defer groups.DecRef(ctx)
	_, _, err = g.k.CreateProcess(kernel.CreateProcessArgs{
		File:                 file,
		Argv:                 []string{"init"},
		Credentials:          g.spawner.Bounded(creds),
		FDTable:              fds,
		Umask:                0o022,
		Limits:               g.spawner.Limits(),
		MaxSymlinkTraversals: linux.MaxSymlinkTraversals,
		UTSNamespace:         g.k.RootUTSNamespace(),
		IPCNamespace:         g.k.RootIPCNamespace(),
		PIDNamespace:         g.k.RootPIDNamespace(),
		MountNamespace:       mns,
		InitialCgroupV2:      group,
		CgroupNamespace:      groups,
	})
	if err != nil {
		return fmt.Errorf("start init: %w", err)
	}
	return nil
}

// End stops the sandbox for good and gives back the memory, and the space of files,
// that no relative needs. The process must end after it.
func (g *Guest) End() error {
	g.Gate.Close()
	return errors.Join(g.mem.Trim(), rootfs.Trim(g.disk.fs))
}

// Release drops the pins of a freeze or a view.
func (g *Guest) Release(id string) {
	g.Gate.Lock()
	defer g.Gate.Unlock()
	g.release(id)
}

// Abandon undoes a freeze whose reply was not sent.
func (g *Guest) Abandon(id string) {
	g.Gate.Lock()
	defer g.Gate.Unlock()
	g.Gate.UndoRest(id)
	g.release(id)
}

func (g *Guest) release(id string) {
	g.Gate.EndRest(id)
	g.mem.Release(id)
	g.disk.release(id)
}

// KeepOnly drops the pins of all freezes and views that are not in ids.
func (g *Guest) KeepOnly(ids []string) {
	g.Gate.Lock()
	defer g.Gate.Unlock()
	for _, id := range g.pins() {
		if !slices.Contains(ids, id) {
			g.release(id)
		}
	}
}
