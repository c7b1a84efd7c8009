package proc

import (
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/sentry/kernel"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/wire"
)

// Signal sends a signal to any process of the sandbox but init.
func (ps *Processes) Signal(req *wire.Signal) error {
	if err := ps.gate.EnterChange(); err != nil {
		return err
	}
	defer ps.gate.Leave()
	if req.Number < 1 || req.Number > linux.SignalMaximum {
		return api.Invalid("signal", "%d is not a signal: they are numbered from 1 to %d", req.Number, linux.SignalMaximum)
	}
	// Before the signal is sent: the foreground group is not known when the process has ended.
	var front *kernel.ProcessGroup
	if req.Foreground {
		if err := ps.onTerminal(req.PID, func(t *terminal) { front = t.foreground() }); err != nil {
			return err
		}
	}
	info := &linux.SignalInfo{Signo: int32(req.Number)}
	tg := ps.k.RootPIDNamespace().ThreadGroupWithID(kernel.ThreadID(req.PID))
	if tg == nil || req.PID <= 1 {
		return api.Errorf(api.CodeNotFound, "no process %d runs in the sandbox", req.PID)
	}
	pg := tg.ProcessGroup()
	var err error
	if req.Group && pg != nil {
		err = ps.k.SendExternalSignalProcessGroup(pg, info)
	} else {
		err = ps.k.SendExternalSignalThreadGroup(tg, info)
	}
	if front != nil && front != pg {
		_ = ps.k.SendExternalSignalProcessGroup(front, info) // its processes may have ended
	}
	return gone(req.PID, err)
}

// gone explains why a signal was not sent, if it was not.
func gone(pid int, err error) error {
	if err == nil {
		return nil
	}
	return api.Errorf(api.CodeNotFound, "process %d is about to end: %w", pid, err)
}

// kill kills p, if it runs, with all that it started, and returns what it has killed.
func (p *process) kill() []*kernel.ThreadGroup {
	p.table.mu.Lock()
	tg := p.tg
	p.table.mu.Unlock()
	if tg == nil {
		return nil
	}
	return p.table.k.KillTree(tg)
}
