package sentry

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/bpf"
	"gvisor.dev/gvisor/pkg/seccomp"
	"gvisor.dev/gvisor/runsc/boot/filter/config"

	"ramet.dev/ramet/internal/sentry/platforms"
)

// The filter is compiled in the zygote, once for all sentries. It has the zygote's
// process id in it where gVisor allows a process to end itself by a signal, which a
// sentry does not need: its process id is another.

// extraRules are the system calls that this design adds to gVisor's own.
func extraRules() seccomp.SyscallRules {
	return seccomp.MakeSyscallRules(map[uintptr]seccomp.SyscallRule{
		// The control socket: new connections, and descriptors in both
		// directions.
		unix.SYS_ACCEPT4:     seccomp.PerArg{seccomp.AnyValue{}, seccomp.AnyValue{}, seccomp.AnyValue{}, seccomp.EqualTo(unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK)},
		unix.SYS_GETSOCKNAME: seccomp.MatchAll{},
		unix.SYS_GETPEERNAME: seccomp.MatchAll{},
		unix.SYS_RECVMSG:     seccomp.MatchAll{},
		unix.SYS_SENDMSG:     seccomp.MatchAll{},
		// Received descriptors are marked close-on-exec.
		unix.SYS_FCNTL: seccomp.PerArg{seccomp.AnyValue{}, seccomp.EqualTo(unix.F_SETFD), seccomp.EqualTo(unix.FD_CLOEXEC)},
		// Timers become precise when a sandbox has settled.
		unix.SYS_PRCTL: seccomp.Or{
			seccomp.PerArg{seccomp.EqualTo(unix.PR_SET_TIMERSLACK)},
			seccomp.PerArg{seccomp.EqualTo(unix.PR_SET_PDEATHSIG), seccomp.EqualTo(unix.SIGKILL)}, // of a copy: see below
		},
		// A copy of the process with one thread, and no descriptors but some: see selffork.Copy.
		unix.SYS_CLONE: seccomp.PerArg{seccomp.EqualTo(unix.SIGCHLD | unix.CLONE_PIDFD), seccomp.EqualTo(0), seccomp.AnyValue{}, seccomp.EqualTo(0), seccomp.EqualTo(0)},
		unix.SYS_MMAP: seccomp.Or{
			seccomp.PerArg{seccomp.AnyValue{}, seccomp.AnyValue{}, seccomp.EqualTo(unix.PROT_READ | unix.PROT_WRITE), seccomp.EqualTo(unix.MAP_PRIVATE | unix.MAP_FIXED | unix.MAP_NORESERVE)},
			seccomp.PerArg{seccomp.AnyValue{}, seccomp.AnyValue{}, seccomp.EqualTo(unix.PROT_READ | unix.PROT_WRITE), seccomp.EqualTo(unix.MAP_PRIVATE | unix.MAP_FIXED | unix.MAP_NORESERVE | unix.MAP_ANONYMOUS)},
		},
		unix.SYS_CLOSE_RANGE: seccomp.PerArg{seccomp.AnyValue{}, seccomp.AnyValue{}, seccomp.EqualTo(0)},
		// CPU time for stats.
		unix.SYS_GETRUSAGE: seccomp.MatchAll{},
	})
}

// filters are those of a sentry and of a template.
type filters struct{ sentry, template []bpf.Instruction }

func compileFilters(p platforms.Platform) (f filters, err error) {
	info, err := p.Filter()
	if err != nil {
		return f, err
	}
	opts := config.Options{Platform: info}
	rules, deny := config.Rules(opts)
	rules.Merge(extraRules())
	program := &seccomp.Program{
		RuleSets: []seccomp.RuleSet{{Rules: deny}, {Rules: rules, Action: seccomp.Allow}},
		Options:  config.SeccompOptions(opts),
	}
	if f.sentry, _, err = program.Build(); err != nil {
		return f, fmt.Errorf("compile system-call filter: %w", err)
	}
	program = templateProgram(rules)
	if f.template, _, err = program.Build(); err != nil {
		return f, fmt.Errorf("compile system-call filter of templates: %w", err)
	}
	return f, nil
}

// birthCalls are the system calls besides a sentry's that a template makes to fork itself, that its forks make until
// they are sentries, and that the processes of their platform make to become such. archBirthCalls are more of them.
var birthCalls = []uintptr{
	unix.SYS_CAPSET, unix.SYS_DUP3, unix.SYS_EPOLL_CREATE1, unix.SYS_EVENTFD2, unix.SYS_FTRUNCATE,
	unix.SYS_GETDENTS64, unix.SYS_GETGID, unix.SYS_GETPPID, unix.SYS_GETSOCKOPT, unix.SYS_GETUID, unix.SYS_KILL,
	unix.SYS_LSEEK, unix.SYS_MEMFD_CREATE, unix.SYS_MSEAL, unix.SYS_SECCOMP, unix.SYS_SETRESGID, unix.SYS_SETRESUID,
	unix.SYS_SETSID, unix.SYS_TKILL,
}

// templateProgram is the filter under which a template handles data of a sandbox. Its sentries, and the processes of
// their platforms, have filters of their own besides. It looks at numbers only: Linux remembers of such a filter which
// calls it allows, and does not run it for them. A call that it does not know fails. It must not end the process: calls
// of the guest are trapped by another filter, which counts more than an error, but less than an end.
func templateProgram(sentry seccomp.SyscallRules) *seccomp.Program {
	allowed := map[uintptr]seccomp.SyscallRule{}
	for call := range uintptr(mostCalls) {
		if sentry.Has(call) {
			allowed[call] = seccomp.MatchAll{}
		}
	}
	for _, call := range slices.Concat(birthCalls, archBirthCalls) {
		allowed[call] = seccomp.MatchAll{}
	}
	return &seccomp.Program{
		RuleSets: []seccomp.RuleSet{{Rules: seccomp.MakeSyscallRules(allowed), Action: seccomp.Allow}},
		Options: seccomp.ProgramOptions{
			DefaultAction: seccomp.ReturnError.Code(uint16(unix.EPERM)), BadArchAction: seccomp.ReturnError.Code(uint16(unix.EPERM)),
		},
	}
}

// mostCalls is above the number of every system call.
const mostCalls = 1024

func installFilter(instrs []bpf.Instruction) error {
	if err := seccomp.SetFilter(instrs); err != nil {
		return fmt.Errorf("install system-call filter: %w", err)
	}
	return nil
}
