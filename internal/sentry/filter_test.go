package sentry

import (
	"slices"
	"testing"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/bpf"
	"gvisor.dev/gvisor/pkg/seccomp"

	"ramet.dev/ramet/internal/sentry/platforms"
)

// TestTemplateFilter asks the filter of templates about calls by which a process gets at what it was not given.
func TestTemplateFilter(t *testing.T) {
	f, err := compileFilters(platforms.Systrap)
	if err != nil {
		t.Fatal(err)
	}
	for name, program := range map[string][]bpf.Instruction{"template": f.template, "sentry": f.sentry} {
		for _, call := range append([]uintptr{
			unix.SYS_OPENAT, unix.SYS_OPENAT2, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_READLINKAT, unix.SYS_MKDIRAT, unix.SYS_LINKAT,
			unix.SYS_EXECVE, unix.SYS_EXECVEAT, unix.SYS_SOCKET, unix.SYS_SOCKETPAIR, unix.SYS_CONNECT, unix.SYS_BIND,
			unix.SYS_MOUNT, unix.SYS_FSOPEN, unix.SYS_MOVE_MOUNT, unix.SYS_OPEN_TREE, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT,
			unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_CLONE3, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV,
			unix.SYS_PIDFD_OPEN, unix.SYS_PIDFD_GETFD, unix.SYS_PIDFD_SEND_SIGNAL, unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD,
			unix.SYS_IO_URING_SETUP, unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_KEXEC_LOAD, unix.SYS_INIT_MODULE, unix.SYS_SETUID, unix.SYS_SETGROUPS,
			unix.SYS_MSGGET, unix.SYS_SEMGET, unix.SYS_SHMGET, unix.SYS_MQ_OPEN, unix.SYS_PERSONALITY, unix.SYS_SWAPON, unix.SYS_REBOOT,
		}, archForbidden...) {
			if decide(t, program, call) == linux.SECCOMP_RET_ALLOW {
				t.Errorf("%s: call %d is allowed", name, call)
			}
		}
	}
	if got := decide(t, f.template, unix.SYS_OPENAT); got != linux.SECCOMP_RET_ERRNO|linux.BPFAction(unix.EPERM) {
		t.Errorf("what is not allowed has the result %#x", got) // anything stronger would take calls of guests
	}
	for _, call := range append([]uintptr{unix.SYS_CLONE, unix.SYS_PTRACE, unix.SYS_RECVMSG, unix.SYS_MMAP}, slices.Concat(birthCalls, archBirthCalls)...) {
		if decide(t, f.template, call) != linux.SECCOMP_RET_ALLOW {
			t.Errorf("template: call %d is not allowed", call)
		}
	}
}

// decide returns what a filter says of a call whose arguments are 0.
func decide(t *testing.T, program []bpf.Instruction, call uintptr) linux.BPFAction {
	t.Helper()
	p, err := bpf.Compile(program, false)
	if err != nil {
		t.Fatal(err)
	}
	data := linux.SeccompData{Nr: int32(call), Arch: seccomp.LINUX_AUDIT_ARCH}
	got, err := bpf.Exec[bpf.NativeEndian](p, seccomp.DataAsBPFInput(&data, make([]byte, data.SizeBytes())))
	if err != nil {
		t.Fatal(err)
	}
	return linux.BPFAction(got)
}
