package sentry

import (
	"fmt"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/bpf"
	"gvisor.dev/gvisor/pkg/seccomp"
	"gvisor.dev/gvisor/pkg/sentry/platform"
	"gvisor.dev/gvisor/runsc/boot/filter/config"
)

// systrap is gVisor's name of the platform, which is linked by importing it.
const systrap = "systrap"

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

func compileFilter() ([]bpf.Instruction, error) {
	constructor, err := platform.Lookup(systrap)
	if err != nil {
		return nil, err
	}
	opts := config.Options{Platform: constructor.PrecompiledSeccompInfo()[0]}
	rules, deny := config.Rules(opts)
	rules.Merge(extraRules())
	program := &seccomp.Program{
		RuleSets: []seccomp.RuleSet{{Rules: deny}, {Rules: rules, Action: seccomp.Allow}},
		Options:  config.SeccompOptions(opts),
	}
	instrs, _, err := program.Build()
	if err != nil {
		return nil, fmt.Errorf("compile system-call filter: %w", err)
	}
	return instrs, nil
}

// leaveCPUID keeps the processes of the platform, which are yet to be made, from asking that
// the CPU fault at the instruction CPUID (ARCH_SET_CPUID in arch_prctl(2)). systrap asks so
// that it can answer itself, and does without on a CPU that cannot fault. A program that is
// linked dynamically executes CPUID some seventy times before its main function, more often
// than it calls the kernel, and each would be a switch to the sentry and back.
//
// docs/security.md says what a guest learns by it.
func leaveCPUID() error {
	program := &seccomp.Program{
		RuleSets: []seccomp.RuleSet{{
			Rules:  seccomp.MakeSyscallRules(map[uintptr]seccomp.SyscallRule{unix.SYS_ARCH_PRCTL: seccomp.PerArg{seccomp.EqualTo(linux.ARCH_SET_CPUID)}}),
			Action: seccomp.ReturnError.Code(uint16(unix.ENODEV)), // as such a CPU has it
		}},
		Options: seccomp.ProgramOptions{DefaultAction: seccomp.Allow, BadArchAction: seccomp.Allow},
	}
	instrs, _, err := program.Build()
	if err != nil {
		return fmt.Errorf("compile filter for CPUID: %w", err)
	}
	return installFilter(instrs)
}

func installFilter(instrs []bpf.Instruction) error {
	if err := seccomp.SetFilter(instrs); err != nil {
		return fmt.Errorf("install system-call filter: %w", err)
	}
	return nil
}
