package kern

import (
	"bytes"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
	"gvisor.dev/gvisor/pkg/sentry/mm"
	"gvisor.dev/gvisor/pkg/sentry/socket/netstack"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/usermem"

	"ramet.dev/ramet/api"
)

// Kernel is the kernel of a guest. Its SupervisorContext is the context of operations of
// the host side: root of the sandbox. Objects of the guest keep the embedded kernel, never
// this, which cannot be saved.
type Kernel struct{ *kernel.Kernel }

// The guest's first process has the mount namespace that everything is looked up
// in. Its end is the end of the sandbox: all other processes are killed with it.
var errInitExited = api.Errorf(api.CodeSandboxDied, "init exited")

// MountNamespace returns the mount namespace of the first process. The caller owns a
// reference.
func (k *Kernel) MountNamespace() (*vfs.MountNamespace, error) {
	mns := k.GlobalInit().Leader().GetMountNamespace()
	if mns == nil {
		return nil, errInitExited
	}
	return mns, nil
}

// Root returns the root directory. The caller owns a reference.
func (k *Kernel) Root(ctx context.Context) (vfs.VirtualDentry, error) {
	mns, err := k.MountNamespace()
	if err != nil {
		return vfs.VirtualDentry{}, err
	}
	defer mns.DecRef(ctx)
	return mns.Root(ctx), nil
}

// RootCredentials returns the credentials of root.
func (k *Kernel) RootCredentials() *auth.Credentials {
	return auth.NewRootCredentials(k.RootUserNamespace())
}

// NetStack returns the network stack of the sandbox.
func (k *Kernel) NetStack() *stack.Stack {
	return k.RootNetworkNamespace().Stack().(*netstack.Stack).Stack
}

// TaskContext is the SupervisorContext with the task of the first process. What gVisor expects to happen on
// behalf of a task asks for it: a terminal is opened with its credentials, and a socket of netlink is taken out
// of its kernel's list when the last reference is dropped, which may be that of the host side.
func (k *Kernel) TaskContext() context.Context {
	return context.WithValues(k.SupervisorContext(), map[any]any{kernel.CtxTask: k.GlobalInit().Leader()})
}

// MaxCommand is how much of a command line is shown, in bytes.
const MaxCommand = 4 << 10

// Nameless returns what is shown of a task that has no command line.
func Nameless(t *kernel.Task) string { return "[" + t.Name() + "]" }

// CommandOf returns a task's command line, or its name if it has none any more.
func (k *Kernel) CommandOf(t *kernel.Task) string {
	var line []byte
	k.WithMemory(t, func(m *mm.MemoryManager) {
		line = make([]byte, min(uint64(m.ArgvEnd()-m.ArgvStart()), MaxCommand))
		n, _ := m.CopyIn(k.SupervisorContext(), m.ArgvStart(), line, usermem.IOOpts{IgnorePermissions: true}) // the guest may have unmapped it
		line = bytes.TrimRight(line[:n], "\x00")
	})
	if len(line) == 0 {
		return Nameless(t)
	}
	return string(bytes.ReplaceAll(line, []byte{0}, []byte{' '}))
}

// WithMemory calls fn with the memory of a task that has not exited.
func (k *Kernel) WithMemory(t *kernel.Task, fn func(*mm.MemoryManager)) {
	var m *mm.MemoryManager
	t.WithMuLocked(func(t *kernel.Task) {
		if m = t.MemoryManager(); m != nil && !m.IncUsers() {
			m = nil
		}
	})
	if m != nil {
		defer m.DecUsers(k.TaskContext())
		fn(m)
	}
}

// WouldBlock reports whether err says that a pipe or file has nothing to give, or no room.
func WouldBlock(err error) bool { return linuxerr.Equals(linuxerr.ErrWouldBlock, err) }

// ExitOf returns the exit code of a process as shells give it, and the name of the signal
// that ended it, if one did.
func ExitOf(ws linux.WaitStatus) (code int, signal string) {
	if ws.Signaled() {
		return 128 + int(ws.TerminationSignal()), SignalName(ws.TerminationSignal())
	}
	return int(ws.ExitStatus()), ""
}
