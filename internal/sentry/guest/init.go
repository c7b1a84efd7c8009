package guest

import (
	"fmt"

	"ramet.dev/ramet/internal/sentry/kern"
)

// The guest's first process has the mount namespace that everything is looked up
// in. Its end is the end of the sandbox: all other processes are killed with it.

// AwaitInit returns when the guest's first process has ended, and says how it
// did.
func (g *Guest) AwaitInit() string {
	first := g.k.GlobalInit()
	first.WaitExited()
	ws := first.ExitStatus()
	if ws.Signaled() {
		return kern.SignalName(ws.TerminationSignal())
	}
	return fmt.Sprintf("exit code %d", ws.ExitStatus())
}
