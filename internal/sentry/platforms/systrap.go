package platforms

import (
	"fmt"
	"os"

	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/platform"
	"gvisor.dev/gvisor/pkg/sentry/platform/systrap"

	"ramet.dev/ramet/internal/sentry/birth"
	"ramet.dev/ramet/internal/sentry/systraptuning"
)

// Systrap runs the code of guests in processes of the host, whose system calls a filter traps.
var Systrap Platform = systrapPlatform{}

type systrapPlatform struct{}

// Make implements Platform.
func (systrapPlatform) Make(born func()) (platform.Platform, error) {
	inner, err := birth.NewSystrap(born)
	if err != nil {
		return nil, err
	}
	tuned, err := systraptuning.NewPlatform(inner)
	if err != nil {
		return nil, fmt.Errorf("create platform: %w", err)
	}
	return tuned, nil
}

// Constants implements Platform.
func (systrapPlatform) Constants() platform.Platform { return &systrap.Systrap{} }

// Calls implements Platform.
func (systrapPlatform) Calls() map[string]func(original kernel.SyscallFn) kernel.SyscallFn {
	return map[string]func(original kernel.SyscallFn) kernel.SyscallFn{"mmap": systraptuning.Mmap, "mprotect": systraptuning.Mprotect}
}

// Filter implements Platform.
func (systrapPlatform) Filter() (info platform.SeccompInfo, err error) {
	constructor, err := platform.Lookup(birth.Systrap)
	if err != nil {
		return info, err
	}
	return constructor.PrecompiledSeccompInfo()[0], nil
}

// SharedFile implements Platform.
func (systrapPlatform) SharedFile(proc *os.Root) (fd int, err error) { return birth.PlatformFile(proc) }

// NewFile implements Platform.
func (systrapPlatform) NewFile() (fd int, err error) { return birth.NewPlatformFile() }

// Spares implements Platform: one address space for init and one for the process that hardly any sandbox is without,
// if only the first command.
func (systrapPlatform) Spares() int { return 2 }
