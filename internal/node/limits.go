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

// Bounds of limits that a user may ask for.
const (
	minCPUs      = 0.01 // less is no time that the kernel can give
	minMemoryMiB = 16
	maxMiB       = 1 << 24 // 16 TiB
	maxPids      = 1 << 22
	minOpenFiles = 64 // interpreters of contexts start with them
	maxOpenFiles = 1 << 20

	// overcommit is how many times the machine's memory, or the file system that its
	// files are on, a sandbox may be allowed: what was written for a larger machine
	// works, and a unit too many is noticed.
	overcommit = 4
)

// Operations under way at once. Heavy ones keep lists of what changed in the daemon's
// memory, and take a processor each; archives have buffers only. Each takes as long as its
// client does to read it.
const (
	heavyPerTenant    = 4
	heavyAtOnce       = 8
	archivesPerTenant = 16
	archivesAtOnce    = 64
	// patienceForTurn is how long one waits for its turn.
	patienceForTurn = 30 * time.Second
)

// machine is what bounds the limits of new sandboxes.
type machine struct {
	cpus      int
	memoryMiB int64 // 0 if it is not known
	diskMiB   int64 // of the file system of sandboxes' files, likewise
}

func (m *Node) validLimits(l api.Limits) error {
	here := machine{cpus: runtime.NumCPU()}
	if l.MemoryMiB != 0 { // else it need not be asked for
		if _, total, err := m.hostMemory(); err == nil {
			here.memoryMiB = total >> 20
		}
	}
	if l.DiskMiB != 0 {
		var st unix.Statfs_t
		if err := unix.Statfs(m.cfg.Paths.Files(), &st); err == nil && st.Bsize > 0 {
			here.diskMiB = int64(min(st.Blocks, math.MaxInt64/uint64(st.Bsize))) * st.Bsize >> 20
		}
	}
	return here.validLimits(l)
}

func (m machine) validLimits(l api.Limits) error {
	most, why := mostMiB(m.memoryMiB, ", four times the memory of this machine")
	mostDisk, whyDisk := mostMiB(m.diskMiB, ", four times the file system that files of sandboxes are on")
	switch {
	case l.CPUs != 0 && !(l.CPUs >= minCPUs && l.CPUs <= float64(m.cpus)): // neither is true of NaN
		return api.Invalid("limits.cpus", "%v is not 0 (no limit) or from %v to %d, which this machine has", l.CPUs, minCPUs, m.cpus)
	case l.MemoryMiB != 0 && (l.MemoryMiB < minMemoryMiB || l.MemoryMiB > most):
		return api.Invalid("limits.memory_mib", "%d MiB is not 0 (no limit) or from %d to %d MiB%s", l.MemoryMiB, minMemoryMiB, most, why)
	case l.DiskMiB < 0 || l.DiskMiB > mostDisk:
		return api.Invalid("limits.disk_mib", "%d MiB is not from 0 (no limit) to %d MiB%s", l.DiskMiB, mostDisk, whyDisk)
	case l.Pids < 0 || l.Pids > maxPids:
		return api.Invalid("limits.pids", "%d is not from 0 (no limit) to %d", l.Pids, maxPids)
	case l.OpenFiles != 0 && (l.OpenFiles < minOpenFiles || l.OpenFiles > maxOpenFiles):
		return api.Invalid("limits.open_files", "%d is not 0 (the default) or from %d to %d", l.OpenFiles, minOpenFiles, maxOpenFiles)
	}
	return nil
}

// mostMiB returns how much may be allowed of something of which the machine has so
// much, 0 if that is not known, and why it is no more.
func mostMiB(has int64, why string) (int64, string) {
	if has > 0 && has < maxMiB/overcommit {
		return has * overcommit, why
	}
	return maxMiB, ""
}

// heavyTurn waits until a heavy operation of the caller may begin.
func (m *Node) heavyTurn(ctx context.Context) (done func(), err error) {
	return m.heavy.Take(ctx, access.From(ctx).Tenant)
}
