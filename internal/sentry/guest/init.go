package guest

import (
	"fmt"

	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/sentry/vfs"

	"ramet.dev/ramet/api"
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
		return signalName(ws.TerminationSignal())
	}
	return fmt.Sprintf("exit code %d", ws.ExitStatus())
}

var errInitExited = api.Errorf(api.CodeSandboxDied, "init exited")

// mountNamespace returns that of the first process. The caller owns a reference.
func (g *Guest) mountNamespace() (*vfs.MountNamespace, error) {
	mns := g.k.GlobalInit().Leader().GetMountNamespace()
	if mns == nil {
		return nil, errInitExited
	}
	return mns, nil
}

// root returns the root directory. The caller owns a reference.
func (g *Guest) root(ctx context.Context) (vfs.VirtualDentry, error) {
	mns, err := g.mountNamespace()
	if err != nil {
		return vfs.VirtualDentry{}, err
	}
	defer mns.DecRef(ctx)
	return mns.Root(ctx), nil
}
