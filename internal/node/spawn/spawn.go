package spawn

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/cgroup"
	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/engine/wire"
	channel "ramet.dev/ramet/internal/network/wire"
	"ramet.dev/ramet/internal/node/freezes"
	"ramet.dev/ramet/internal/observe/procfs"
)

// Process is what is stored of the sentry of a sandbox.
type Process struct {
	Key   string `json:"key,omitempty"`
	PID   int    `json:"pid,omitempty"`
	Start uint64 `json:"start,omitempty"`
	// Boot tells in which run of the host that is.
	Boot string `json:"boot,omitempty"`
	// Memory is the sandbox's own memory file; zero in records of versions that
	// did not keep it.
	Memory launch.FileID `json:"memory,omitzero"`
	// Files is its own file with the pages of files.
	Files launch.FileID `json:"files,omitzero"`
	// Engine is what it was started by, and in whose form it saves its state; absent
	// in records of versions that did not keep it.
	Engine string `json:"engine,omitempty"`
}

// Config is what a spawner works with.
type Config struct {
	Pool     *launch.Pool // of blank sentries
	Launcher *launch.Launcher
	Freezes  *freezes.Table
	Images   Images
	Volumes  Volumes
	BootID   string // names the run of the host
	Engines  Engines
	Log      *slog.Logger
}

// Engines are what sentries are started of.
type Engines interface {
	// Own names the engine of Pool and Launcher.
	Own() string
	// Launcher returns the launcher of another engine.
	Launcher(ctx context.Context, name string) (*launch.Launcher, error)
}

// Images opens images.
type Images interface {
	OpenImage(id string) (*os.File, error)
}

// Volumes serves sentries whose sandboxes have volumes.
type Volumes interface {
	// Serve returns at once, and serves until s ends.
	Serve(s *launch.Sentry, mounts []api.VolumeMount)
}

// Spawner prepares sentries. It is safe for concurrent use.
type Spawner struct{ cfg Config }

// New returns a spawner.
func New(cfg Config) *Spawner { return &Spawner{cfg} }

// launcher returns the launcher of an engine; the empty name is the own one's.
func (p *Spawner) launcher(ctx context.Context, engine string) (*launch.Launcher, error) {
	if engine == "" || engine == p.cfg.Engines.Own() {
		return p.cfg.Launcher, nil
	}
	return p.cfg.Engines.Launcher(ctx, engine)
}

// Prepare takes a blank sentry of an engine for a sandbox, whose limits it sets and whose isolation it
// notes, and returns what is to be stored of the sentry. A layer of require that is not on
// is an error of CodeIsolation.
func (p *Spawner) Prepare(ctx context.Context, engine string, sandbox *api.Sandbox, require []string) (*launch.Sentry, Process, error) {
	l, err := p.launcher(ctx, engine)
	if err != nil {
		return nil, Process{}, err
	}
	start := l.Start
	if l == p.cfg.Launcher {
		start = p.cfg.Pool.Get
	}
	s, err := start(ctx)
	if err != nil {
		return nil, Process{}, err
	}
	return p.prepare(s, engine, sandbox, require)
}

// PrepareFrom is Prepare with a sentry of a template, or one of the pool if the template fails.
func (p *Spawner) PrepareFrom(ctx context.Context, t *launch.Template, engine string, sandbox *api.Sandbox) (*launch.Sentry, Process, error) {
	s, err := t.Start(ctx)
	if err != nil {
		if api.CodeOf(err) != api.CodeUnavailable { // which it says once it has failed
			p.cfg.Log.Warn("a template has failed", "error", err)
		}
		return p.Prepare(ctx, engine, sandbox, nil)
	}
	return p.prepare(s, engine, sandbox, nil)
}

func (p *Spawner) prepare(s *launch.Sentry, engine string, sandbox *api.Sandbox, require []string) (*launch.Sentry, Process, error) {
	sandbox.Isolation = s.Isolation()
	if sandbox.Limits.MemoryMiB > 0 {
		sandbox.Isolation.MemoryLimit = api.MemoryEnforced
		if sandbox.Isolation.Cgroup != api.LayerOn {
			sandbox.Isolation.MemoryLimit = api.MemoryWatched
		}
	}
	process, err := ProcessOf(s, p.cfg.BootID, cmp.Or(engine, p.cfg.Engines.Own()))
	if rerr := requireLayers(require, s.Isolation(), p.cfg.Launcher.Missing()); rerr != nil {
		err = rerr
	}
	if err == nil {
		err = s.SetLimits(groupLimits(sandbox.Limits))
	}
	if err != nil {
		s.Kill()
		return nil, Process{}, err
	}
	// Before it runs: hooks may use a volume.
	p.cfg.Volumes.Serve(s, sandbox.Volumes)
	return s, process, nil
}

// Mounts returns volumes as a sentry is told to mount them.
func Mounts(volumes []api.VolumeMount) (list []wire.VolumeMount) {
	for _, m := range volumes {
		list = append(list, wire.VolumeMount{Volume: m.Volume, Path: m.Path, ReadOnly: m.ReadOnly})
	}
	return list
}

// ProcessOf returns what is stored of a sentry that this daemon has started.
func ProcessOf(s *launch.Sentry, boot, engine string) (Process, error) {
	start, err := procfs.StartTime(s.PID())
	if err != nil {
		return Process{}, err
	}
	memory, err := launch.IDOf(s.Memory())
	if err != nil {
		return Process{}, err
	}
	files, err := launch.IDOf(s.Files())
	if err != nil {
		return Process{}, err
	}
	return Process{Key: s.Key(), PID: s.PID(), Start: start, Boot: boot, Memory: memory, Files: files, Engine: engine}, nil
}

// Boot has a prepared sentry boot an image as a sandbox. command is the program by which
// the sandbox controls itself, nil if it may not. The result is the gateway's end of the
// sandbox's channel, which the caller closes; nil if it has no network.
func Boot(ctx context.Context, s *launch.Sentry, sandbox *api.Sandbox, image, command *os.File) (*os.File, error) {
	files := []*os.File{image}
	if command != nil {
		files = append(files, command)
	}
	ctx, cancel := Beginning(ctx)
	defer cancel()
	return connected(sandbox, files, func(network bool, files []*os.File) error {
		_, err := s.Call(ctx, &wire.Call{Op: wire.OpBoot, Boot: &wire.Boot{Common: commonOf(sandbox), Control: command != nil, Network: network, Volumes: Mounts(sandbox.Volumes)}}, nil, files...)
		return err
	})
}

// connected calls begin with the files and, if the sandbox has a network, the sentry's end of a
// new channel behind them. It returns the other end.
func connected(sandbox *api.Sandbox, files []*os.File, begin func(network bool, files []*os.File) error) (*os.File, error) {
	if sandbox.Network == nil {
		return nil, begin(false, files)
	}
	ours, theirs, err := channel.Pair()
	if err != nil {
		return nil, err
	}
	defer ours.Close()
	if err := begin(true, append(slices.Clip(files), ours)); err != nil {
		theirs.Close()
		return nil, err
	}
	return theirs, nil
}

// Origin is a freeze that sandboxes are loaded from, with its files open.
type Origin struct {
	freeze *freezes.Freeze
	files  []*os.File // the state, the image and the memory files
}

// OpenOrigin opens the files that sandboxes of an image are loaded from f with. The caller
// holds a reference on f until the origin is closed.
func (p *Spawner) OpenOrigin(f *freezes.Freeze, image string) (*Origin, error) {
	files, err := p.cfg.Freezes.OpenFiles(f)
	if err != nil {
		return nil, err
	}
	img, err := p.cfg.Images.OpenImage(image)
	if err != nil {
		return nil, err
	}
	return NewOrigin(f, img, files), nil
}

// NewOrigin returns f with the open files that it consists of. It takes over image. The
// caller holds a reference on f until Close.
func NewOrigin(f *freezes.Freeze, image *os.File, memory []*os.File) *Origin {
	return &Origin{f, append([]*os.File{f.State, image}, memory...)}
}

// templateThreads is how many threads a template may have, with those of a fork until that has entered a control group
// of its own. It needs a tenth.
const templateThreads = 128

// Template starts a template of the origin for n sandboxes that are like sandbox in their limits, and in having a
// network or not.
func (p *Spawner) Template(ctx context.Context, o *Origin, n int, sandbox *api.Sandbox) (*launch.Template, error) {
	ctx, cancel := Beginning(ctx)
	defer cancel()
	decode := &wire.Decode{Generations: o.freeze.Generations, Limits: sandbox.Limits, Network: sandbox.Network != nil}
	limits := cgroup.Limits{MemoryBytes: groupLimits(sandbox.Limits).MemoryBytes, Pids: templateThreads}
	l, err := p.launcher(ctx, o.freeze.Engine)
	if err != nil {
		return nil, err
	}
	return l.NewTemplate(ctx, n, limits, decode, o.files)
}

// Bytes returns the size of the frozen state but for the memory that is shared with it.
func (o *Origin) Bytes() int64 {
	st, err := o.freeze.State.Stat()
	if err != nil {
		return 0
	}
	return st.Size()
}

// Freeze returns the freeze.
func (o *Origin) Freeze() *freezes.Freeze { return o.freeze }

// Close closes the image, the only file that is the origin's own.
func (o *Origin) Close() { o.files[1].Close() }

// Load has a prepared sentry become a sandbox. load carries what differs between the ways
// to make one. The file is as of Boot.
func (o *Origin) Load(ctx context.Context, s *launch.Sentry, sandbox *api.Sandbox, load wire.Load) (*wire.Loaded, *os.File, error) {
	load.Common, load.Decoded = commonOf(sandbox), s.Decoded()
	var files []*os.File
	if !load.Decoded {
		load.Generations, files = o.freeze.Generations, o.files
	}
	var loaded wire.Loaded
	end, err := connected(sandbox, files, func(network bool, files []*os.File) error {
		load.Network = network
		_, err := s.Call(ctx, &wire.Call{Op: wire.OpLoad, Load: &load}, &loaded, files...)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	return &loaded, end, nil
}

// beginTimeout is how long a sandbox may take to begin to run. What is large is read
// when it is used, so this takes milliseconds.
const beginTimeout = time.Minute

// Beginning bounds a call that makes a blank sentry a sandbox: a sentry would wait for ever
// for a process of its platform that somebody killed.
func Beginning(ctx context.Context) (context.Context, context.CancelFunc) {
	late := api.Errorf(api.CodeTimeout, "the sandbox did not begin to run within %v", beginTimeout)
	return context.WithTimeoutCause(ctx, beginTimeout, late)
}

// Detach makes a sentry outlive this daemon. If no record of it is written, the next
// daemon ends it.
func Detach(ctx context.Context, s *launch.Sentry) error {
	if _, err := s.Call(ctx, &wire.Call{Op: wire.OpCommit}, nil); err != nil {
		return fmt.Errorf("commit sandbox: %w", err)
	}
	return nil
}

// Identify makes a running sentry the given sandbox.
func Identify(ctx context.Context, s *launch.Sentry, sandbox *api.Sandbox) error {
	id := commonOf(sandbox)
	if _, err := s.Call(ctx, &wire.Call{Op: wire.OpIdentify, Identify: &id}, nil); err != nil {
		return err
	}
	return s.SetLimits(groupLimits(sandbox.Limits))
}

// commonOf returns what the sentry is told about the sandbox.
func commonOf(s *api.Sandbox) wire.Common {
	return wire.Common{
		ID: s.ID, Hostname: s.Identity.Hostname, MachineID: s.Identity.MachineID,
		ForkIndex: s.Identity.ForkIndex, Env: s.Env, Limits: s.Limits,
	}
}

// NewMachineID returns 32 hexadecimal digits, see machine-id(5).
func NewMachineID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails: crypto/rand ends the program instead
	return hex.EncodeToString(b[:])
}

// Watch goes on to watch the limit of memory of a sandbox whose sentry another daemon started.
func Watch(s *launch.Sentry, sandbox *api.Sandbox) error {
	if sandbox.Isolation.MemoryLimit != api.MemoryWatched {
		return nil
	}
	return s.SetLimits(groupLimits(api.Limits{MemoryMiB: sandbox.Limits.MemoryMiB}))
}

// sentryOverheadMiB is what a sentry itself may use on top of its guest's
// memory before the limit hits.
const sentryOverheadMiB = 64

// threadsPerTask is how many host threads a guest task can cost at most: its
// stub process with the platform's threads. The guest's own kernel counts
// exactly; the host's limit only is there for one that went wrong.
const threadsPerTask = 8

func groupLimits(l api.Limits) cgroup.Limits {
	g := cgroup.Limits{CPUs: l.CPUs}
	if l.MemoryMiB > 0 {
		g.MemoryBytes = (l.MemoryMiB + sentryOverheadMiB) << 20
	}
	if l.Pids > 0 {
		const sentryThreads = 128
		g.Pids = sentryThreads + l.Pids*threadsPerTask
	}
	return g
}
