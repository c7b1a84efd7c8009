package guest

import (
	"fmt"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/sentry/kernel"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/wire"
)

// Signal sends a signal to any process of the sandbox but init.
func (g *Guest) Signal(req *wire.Signal) error {
	g.ops.RLock()
	defer g.ops.RUnlock()
	if g.resting != "" {
		return errResting
	}
	if req.Number < 1 || req.Number > linux.SignalMaximum {
		return api.Invalid("signal", "%d is not a signal: they are numbered from 1 to %d", req.Number, linux.SignalMaximum)
	}
	// Before the process is told: what is in the foreground is not known when it has ended.
	var front *kernel.ProcessGroup
	if req.Foreground {
		if err := g.onTerminal(req.PID, func(t *terminal) { front = t.foreground() }); err != nil {
			return err
		}
	}
	info := &linux.SignalInfo{Signo: int32(req.Number)}
	tg := g.k.RootPIDNamespace().ThreadGroupWithID(kernel.ThreadID(req.PID))
	if tg == nil || req.PID <= 1 {
		return api.Errorf(api.CodeNotFound, "no process %d runs in the sandbox", req.PID)
	}
	pg := tg.ProcessGroup()
	var err error
	if req.Group && pg != nil {
		err = g.k.SendExternalSignalProcessGroup(pg, info)
	} else {
		err = g.k.SendExternalSignalThreadGroup(tg, info)
	}
	if front != nil && front != pg {
		_ = g.k.SendExternalSignalProcessGroup(front, info) // what was in it may have ended
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

// kill kills p and its process group, if it runs.
func (g *Guest) kill(p *process) {
	g.table.mu.Lock()
	tg := p.tg
	g.table.mu.Unlock()
	if tg == nil {
		return
	}
	kill := &linux.SignalInfo{Signo: int32(linux.SIGKILL)}
	if pg := tg.ProcessGroup(); pg != nil {
		// Errors mean that the processes are gone already.
		_ = g.k.SendExternalSignalProcessGroup(pg, kill)
	}
	_ = g.k.SendExternalSignalThreadGroup(tg, kill)
}

// signalName returns the name of a signal as kill -l prints it, with SIG.
func signalName(sig linux.Signal) string {
	if n, ok := signalNames[sig]; ok {
		return n
	}
	return fmt.Sprintf("SIG%d", sig)
}

var signalNames = map[linux.Signal]string{
	linux.SIGHUP: "SIGHUP", linux.SIGINT: "SIGINT", linux.SIGQUIT: "SIGQUIT", linux.SIGILL: "SIGILL",
	linux.SIGTRAP: "SIGTRAP", linux.SIGABRT: "SIGABRT", linux.SIGBUS: "SIGBUS", linux.SIGFPE: "SIGFPE",
	linux.SIGKILL: "SIGKILL", linux.SIGUSR1: "SIGUSR1", linux.SIGSEGV: "SIGSEGV", linux.SIGUSR2: "SIGUSR2",
	linux.SIGPIPE: "SIGPIPE", linux.SIGALRM: "SIGALRM", linux.SIGTERM: "SIGTERM", linux.SIGXCPU: "SIGXCPU",
	linux.SIGXFSZ: "SIGXFSZ", linux.SIGSYS: "SIGSYS",
}
