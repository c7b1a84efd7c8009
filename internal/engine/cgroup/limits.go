package cgroup

import (
	"math"
	"strconv"
	"time"

	"ramet.dev/ramet/api"
)

const (
	// cpuPeriodMicros is the period of the CPU bandwidth controller. It is the
	// kernel's default, so v1 groups have it already.
	cpuPeriodMicros = 100_000
	// minCPUs gives the smallest quota that the kernel accepts, 1 ms a period.
	minCPUs = 0.01
	maxCPUs = 1 << 16
)

// Limits of one group. Zero means no limit of this kind.
type Limits struct {
	// CPUs is processor time per wall time: 1.5 is one and a half cores.
	CPUs float64
	// MemoryBytes counts private memory, page cache, shared memory files first
	// touched in the group, and swap.
	MemoryBytes int64
	// Pids counts host tasks: every thread of the sentry and of its stubs.
	Pids int64
}

// Stats has the resources that a group uses now and has used.
type Stats struct {
	MemoryBytes int64
	// CPU is user and system time since the group was made.
	CPU time.Duration
	// Pids is the number of host tasks, threads included.
	Pids int64
	// OOMKills is the number of processes killed because of the memory limit.
	OOMKills int64
}

func (l Limits) validate() error {
	if l.CPUs != 0 && !(l.CPUs >= minCPUs && l.CPUs <= maxCPUs) { // written so that NaN fails
		return api.Invalid("cpus", "%v is not a number of CPUs from %v to %d", l.CPUs, minCPUs, maxCPUs)
	}
	if l.MemoryBytes < 0 {
		return api.Invalid("memory", "%d bytes is negative", l.MemoryBytes)
	}
	if l.Pids < 0 {
		return api.Invalid("pids", "%d is negative", l.Pids)
	}
	return nil
}

func (l Limits) cpuQuotaMicros() int64 {
	return int64(math.Round(l.CPUs * cpuPeriodMicros))
}

// orUnlimited writes n, or the kernel's word for no limit if n is 0.
func orUnlimited(n int64, unlimited string) string {
	if n == 0 {
		return unlimited
	}
	return strconv.FormatInt(n, 10)
}
