package sentry

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/bpf"
	"gvisor.dev/gvisor/pkg/seccomp"
	"gvisor.dev/gvisor/pkg/sentry/platform"
	"gvisor.dev/gvisor/runsc/boot/filter/config"
)

// systrap is gVisor's name of the platform, which is linked by importing it.
const systrap = "systrap"

// Compiling the filter takes longer than all the rest of a start, and it is the
// same for every sentry: the platform's rules allow signals to any process, so
// that its own id is not part of it. So it is prepared, see prepared.go.

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
		unix.SYS_PRCTL: seccomp.PerArg{seccomp.EqualTo(unix.PR_SET_TIMERSLACK)},
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

// installFilter installs what encodeFilter encoded.
func installFilter(data []byte) error {
	instrs, err := decodeFilter(data)
	if err != nil {
		return err
	}
	if err := seccomp.SetFilter(instrs); err != nil {
		return fmt.Errorf("install system-call filter: %w", err)
	}
	return nil
}

// instrBytes is the size of an encoded instruction: that of Linux's
// struct sock_filter.
const instrBytes = 8

func encodeFilter(instrs []bpf.Instruction) []byte {
	b := make([]byte, 0, len(instrs)*instrBytes)
	for _, i := range instrs {
		b = binary.LittleEndian.AppendUint16(b, i.OpCode)
		b = append(b, i.JumpIfTrue, i.JumpIfFalse)
		b = binary.LittleEndian.AppendUint32(b, i.K)
	}
	return b
}

func decodeFilter(b []byte) ([]bpf.Instruction, error) {
	if len(b) == 0 || len(b)%instrBytes != 0 {
		return nil, fmt.Errorf("system-call filter has %d bytes", len(b))
	}
	instrs := make([]bpf.Instruction, 0, len(b)/instrBytes)
	for ; len(b) > 0; b = b[instrBytes:] {
		instrs = append(instrs, bpf.Instruction{
			OpCode: binary.LittleEndian.Uint16(b), JumpIfTrue: b[2], JumpIfFalse: b[3], K: binary.LittleEndian.Uint32(b[4:]),
		})
	}
	return instrs, nil
}
