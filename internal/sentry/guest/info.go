package guest

import (
	"bytes"
	"os"
	"slices"

	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/mm"
	"gvisor.dev/gvisor/pkg/usermem"

	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/wire"
)

// Info describes the sandbox. The caller adds what only the process knows.
func (g *Guest) Info() (*wire.Info, error) {
	g.ops.RLock()
	defer g.ops.RUnlock()
	own, err := g.mem.MemoryFile().TotalUsage()
	if err != nil {
		return nil, err
	}
	state := "running"
	if g.paused {
		state = "paused"
	}
	return &wire.Info{
		ID:          g.id.ID,
		State:       state,
		OwnBytes:    int64(own),
		SharedBytes: g.mem.SharedBytes(),
		Processes:   len(g.k.RootPIDNamespace().ThreadGroups()),
		Generations: g.mem.Generations(),
	}, nil
}

// Files returns the sandbox's memory file, its file of pages of files and those of
// its generations.
func (g *Guest) Files() (memory, files *os.File, generations []*os.File) {
	memory, generations = g.mem.Files()
	return memory, g.disk.own, generations
}

// Pins returns the names of the freezes whose memory is pinned.
func (g *Guest) Pins() []string {
	g.ops.RLock()
	defer g.ops.RUnlock()
	return g.pins()
}

func (g *Guest) pins() []string {
	names := append(g.mem.PinNames(), g.disk.pins()...)
	slices.Sort(names)
	return slices.Compact(names)
}

// Processes lists the processes of the sandbox but init.
func (g *Guest) Processes() []sandbox.Process {
	g.ops.RLock()
	defer g.ops.RUnlock()
	root := g.k.RootPIDNamespace()
	var list []sandbox.Process
	for _, tg := range root.ThreadGroups() {
		leader := tg.Leader()
		pid := int(root.IDOfThreadGroup(tg))
		if pid <= 1 || leader == nil {
			continue // init, or gone meanwhile
		}
		p := sandbox.Process{
			PID:     pid,
			UID:     int(leader.Credentials().EffectiveKUID),
			Threads: tg.Count(),
			State:   leader.StateStatus(),
			Command: g.commandOf(leader),
		}
		if parent := leader.Parent(); parent != nil {
			p.PPID = int(root.IDOfThreadGroup(parent.ThreadGroup()))
		}
		list = append(list, p)
	}
	return list
}

// maxCommand is how much of a command line is shown, in bytes.
const maxCommand = 4 << 10

// commandOf returns a task's command line, or its name if it has none any more.
func (g *Guest) commandOf(t *kernel.Task) string {
	var m *mm.MemoryManager
	t.WithMuLocked(func(t *kernel.Task) {
		if m = t.MemoryManager(); m != nil && !m.IncUsers() {
			m = nil
		}
	})
	if m == nil {
		return "[" + t.Name() + "]"
	}
	ctx := g.rootContext()
	defer m.DecUsers(ctx)
	length := min(uint64(m.ArgvEnd()-m.ArgvStart()), maxCommand)
	line := make([]byte, length)
	n, _ := m.CopyIn(ctx, m.ArgvStart(), line, usermem.IOOpts{IgnorePermissions: true}) // the guest may have unmapped it
	if line = bytes.TrimRight(line[:n], "\x00"); len(line) == 0 {
		return "[" + t.Name() + "]"
	}
	return string(bytes.ReplaceAll(line, []byte{0}, []byte{' '}))
}
