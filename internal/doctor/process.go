package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

func probeNoNewPrivs(ctx context.Context, m *machine) Finding {
	if _, err := m.child(ctx, childRequest{probe: "no_new_privs"}); err != nil {
		return fail(remedyContainer, "%v", err)
	}
	return ok("can be set")
}

func childNoNewPrivs() (childReply, error) {
	runtime.LockOSThread() // the setting is one thread's
	return childReply{}, setNoNewPrivs()
}

func setNoNewPrivs() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	if on, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); err != nil || on != 1 {
		return fmt.Errorf("no_new_privs is %d after it was set: %v", on, err)
	}
	return nil
}

func probeSeccomp(ctx context.Context, m *machine) Finding {
	if _, err := m.child(ctx, childRequest{probe: "seccomp"}); err != nil {
		return fail("use a kernel with CONFIG_SECCOMP_FILTER; "+remedyContainer, "%v", err)
	}
	return ok("filters work, SECCOMP_RET_TRAP is there")
}

// childSeccomp installs a filter and checks that it works.
func childSeccomp() (childReply, error) {
	runtime.LockOSThread() // the filter is one thread's
	// Systrap needs SIGSYS, the trap action.
	trap := uint32(unix.SECCOMP_RET_TRAP)
	if err := seccomp(unix.SECCOMP_GET_ACTION_AVAIL, unsafe.Pointer(&trap)); err != nil {
		return childReply{}, fmt.Errorf("ask for the seccomp trap action: %w", err)
	}
	if err := setNoNewPrivs(); err != nil {
		return childReply{}, err
	}
	// getppid cannot fail, unless a filter makes it.
	const answer = unix.EXDEV
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // seccomp_data.nr
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_GETPPID, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(answer)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := seccomp(unix.SECCOMP_SET_MODE_FILTER, unsafe.Pointer(&program)); err != nil {
		return childReply{}, fmt.Errorf("install seccomp filter: %w", err)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_GETPPID, 0, 0, 0); errno != answer {
		return childReply{}, fmt.Errorf("seccomp filter is not obeyed: getppid gives %w", errno)
	}
	return childReply{}, nil
}

func seccomp(operation uintptr, arg unsafe.Pointer) error {
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, operation, 0, uintptr(arg)); errno != 0 {
		return errno
	}
	return nil
}

func probePtrace(ctx context.Context, m *machine) Finding {
	scope := "no yama"
	n, yamaErr := m.number("proc/sys/kernel/yama/ptrace_scope")
	if yamaErr == nil {
		scope = fmt.Sprintf("yama ptrace_scope %d", n)
	}
	if _, err := m.child(ctx, childRequest{probe: "ptrace"}); err != nil {
		remedy := "if this is a container, its seccomp profile forbids ptrace: allow it, or run on the host"
		if yamaErr == nil && n >= 2 {
			remedy = "as root: sysctl -w kernel.yama.ptrace_scope=1 (3 can be undone only by a reboot), and keep it in /etc/sysctl.d"
		}
		return fail(remedy, "cannot trace an own child (%s): %v", scope, err)
	}
	return ok("an own child can be traced (%s)", scope)
}

// childPtrace does to a child the ptrace calls that the sentry does to its stubs.
func childPtrace() (reply childReply, err error) {
	runtime.LockOSThread() // only the tracing thread may use ptrace
	cmd := exec.Command(selfExe, childArg, "wait")
	cmd.SysProcAttr = childAttr(0)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return reply, fmt.Errorf("make pipe: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return reply, fmt.Errorf("start child to trace: %w", err)
	}
	defer func() {
		stdin.Close()
		cmd.Process.Kill() // in any state of tracing
		if waitErr := cmd.Wait(); waitErr != nil && !errors.As(waitErr, new(*exec.ExitError)) {
			err = errors.Join(err, waitErr)
		}
	}()
	pid := cmd.Process.Pid
	if err := unix.PtraceAttach(pid); err != nil {
		return reply, fmt.Errorf("attach: %w", err)
	}
	var status unix.WaitStatus
	if _, err := unix.Wait4(pid, &status, unix.WALL, nil); err != nil || !status.Stopped() {
		return reply, fmt.Errorf("wait for the traced child: status %#x, %v", status, err)
	}
	if err := unix.PtraceSetOptions(pid, unix.PTRACE_O_TRACESYSGOOD|unix.PTRACE_O_EXITKILL); err != nil {
		return reply, fmt.Errorf("set trace options: %w", err)
	}
	if err := copyRegisters(pid); err != nil {
		return reply, err
	}
	if err := unix.PtraceDetach(pid); err != nil {
		return reply, fmt.Errorf("detach: %w", err)
	}
	return reply, nil
}

// copyRegisters reads the registers of a stopped thread and writes them back.
func copyRegisters(pid int) error {
	const prstatus = 1 // NT_PRSTATUS of elf.h: the general registers
	var buf [1024]byte // more than any architecture has
	iov := unix.Iovec{Base: &buf[0]}
	iov.SetLen(len(buf))
	for _, request := range []uintptr{unix.PTRACE_GETREGSET, unix.PTRACE_SETREGSET} {
		_, _, errno := unix.Syscall6(unix.SYS_PTRACE, request, uintptr(pid), prstatus, uintptr(unsafe.Pointer(&iov)), 0, 0)
		if errno != 0 {
			return fmt.Errorf("copy registers of the traced child: %w", errno)
		}
	}
	return nil
}

func probeMemfd(context.Context, *machine) Finding {
	if err := tryMemfd(); err != nil {
		return fail("use a kernel with CONFIG_MEMFD_CREATE, and mount /proc; "+remedyContainer, "%v", err)
	}
	return ok("sealing and opening again read-only work")
}

// tryMemfd does the steps of a fork with the memory of a sandbox: make a memory file, write to it,
// open it again read only for the child, seal it.
func tryMemfd() error {
	fd, err := unix.MemfdCreate("ramet-doctor", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return fmt.Errorf("make memory file: %w", err)
	}
	defer unix.Close(fd)
	if _, err := unix.Pwrite(fd, []byte("x"), 0); err != nil {
		return fmt.Errorf("write memory file: %w", err)
	}
	reader, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return fmt.Errorf("open memory file again: %w", err)
	}
	defer reader.Close()
	if _, err := unix.Pwrite(int(reader.Fd()), []byte("y"), 0); err != unix.EBADF {
		return fmt.Errorf("memory file opened read-only can be written: %v", err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_WRITE); err != nil {
		return fmt.Errorf("seal memory file: %w", err)
	}
	if _, err := unix.Pwrite(fd, []byte("y"), 0); err != unix.EPERM {
		return fmt.Errorf("sealed memory file can be written: %v", err)
	}
	return nil
}

// wantedLandlock is the version of Landlock that restricts files, ports and signals.
const wantedLandlock = 6

// probeLandlock asks for the version of Landlock, by which the gateway of sandboxes' networks is
// confined.
func probeLandlock(context.Context, *machine) Finding {
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	return judgeLandlock(abi, errno)
}

func judgeLandlock(abi uintptr, errno unix.Errno) Finding {
	remedy := fmt.Sprintf("use a kernel with version %d of Landlock (Linux 6.12), and have it among the security modules (lsm=landlock,...)", wantedLandlock)
	switch {
	case errno != 0:
		return warn(remedy, "%v: sandboxes and the gateway of their networks have one layer of isolation less", errno)
	case abi < wantedLandlock:
		return warn(remedy, "version %d: sandboxes and the gateway of their networks are not restricted in all respects", abi)
	}
	return ok("version %d", abi)
}
