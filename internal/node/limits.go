package node

import (
	"context"
	"math"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/service/access"
)

// Operations under way at once. Heavy ones keep lists of what changed in the daemon's
// memory, and take a processor each; archives have buffers only. Each takes as long as its
// client does to read it.
const (
	heavyPerTenant    = 4
	heavyAtOnce       = 8
	archivesPerTenant = 16
	archivesAtOnce    = 64
	// turnTimeout is how long one waits for its turn.
	turnTimeout = 30 * time.Second
)

// validLimits checks the limits of a new sandbox on this machine.
func (m *Node) validLimits(l api.Limits) error {
	here := api.Machine{CPUs: runtime.NumCPU()}
	if l.MemoryMiB != 0 { // else the host need not be asked
		if _, total, err := m.hostMemory(); err == nil {
			here.MemoryMiB = total >> 20
		}
	}
	if l.DiskMiB != 0 {
		var st unix.Statfs_t
		if err := unix.Statfs(m.cfg.Paths.Files(), &st); err == nil && st.Bsize > 0 {
			here.DiskMiB = int64(min(st.Blocks, math.MaxInt64/uint64(st.Bsize))) * st.Bsize >> 20
		}
	}
	return l.ValidOn(here)
}

// heavyTurn waits until a heavy operation of the caller may begin.
func (m *Node) heavyTurn(ctx context.Context) (done func(), err error) {
	return m.heavy.Take(ctx, access.From(ctx).Tenant)
}
