package proc

import (
	"slices"
	gotime "time"

	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/mm"
	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/sentry/kern"
)

// List lists the processes of the sandbox except init. With ended, it also lists processes
// that were started from outside and have ended.
func (ps *Processes) List(ended bool) []api.Process {
	ps.gate.Enter()
	defer ps.gate.Leave()
	kept, ran := map[int]*process{}, map[int]bool{}
	for _, p := range ps.table.all() {
		kept[int(p.pid)] = p
		ran[int(p.pid)] = !p.hasEnded() // it may end meanwhile, and is in the list once all the same
	}
	root := ps.k.RootPIDNamespace()
	list := []api.Process{}
	for _, tg := range root.ThreadGroups() {
		leader := tg.Leader()
		pid := int(root.IDOfThreadGroup(tg))
		if pid <= 1 || leader == nil {
			continue // init, or gone meanwhile
		}
		p := ps.describe(pid, tg, leader)
		if k := kept[pid]; k != nil && ran[pid] {
			p.Kept = k.kept()
			if p.Command == kern.Nameless(leader) {
				p.Command = k.command // it is ending, and has no memory any more
			}
			delete(kept, pid)
		}
		list = append(list, p)
	}
	for pid, k := range kept {
		state := "ended"
		if !k.hasEnded() {
			state = "ending" // its output is still being read
		} else if !ended {
			continue
		}
		list = append(list, api.Process{PID: pid, State: state, Command: k.command, StartedAt: gotime.Unix(0, k.started), Kept: k.kept()})
	}
	slices.SortFunc(list, func(a, b api.Process) int { return a.PID - b.PID })
	return list
}

// Get describes one process of the list.
func (ps *Processes) Get(pid int) (*api.Process, error) {
	for _, p := range ps.List(true) {
		if p.PID == pid {
			return &p, nil
		}
	}
	return nil, api.Errorf(api.CodeNotFound, "no process %d is in the sandbox", pid)
}

func (ps *Processes) describe(pid int, tg *kernel.ThreadGroup, leader *kernel.Task) api.Process {
	cpu := tg.CPUStats()
	p := api.Process{
		PID:        pid,
		UID:        int(leader.Credentials().EffectiveKUID),
		Threads:    tg.Count(),
		State:      leader.StateStatus(),
		Command:    ps.k.CommandOf(leader),
		CPUSeconds: (cpu.UserTime + cpu.SysTime).Seconds(),
		StartedAt:  gotime.Unix(0, leader.StartTime().Nanoseconds()),
	}
	if parent := leader.Parent(); parent != nil {
		p.PPID = int(ps.k.RootPIDNamespace().IDOfThreadGroup(parent.ThreadGroup()))
	}
	ps.k.WithMemory(leader, func(m *mm.MemoryManager) { p.MemoryMiB = float64(m.ResidentSetSize()) / (1 << 20) })
	return p
}

// kept describes a process that was started from outside.
func (p *process) kept() *api.KeptProcess {
	first, next := p.out.bounds()
	p.table.mu.Lock()
	k := &api.KeptProcess{Terminal: p.tty, Stdin: p.stdin != nil || p.terminal != nil, Inherited: p.inherited, FirstSeq: first, NextSeq: next}
	ended := p.ended
	p.table.mu.Unlock()
	if ended == 0 {
		return k
	}
	at := gotime.Unix(0, ended)
	k.EndedAt, k.Exit = &at, p.exit().Result()
	return k
}
