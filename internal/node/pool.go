package node

import "ramet.dev/ramet/internal/engine/launch"

const (
	// MaxPoolSize bounds the pool.
	MaxPoolSize = 1024
	// Each blank sentry takes some 7 MiB, so a default pool takes at most a
	// hundredth of the machine's memory.
	memoryPerPooled = 700 << 20
	minDefaultPool  = 8
	maxDefaultPool  = 32
	// While somebody forks into very many, a pool may take a twentieth.
	memoryPerBurst = memoryPerPooled / 5
	maxBurstPool   = 128
)

// DefaultPoolSize is how many blank sentries are kept ready on a machine with so
// many bytes of memory: a third of a large fork, and at least enough for a small
// one with some to spare; after a larger fork enough for the next one like it.
func DefaultPoolSize(memory uint64) launch.PoolSize {
	bounded := func(n, most uint64) int { return int(min(max(n, minDefaultPool), most)) }
	return launch.PoolSize{Least: bounded(memory/memoryPerPooled, maxDefaultPool), Most: bounded(memory/memoryPerBurst, maxBurstPool)}
}

// FixedPoolSize is that of a pool that keeps n.
func FixedPoolSize(n int) launch.PoolSize { return launch.PoolSize{Least: n, Most: n} }
