package process

import (
	"fmt"
	"runtime"
	"slices"

	seccomp "github.com/elastic/go-seccomp-bpf"
	"golang.org/x/sys/unix"
)

// calls are the system calls of the gateway whatever their arguments are: those of the Go runtime, of
// sockets that are open, and of reading. archCalls are more of them.
var calls = []string{
	"read", "readv", "pread64", "write", "writev", "close", "fstat", "statx", "lseek", "getdents64", "readlinkat",
	"mmap", "munmap", "mprotect", "madvise", "brk", "mincore",
	"futex", "sched_yield", "sched_getaffinity", "nanosleep", "clock_nanosleep", "clock_gettime", "gettimeofday",
	"rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "sigaltstack", "restart_syscall", "tgkill", "gettid", "getpid", "getppid", "getuid", "geteuid", "getgid", "getegid",
	"exit", "exit_group", "getrandom", "getrusage", "uname", "prlimit64",
	"epoll_create1", "epoll_ctl", "epoll_pwait", "eventfd2", "pipe2", "splice", "ppoll",
	"socketpair", "connect", "bind", "accept4", "sendto", "recvfrom", "sendmsg", "recvmsg", "shutdown", "getsockname", "getpeername", "setsockopt", "getsockopt",
	"fcntl", "set_robust_list", "rseq",
}

// narrowed are those whose arguments matter: sockets of the internet, and of the kernel for the
// addresses of the host; threads and no processes; files to be read.
var narrowed = []seccomp.NameWithConditions{
	only("socket", 0, seccomp.Equal, unix.AF_INET),
	only("socket", 0, seccomp.Equal, unix.AF_INET6),
	only("socket", 0, seccomp.Equal, unix.AF_NETLINK),
	only("clone", 0, seccomp.BitsSet, unix.CLONE_THREAD),
	only("prctl", 0, seccomp.Equal, unix.PR_SET_VMA),
}

// reading lets files be opened to be read.
var reading = only("openat", 2, seccomp.BitsNotSet, unix.O_WRONLY|unix.O_RDWR|unix.O_CREAT|unix.O_TRUNC)

// holding are the calls of what holds requests and sends them: which files they are about is Landlock's
// business.
var holding = []string{"openat", "renameat", "renameat2", "unlinkat", "mkdirat", "fsync", "sendfile"}

func only(name string, argument uint32, how seccomp.Operation, value uint64) seccomp.NameWithConditions {
	return seccomp.NameWithConditions{Name: name, Conditions: seccomp.ArgumentConditions{{Argument: argument, Operation: how, Value: value}}}
}

// filterCalls makes all other system calls fail with EPERM, in all threads.
func filterCalls(cfg *Config) (string, error) {
	if !seccomp.Supported() {
		return "the kernel has no filters of system calls", nil
	}
	names, conditions := slices.Concat(calls, archCalls), narrowed
	if cfg.NoHold == "" {
		names = append(names, holding...)
	} else {
		conditions = append([]seccomp.NameWithConditions{reading}, narrowed...)
	}
	// The library sets no_new_privs in its thread and then installs the filter in all.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := seccomp.LoadFilter(seccomp.Filter{
		NoNewPrivs: true,
		Flag:       seccomp.FilterFlagTSync,
		Policy: seccomp.Policy{
			DefaultAction: seccomp.ActionErrno,
			Syscalls: []seccomp.SyscallGroup{
				{Names: names, NamesWithCondtions: conditions, Action: seccomp.ActionAllow},
				// A C library takes this for an older kernel and uses clone.
				{Names: []string{"clone3"}, Action: seccomp.ActionErrno | seccomp.Action(unix.ENOSYS)},
			},
		},
	})
	if err != nil {
		return "", fmt.Errorf("install filter: %w", err)
	}
	return "", nil
}
