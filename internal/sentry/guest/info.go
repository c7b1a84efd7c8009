package guest

import (
	"bytes"
	"os"
	"slices"
	gotime "time"

	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/mm"
	"gvisor.dev/gvisor/pkg/usermem"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/wire"
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
		DiskBytes:   g.disk.used(),
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

// Processes lists the processes of the sandbox but init, and with ended also those
// that were started from outside and have ended.
func (g *Guest) Processes(ended bool) []api.Process {
	g.ops.RLock()
	defer g.ops.RUnlock()
	kept := map[int]*process{}
	for _, p := range g.table.all() {
		kept[int(p.pid)] = p
	}
	root := g.k.RootPIDNamespace()
	list := []api.Process{}
	for _, tg := range root.ThreadGroups() {
		leader := tg.Leader()
		pid := int(root.IDOfThreadGroup(tg))
		if pid <= 1 || leader == nil {
			continue // init, or gone meanwhile
		}
		p := g.describe(pid, tg, leader)
		if k := kept[pid]; k != nil && !g.ended(k) {
			p.Kept = g.keptOf(k)
			if p.Command == nameless(leader) {
				p.Command = k.command // it is ending, and has no memory any more
			}
			delete(kept, pid)
		}
		list = append(list, p)
	}
	for pid, k := range kept {
		state := "ended"
		if !g.ended(k) {
			state = "ending" // what it has written is still being read
		} else if !ended {
			continue
		}
		list = append(list, api.Process{PID: pid, State: state, Command: k.command, StartedAt: gotime.Unix(0, k.started), Kept: g.keptOf(k)})
	}
	slices.SortFunc(list, func(a, b api.Process) int { return a.PID - b.PID })
	return list
}

// Process describes one process, which is in the list of all.
func (g *Guest) Process(pid int) (*api.Process, error) {
	for _, p := range g.Processes(true) {
		if p.PID == pid {
			return &p, nil
		}
	}
	return nil, api.Errorf(api.CodeNotFound, "no process %d is in the sandbox", pid)
}

func (g *Guest) describe(pid int, tg *kernel.ThreadGroup, leader *kernel.Task) api.Process {
	cpu := tg.CPUStats()
	p := api.Process{
		PID:        pid,
		UID:        int(leader.Credentials().EffectiveKUID),
		Threads:    tg.Count(),
		State:      leader.StateStatus(),
		Command:    g.commandOf(leader),
		CPUSeconds: (cpu.UserTime + cpu.SysTime).Seconds(),
		StartedAt:  gotime.Unix(0, leader.StartTime().Nanoseconds()),
	}
	if parent := leader.Parent(); parent != nil {
		p.PPID = int(g.k.RootPIDNamespace().IDOfThreadGroup(parent.ThreadGroup()))
	}
	g.withMemory(leader, func(m *mm.MemoryManager) { p.MemoryMiB = float64(m.ResidentSetSize()) / (1 << 20) })
	return p
}

// keptOf describes a process that was started from outside.
func (g *Guest) keptOf(p *process) *api.KeptProcess {
	first, next := p.out.bounds()
	g.table.mu.Lock()
	k := &api.KeptProcess{Terminal: p.tty, Stdin: p.stdin != nil || p.terminal != nil, Inherited: p.inherited, FirstSeq: first, NextSeq: next}
	ended := p.ended
	g.table.mu.Unlock()
	if ended == 0 {
		return k
	}
	at := gotime.Unix(0, ended)
	k.EndedAt, k.Exit = &at, g.exitOf(p).Result()
	return k
}

// nameless is shown of a task that has no command line.
func nameless(t *kernel.Task) string { return "[" + t.Name() + "]" }

// maxCommand is how much of a command line is shown, in bytes.
const maxCommand = 4 << 10

// commandOf returns a task's command line, or its name if it has none any more.
func (g *Guest) commandOf(t *kernel.Task) string {
	var line []byte
	g.withMemory(t, func(m *mm.MemoryManager) {
		line = make([]byte, min(uint64(m.ArgvEnd()-m.ArgvStart()), maxCommand))
		n, _ := m.CopyIn(g.rootContext(), m.ArgvStart(), line, usermem.IOOpts{IgnorePermissions: true}) // the guest may have unmapped it
		line = bytes.TrimRight(line[:n], "\x00")
	})
	if len(line) == 0 {
		return nameless(t)
	}
	return string(bytes.ReplaceAll(line, []byte{0}, []byte{' '}))
}

// withMemory calls fn with the memory of a task that has not exited.
func (g *Guest) withMemory(t *kernel.Task, fn func(*mm.MemoryManager)) {
	var m *mm.MemoryManager
	t.WithMuLocked(func(t *kernel.Task) {
		if m = t.MemoryManager(); m != nil && !m.IncUsers() {
			m = nil
		}
	})
	if m != nil {
		defer m.DecUsers(g.rootContext())
		fn(m)
	}
}
