package manager

import (
	"runtime"

	"ramet.dev/ramet/internal/sandbox"
)

// Bounds of limits that a user may ask for.
const (
	minCPUs      = 0.01 // less is no time that the kernel can give
	minMemoryMiB = 16
	maxMiB       = 1 << 24 // 16 TiB
	maxPids      = 1 << 22
	minOpenFiles = 64 // interpreters of contexts start with them
	maxOpenFiles = 1 << 20

	// overcommit is how many times the machine's memory a sandbox may be allowed: what
	// was written for a larger machine works, and a unit too many is noticed.
	overcommit = 4
)

// machine is what bounds the limits of new sandboxes.
type machine struct {
	cpus      int
	memoryMiB int64 // 0 if it is not known
}

func (m *Manager) validLimits(l sandbox.Limits) error {
	here := machine{cpus: runtime.NumCPU()}
	if l.MemoryMiB != 0 { // else it need not be asked for
		if _, total, err := m.hostMemory(); err == nil {
			here.memoryMiB = total >> 20
		}
	}
	return here.validLimits(l)
}

func (m machine) validLimits(l sandbox.Limits) error {
	most, why := int64(maxMiB), ""
	if m.memoryMiB > 0 && m.memoryMiB*overcommit < maxMiB {
		most, why = m.memoryMiB*overcommit, ", four times the memory of this machine"
	}
	switch {
	case l.CPUs != 0 && !(l.CPUs >= minCPUs && l.CPUs <= float64(m.cpus)): // neither is true of NaN
		return sandbox.Invalid("limits.cpus", "%v is not 0 (no limit) or from %v to %d, which this machine has", l.CPUs, minCPUs, m.cpus)
	case l.MemoryMiB != 0 && (l.MemoryMiB < minMemoryMiB || l.MemoryMiB > most):
		return sandbox.Invalid("limits.memory_mib", "%d MiB is not 0 (no limit) or from %d to %d MiB%s", l.MemoryMiB, minMemoryMiB, most, why)
	case l.DiskMiB < 0 || l.DiskMiB > maxMiB:
		return sandbox.Invalid("limits.disk_mib", "%d MiB is not from 0 (no limit) to %d MiB", l.DiskMiB, maxMiB)
	case l.Pids < 0 || l.Pids > maxPids:
		return sandbox.Invalid("limits.pids", "%d is not from 0 (no limit) to %d", l.Pids, maxPids)
	case l.OpenFiles != 0 && (l.OpenFiles < minOpenFiles || l.OpenFiles > maxOpenFiles):
		return sandbox.Invalid("limits.open_files", "%d is not 0 (the default) or from %d to %d", l.OpenFiles, minOpenFiles, maxOpenFiles)
	}
	return nil
}
