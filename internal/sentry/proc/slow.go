package proc

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	gotime "time"

	"gvisor.dev/gvisor/pkg/log"

	"ramet.dev/ramet/internal/engine/wire"
)

const (
	// slowStart is how long the start of a command may take before it is reported.
	slowStart = 10 * gotime.Second
	// reportEvery bounds how often the states of all tasks are written.
	reportEvery = gotime.Minute
	// maxStacks and maxStates bound a report, in bytes of stacks and in tasks.
	maxStacks = 256 << 10
	maxStates = 1000
)

// slowStarts reports commands that do not start. Its zero value has reported none. It is safe for
// concurrent use.
type slowStarts struct {
	mu   sync.Mutex
	last gotime.Time
}

// watch calls report unless stop is called within slowStart. One report is made in reportEvery.
func (s *slowStarts) watch(report func()) (stop func() bool) {
	return gotime.AfterFunc(slowStart, func() {
		s.mu.Lock()
		due := s.last.IsZero() || gotime.Since(s.last) >= reportEvery
		if due {
			s.last = gotime.Now()
		}
		s.mu.Unlock()
		if due {
			report()
		}
	}).Stop
}

// maxTrace bounds a Trace, in bytes: it is one message.
const maxTrace = 64 << 10

// Trace describes the tasks of the sandbox, one a line, and then the goroutines of the sentry, of which some are left
// out if there are many.
func (ps *Processes) Trace() string {
	buf := make([]byte, maxStacks)
	text := ps.taskStates() + "\n" + string(buf[:runtime.Stack(buf, true)])
	return text[:min(len(text), maxTrace)]
}

// reportSlow writes why a command may not have started into the sandbox's log: the stacks of the sentry, of
// which one is that of the start, and then the states of all tasks, for which locks are needed that may be the
// cause.
func (ps *Processes) reportSlow(req *wire.Exec) {
	buf := make([]byte, maxStacks)
	log.Warningf("the command %q has not started within %v; goroutines of the sentry:\n%s", commandLine(req.Argv), slowStart, buf[:runtime.Stack(buf, true)])
	log.Warningf("tasks while the command %q has not started:\n%s", commandLine(req.Argv), ps.taskStates())
}

// taskStates describes the tasks of the sandbox, one a line: thread, process, state and command.
func (ps *Processes) taskStates() string {
	var b strings.Builder
	ns := ps.k.RootPIDNamespace()
	for i, t := range ns.Tasks() {
		if i == maxStates {
			fmt.Fprintf(&b, "and more\n")
			break
		}
		fmt.Fprintf(&b, "%d of process %d: %s: %s\n", ns.IDOfTask(t), ns.IDOfThreadGroup(t.ThreadGroup()), t.StateStatus(), t.Name())
	}
	return b.String()
}
