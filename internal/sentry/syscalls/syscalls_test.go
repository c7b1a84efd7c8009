package syscalls

import (
	"runtime"
	"slices"
	"strings"
	"testing"

	"gvisor.dev/gvisor/pkg/abi"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
)

// triedCalls are the system calls that gVisor implements and that TestSystemCalls of test/fork
// makes.
// One that is not listed is new: before it is entered here, see whether it makes a new
// kind of object, which then belongs into TestKindsOfObjects there.
const triedCalls = `
accept accept4 access afs_syscall alarm arch_prctl bind bpf brk capget capset chdir chmod chown chroot clock_getres clock_gettime clock_nanosleep
clock_settime close close_range connect copy_file_range creat dup dup2 dup3 epoll_create epoll_create1 epoll_ctl epoll_pwait epoll_pwait2 epoll_wait
eventfd eventfd2 execve execveat faccessat faccessat2 fadvise64 fallocate fchdir fchmod fchmodat fchown fchownat fcntl fdatasync fgetxattr flistxattr
flock fremovexattr fsetxattr fstat fstatfs fsync ftruncate futex futimesat get_mempolicy get_robust_list getcpu getcwd getdents getdents64 getegid
geteuid getgid getgroups getitimer getpeername getpgid getpgrp getpid getppid getpriority getrandom getresgid getresuid getrlimit getrusage getsid
getsockname getsockopt gettid gettimeofday getuid getxattr inotify_add_watch inotify_init inotify_init1 inotify_rm_watch io_cancel io_destroy
io_getevents io_setup io_submit io_uring_enter io_uring_setup ioctl ioprio_get ioprio_set keyctl lchown lgetxattr link linkat listen listxattr
llistxattr lremovexattr lseek lsetxattr lstat madvise mbind membarrier memfd_create mincore mkdir mkdirat mknod mknodat mlock mlock2 mlockall mmap
mount mprotect mq_open mq_unlink mremap msgctl msgget msgrcv msgsnd msync munlock munlockall munmap nanosleep newfstatat open openat openat2 pause
personality pidfd_getfd pidfd_open pipe pipe2 pivot_root poll ppoll prctl pread64 preadv preadv2 process_vm_readv process_vm_writev pselect6
ptrace pwrite64 pwritev pwritev2 read readahead readlink readlinkat readv recvfrom recvmmsg recvmsg removexattr rename renameat renameat2
restart_syscall rmdir rseq rt_sigaction rt_sigpending rt_sigprocmask rt_sigreturn rt_sigsuspend rt_sigtimedwait sched_get_priority_max
sched_get_priority_min sched_getaffinity sched_getattr sched_getparam sched_getscheduler sched_setaffinity sched_setattr sched_setscheduler
sched_yield seccomp select semctl semget semop semtimedop sendfile sendmmsg sendmsg sendto set_mempolicy set_robust_list set_tid_address setdomainname
setgid setgroups sethostname setitimer setns setpgid setpriority setregid setresgid setresuid setreuid setrlimit setsid setsockopt setuid setxattr
shmat shmctl shmdt shmget shutdown sigaltstack signalfd signalfd4 socket socketpair splice stat statfs statx symlink symlinkat sync sync_file_range
syncfs sysinfo syslog tee time timer_create timer_delete timer_getoverrun timer_gettime timer_settime timerfd_create timerfd_gettime timerfd_settime
times truncate umask umount2 uname unlink unlinkat unshare utime utimensat utimes wait4 waitid write writev
`

// untriedCalls would end the process that makes them with random arguments, or another
// one, or make another one of it. The objects that they make, processes and threads, are
// everywhere.
const untriedCalls = "exit exit_group kill tkill tgkill rt_sigqueueinfo rt_tgsigqueueinfo pidfd_send_signal fork vfork clone clone3 prlimit64"

// missingCalls are those that sandboxes do not have although gVisor does: what they make
// cannot be saved.
const missingCalls = "open_tree move_mount fsopen fsconfig fsmount"

// implemented returns the numbers of the calls that gVisor implements, by name.
func implemented(t *testing.T) map[string]int {
	t.Helper()
	table, ok := kernel.LookupSyscallTable(abi.Linux, arch.Host)
	if !ok {
		t.Fatal("there is no table of system calls")
	}
	names := map[string]int{}
	for number, call := range table.Table {
		if call.SupportLevel != kernel.SupportUnimplemented {
			names[call.Name] = int(number)
		}
	}
	return names
}

// TestSystemCallsAreKnown compares the system calls of this gVisor with those that are
// known here.
func TestSystemCallsAreKnown(t *testing.T) {
	known := strings.Fields(triedCalls + untriedCalls + " " + missingCalls)
	names := implemented(t)
	for name := range names {
		if !slices.Contains(known, name) {
			t.Errorf("gVisor has a new system call, %s: see triedCalls", name)
		}
	}
	if runtime.GOARCH != "amd64" {
		return // it lacks the calls that newer ones have replaced
	}
	for _, name := range known {
		if _, ok := names[name]; !ok {
			t.Errorf("gVisor has no system call %s any more", name)
		}
	}
}
