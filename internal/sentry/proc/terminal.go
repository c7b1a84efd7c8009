package proc

import (
	"fmt"
	"reflect"
	"strconv"
	"unsafe"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
	gsync "gvisor.dev/gvisor/pkg/sync"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/sentry/kern"
	"ramet.dev/ramet/internal/sentry/spawn"
)

// openTerminal makes a terminal of the sandbox the standard streams in fds, puts
// its other end into p and returns it as the controlling one for a new process.
// It is an object of the guest's kernel, so a child inherits it.
func (ps *Processes) openTerminal(ctx context.Context, mns *vfs.MountNamespace, creds *auth.Credentials, fds *kernel.FDTable, p *process, size api.TerminalSize) (*kernel.TTY, error) {
	root := mns.Root(ctx)
	defer root.DecRef(ctx)
	// O_NOCTTY: it must not become the terminal of who opens it.
	const flags = linux.O_RDWR | linux.O_NOCTTY
	master, err := ps.k.VFS().OpenAt(ctx, creds, kern.PathAt(root, "/dev/pts/ptmx"), &vfs.OpenOptions{Flags: flags})
	if err != nil {
		return nil, fmt.Errorf("open terminal: %w", err)
	}
	p.terminal = master
	t, err := terminalOf(master)
	if err != nil {
		return nil, err
	}
	// A terminal is opened on behalf of a task, whose credentials are used.
	as := ps.k.TaskContext()
	name := "/dev/pts/" + strconv.FormatUint(uint64(t.tty.Index()), 10)
	for fd := range int32(3) {
		replica, err := ps.k.VFS().OpenAt(as, ps.k.RootCredentials(), kern.PathAt(root, name), &vfs.OpenOptions{Flags: flags})
		if err != nil {
			return nil, fmt.Errorf("open terminal: %w", err)
		}
		if err := spawn.Place(ctx, fds, fd, replica); err != nil {
			return nil, fmt.Errorf("open terminal: %w", err)
		}
	}
	t.resize(size)
	return t.tty, nil
}

// Resize sets the size of the terminal of a process, which is told by SIGWINCH.
func (ps *Processes) Resize(req *wire.Resize) error {
	return ps.onTerminal(req.PID, func(t *terminal) { t.resize(req.Size) })
}

// onTerminal calls do with the terminal of a process that was started with one.
func (ps *Processes) onTerminal(pid int, do func(*terminal)) error {
	p, err := ps.table.find(pid)
	if err != nil {
		return err
	}
	ps.gate.BeginIO()
	defer ps.gate.EndIO()
	ps.table.mu.Lock()
	defer ps.table.mu.Unlock()
	if !p.tty {
		return api.Errorf(api.CodeWrongState, "process %d has no terminal", p.pid)
	}
	if p.terminal == nil {
		return errEnded(p)
	}
	t, err := terminalOf(p.terminal)
	if err != nil {
		return err
	}
	do(t)
	return nil
}

// terminal is what gVisor has behind the master of a terminal. It can only be
// reached by system calls of a task, and the sentry is none.
type terminal struct {
	tty    *kernel.TTY // of the end that processes have
	sizeMu *gsync.Mutex
	size   *linux.Winsize // guarded by sizeMu
}

func terminalOf(master *vfs.FileDescription) (*terminal, error) {
	impl := reflect.ValueOf(master.Impl())
	if impl.Kind() != reflect.Pointer || impl.Elem().Type().Name() != "masterFileDescription" {
		return nil, api.Errorf(api.CodeUnsupported, "the sandbox has no terminals: /dev/pts/ptmx is something else")
	}
	t := impl.Elem().FieldByName("t").Elem()
	line := t.FieldByName("ld").Elem()
	return &terminal{
		tty:    (*kernel.TTY)(t.FieldByName("replicaKTTY").UnsafePointer()),
		sizeMu: (*gsync.Mutex)(unsafe.Pointer(line.FieldByName("sizeMu").UnsafeAddr())),
		size:   (*linux.Winsize)(unsafe.Pointer(line.FieldByName("size").UnsafeAddr())),
	}, nil
}

// foreground returns the process group in the foreground, nil if there is none.
func (t *terminal) foreground() *kernel.ProcessGroup {
	tg := t.tty.ThreadGroup()
	if tg == nil {
		return nil
	}
	pg, err := tg.ForegroundProcessGroup(t.tty)
	if err != nil {
		return nil // it is nobody's terminal any more
	}
	return pg
}

// resize does what ioctl(TIOCSWINSZ) does.
func (t *terminal) resize(size api.TerminalSize) {
	t.sizeMu.Lock()
	defer t.sizeMu.Unlock()
	if t.size.Row == size.Rows && t.size.Col == size.Cols {
		return
	}
	t.size.Row, t.size.Col = size.Rows, size.Cols
	t.tty.SignalForegroundProcessGroup(kernel.SignalInfoPriv(linux.SIGWINCH))
}
