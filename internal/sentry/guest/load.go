package guest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/cpuid"
	"gvisor.dev/gvisor/pkg/sentry/checkpoint"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/pgalloc"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
	"gvisor.dev/gvisor/pkg/state"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/snapfile"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/sentry/birth"
	"ramet.dev/ramet/internal/sentry/codectx"
	"ramet.dev/ramet/internal/sentry/cow"
	"ramet.dev/ramet/internal/sentry/guestfs"
	"ramet.dev/ramet/internal/sentry/kern"
	"ramet.dev/ramet/internal/sentry/ports"
	"ramet.dev/ramet/internal/sentry/proc"
	"ramet.dev/ramet/internal/sentry/rootfs"
	"ramet.dev/ramet/internal/sentry/selfctl"
	"ramet.dev/ramet/internal/sentry/stages"
	"ramet.dev/ramet/internal/sentry/volumes"
)

// LoadFiles are the descriptors a child is made from. Load takes them over.
type LoadFiles struct {
	Snapshot    *os.File
	Image       *os.File
	Generations []*os.File
	Channel     *os.File // to the gateway; nil without a network
}

// Load makes b a child: the sandbox that was frozen, with an identity of its
// own. The guest runs when it returns.
func (b *Blank) Load(req *wire.Load, files LoadFiles) (*Guest, *wire.Loaded, error) {
	unsettled(req.Limits.MemoryMiB)
	st := stages.Begin()
	from := b.inherited
	if req.Decoded != (from != nil) {
		return nil, nil, api.Errorf(api.CodeInvalid, "decoded: the sentry has a state, or it has none: %t", from != nil)
	}
	if from == nil {
		var err error
		d := wire.Decode{Generations: req.Generations, Limits: req.Limits, Network: files.Channel != nil}
		if from, err = b.decode(&d, files, &st); err != nil {
			return nil, nil, err
		}
	}
	g, inherited := from.guest, from.network
	*g.id(), g.forker, g.forked = req.Common, b.Forker, req.Decoded
	if g.Control != nil {
		g.Control.Thaw(g.k, g.Gate, req.Answer)
	}
	if err := volumes.Mount(g.k.SupervisorContext(), g.k, b.Volumes, req.Volumes); err != nil {
		return nil, nil, err
	}
	g.Ports.DropInherited()
	g.Files.DropInherited()
	st.Mark("mount")
	unwritten, err := g.becomeSelf()
	if err != nil {
		return nil, nil, err
	}
	more, err := g.Network.inherit(inherited, files.Channel)
	if err != nil {
		return nil, nil, err
	}
	unwritten = append(unwritten, more...)
	st.Mark("identity")
	repeating := renewDrawn(g.k.Kernel)
	if req.FreshRandomness {
		if err := requireFresh(repeating); err != nil {
			return nil, nil, err
		}
	}
	st.Mark("renew")
	birth.UseProcessors()
	g.Gate.Begin()
	if err := g.k.Start(); err != nil {
		return nil, nil, fmt.Errorf("start kernel: %w", err)
	}
	g.Processes.AttendInherited()
	if g.Control != nil {
		g.Control.Serve()
	}
	out := &wire.Loaded{Unwritten: unwritten, Reseeded: append(g.Contexts.AttendInherited(), repeating...)}
	if req.FreshRandomness {
		if err := requireFresh(out.Reseeded); err != nil {
			return nil, nil, err
		}
	}
	st.Mark("seed")
	if req.RunHooks {
		if out.Hooks, err = g.runHooks(); err != nil {
			return nil, nil, err
		}
	}
	st.Mark("start")
	out.Timed = st.Timed()
	return g, out, nil
}

// inheritance is the guest that was frozen, which does not run yet, nor know who it is.
type inheritance struct {
	guest   *Guest
	network *inheritedNetwork
}

// decode loads the kernel that was frozen.
func (b *Blank) decode(req *wire.Decode, files LoadFiles, st *stages.Stages) (*inheritance, error) {
	showMemory(req.Limits)
	data, err := kern.MapFile(files.Snapshot)
	if err != nil {
		return nil, err
	}
	defer unix.Munmap(data)
	snap, err := snapfile.Parse(data)
	if err != nil {
		return nil, api.Errorf(api.CodeCorrupt, "%w", err)
	}
	if err := checkMappings(snap.Table); err != nil {
		return nil, err
	}
	gens, err := b.inherit(snap, req.Generations, files.Generations)
	if err != nil {
		return nil, err
	}
	disk, err := b.newDisk(files.Image, snap.Files.Segments, gens)
	if err != nil {
		return nil, err
	}
	st.Mark("map")
	g, network, err := b.loadKernel(snap, data, disk, req.Network)
	if err != nil {
		return nil, err
	}
	st.Mark("load")
	g.id().Limits = req.Limits
	if err := g.attachStateless(g.k.SupervisorContext(), network.side.Detached); err != nil {
		return nil, err
	}
	beginGeneration(g.k.Kernel)
	return &inheritance{g, network}, nil
}

const (
	// defaultMaxMappings is vm.max_map_count of a host that was not told
	// otherwise.
	defaultMaxMappings = 65530
	// ownMappings is room for what the process has mapped besides generations:
	// without any left the Go runtime hangs or ends it.
	ownMappings = 1 << 10
)

// maxMappings is how many mappings the host lets a process have.
var maxMappings = defaultMaxMappings

// readMaxMappings asks the host, while its /proc can be read.
func readMaxMappings() {
	text, err := os.ReadFile("/proc/sys/vm/max_map_count")
	if err != nil {
		return // hidden by a container around us
	}
	if n, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
		maxMappings = n
	}
}

// checkMappings refuses inherited memory that is in too many pieces to be mapped.
func checkMappings(table cow.Table) error {
	if n := table.Mappings(); n+ownMappings > maxMappings {
		return api.Errorf(api.CodeLimit, "the memory of the sandbox is in so many pieces that a child needs %d mappings, and this host gives it %d (vm.max_map_count, less %d): raise that, "+
			"or take a snapshot of it on disk and roll it back to that, or restore that, which joins pieces", n, maxMappings-ownMappings, ownMappings)
	}
	return nil
}

// inherit pairs the snapshot's generations with the descriptors.
func (b *Blank) inherit(snap *snapfile.Snapshot, names []string, files []*os.File) ([]cow.Generation, error) {
	if len(names) != len(files) || len(names) != len(snap.Generations) {
		return nil, api.Errorf(api.CodeCorrupt, "snapshot refers to %d generations, got %d", len(snap.Generations), len(files))
	}
	gens := make([]cow.Generation, len(names))
	for i, name := range names {
		if name != snap.Generations[i] {
			return nil, api.Errorf(api.CodeCorrupt, "snapshot's generation %d is %q, not %q", i, snap.Generations[i], name)
		}
		gens[i] = cow.Generation{Name: name, File: files[i]}
	}
	b.mem.Inherit(snap.Table, gens)
	return gens, nil
}

func (b *Blank) loadKernel(snap *snapfile.Snapshot, data []byte, disk *disk, connected bool) (*Guest, *inheritedNetwork, error) {
	pages := data[snapfile.PagesOffset : snapfile.PagesOffset+snap.Pages]
	loader := kernel.NewAsyncMFLoader(io.NopCloser(bytes.NewReader(snap.Meta)), cow.NewReader(b.mem, snap.Copied, pages), b.mem.MemoryFile(), nil)
	none := map[checkpoint.ResourceID]*pgalloc.MemoryFile{}
	loader.KickoffPrivate(none)
	k := &kernel.Kernel{Platform: b.plat}
	k.SetMemoryFile(b.mem.MemoryFile())
	ctx := context.WithValues(k.SupervisorContext(), map[any]any{
		rootfs.CtxOpen:           disk.open,
		pgalloc.CtxMemoryFileMap: none,
		volumes.CtxClient:        b.Volumes,
	})
	network := &inheritedNetwork{k: k, connected: connected}
	err := b.hosted.Load(func() error {
		return k.LoadFrom(ctx, bytes.NewReader(snap.State), loader, nil, network, b.clocks, &vfs.CompleteRestoreOptions{}, nil)
	})
	if err != nil {
		return nil, nil, loadError(err, b.plat.Refused(), snap.State)
	}
	if err := loader.Wait(); err != nil {
		return nil, nil, api.Errorf(api.CodeCorrupt, "load memory: %w", err)
	}
	b.mem.Settle(snap.Held)
	if network.side == nil {
		return nil, nil, api.Errorf(api.CodeCorrupt, "saved state has no network")
	}
	if err := network.side.Restore(b.mem); err != nil {
		return nil, nil, err
	}
	if err := disk.find(k); err != nil {
		return nil, nil, err
	}
	network.spaces.Loaded()
	g := b.newGuest(k, wire.Common{}, disk, network.spaces) // Load says who it is
	table, err := popState[proc.Table](k, proc.TableKey, "has no table of processes")
	if err != nil {
		return nil, nil, err
	}
	if err := table.Thaw(g.k, g.Gate, snap.Outputs); err != nil {
		return nil, nil, err
	}
	contexts, err := popState[codectx.Contexts](k, codectx.StateKey, "has no contexts")
	if err != nil {
		return nil, nil, err
	}
	contexts.Thaw(g.k, g.Gate, g.spawner)
	held, err := popState[guestfs.Held](k, guestfs.HeldKey, "does not say what was open")
	if err != nil {
		return nil, nil, err
	}
	conns, err := popState[ports.Conns](k, ports.ConnsKey, "has no connections")
	if err != nil {
		return nil, nil, err
	}
	g.equip(table, contexts, held, conns)
	own, ok := k.PopCheckpointState(selfctl.StateKey).(*selfctl.Controller)
	if ok {
		g.Control = own
		k.AddStateToCheckpoint(selfctl.StateKey, own)
	}
	return g, network, nil
}

// popState returns the value that was saved under key, and takes it out of k. without
// completes the error "saved state …" of a state that lacks it.
func popState[E any](k *kernel.Kernel, key, without string) (*E, error) {
	v, _ := k.PopCheckpointState(key).(*E)
	if v == nil {
		return nil, api.Errorf(api.CodeCorrupt, "saved state %s", without)
	}
	return v, nil
}

// loadError says why the kernel in saved was not loaded. refused is the reason for which the
// host refused a process, if it did.
func loadError(err, refused error, saved []byte) error {
	if refused != nil { // err is a panic's, of which nothing but a text is left
		return api.Errorf(api.CodeLimit, "the host refused the sandbox a process, or memory for one: %w", refused)
	}
	var incompatible *cpuid.ErrIncompatible
	if !errors.As(err, &incompatible) {
		return api.Errorf(api.CodeCorrupt, "load kernel state: %w", withoutStack(err))
	}
	if missing := missingFeatures(saved); len(missing) > 0 {
		return api.Errorf(api.CodeUnsupported, "this processor lacks features that the sandbox has seen and may use: %s", strings.Join(missing, ", "))
	}
	return api.Errorf(api.CodeUnsupported, "this processor is too unlike the one that the sandbox has seen: %w", withoutStack(err))
}

// missingFeatures returns the features that this processor lacks. The kernel
// saves those it has shown to the guest before all else.
func missingFeatures(saved []byte) []string {
	var seen cpuid.FeatureSet
	if _, err := state.Load(context.Background(), bytes.NewReader(saved), &seen); err != nil {
		return nil // it loaded a moment ago
	}
	var names []string
	for f := range seen.Subtract(cpuid.HostFeatureSet()) {
		names = append(names, f.String())
	}
	slices.Sort(names)
	return names
}
