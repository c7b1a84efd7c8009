package guest

import (
	"fmt"
	"math"
	"runtime"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/usage"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/sentry/limitfs"
)

// Programs size their heaps and pools by the memory and the processors that they find. They are shown a sandbox's
// limits, or what the machine has where there is no limit.

// machineMemory is the memory of the host in bytes.
var machineMemory uint64

// readMachine asks the host for its memory.
func readMachine() error {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return fmt.Errorf("read the memory of the machine: %w", err)
	}
	machineMemory = info.Totalram * uint64(info.Unit)
	return nil
}

// showMemory sets what /proc/meminfo and sysinfo(2) show as the memory there is. It is gVisor's variable, of the whole
// process, and must not change while a guest runs.
func showMemory(l api.Limits) {
	total := machineMemory
	if limit := uint64(l.MemoryMiB) << 20; limit > 0 {
		total = min(total, limit)
	}
	usage.MinimumTotalMemoryBytes, usage.MaximumTotalMemoryBytes = total, total
}

// processorsOf returns how many processors a new sandbox sees. It is part of the saved state: programs have things for
// each of them, so a child sees as many, wherever it runs.
func processorsOf(l api.Limits) uint {
	n := runtime.NumCPU()
	if l.CPUs > 0 {
		n = min(n, int(math.Ceil(l.CPUs)))
	}
	return uint(n)
}

// shownLimits returns the limits that the files of the control group show.
func shownLimits(l api.Limits) limitfs.Limits {
	return limitfs.Limits{Memory: l.MemoryMiB << 20, CPU: int64(math.Round(l.CPUs * limitfs.Period)), Pids: l.Pids}
}
