package sentry

import (
	"fmt"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/seccomp"
)

// prepareProcessor keeps the processes of the platform, which are yet to be made, from asking that
// the CPU fault at the instruction CPUID (ARCH_SET_CPUID in arch_prctl(2)). systrap asks so
// that it can answer itself, and does without on a CPU that cannot fault. A program that is
// linked dynamically executes CPUID some seventy times before its main function, more often
// than it calls the kernel, and each would be a switch to the sentry and back.
//
// docs/security.md says what a guest learns by it.
func prepareProcessor() error {
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
