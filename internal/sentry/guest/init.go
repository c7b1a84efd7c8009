package guest

import (
	"fmt"

	"ramet.dev/ramet/internal/sentry/kern"
)

// AwaitInit returns when the guest's first process has ended, which is the end of the sandbox,
// and says how that process ended.
func (g *Guest) AwaitInit() string {
	first := g.k.GlobalInit()
	first.WaitExited()
	ws := first.ExitStatus()
	if ws.Signaled() {
		return kern.SignalName(ws.TerminationSignal())
	}
	return fmt.Sprintf("exit code %d", ws.ExitStatus())
}
