package guest

import (
	"fmt"
	"maps"

	"gvisor.dev/gvisor/pkg/sentry/kernel"

	"ramet.dev/ramet/internal/sentry/brief"
)

// replaceCalls puts our own in the place of some of gVisor's system calls.
func replaceCalls() error {
	for name, ours := range map[string]func(original kernel.SyscallFn) kernel.SyscallFn{
		"fallocate": passOnModes,
		"mmap":      brief.Mmap,
		"mprotect":  brief.Mprotect,
	} {
		for _, table := range kernel.SyscallTables() {
			number, err := table.LookupNo(name)
			if err != nil {
				return fmt.Errorf("replace a system call: %w", err)
			}
			changed := maps.Clone(table.Table)
			call := changed[number]
			call.Fn = ours(call.Fn)
			changed[number] = call
			table.Table = changed
			table.Init()
		}
	}
	return nil
}
