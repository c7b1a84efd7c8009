package api

const (
	// MaxChildren is how many sandboxes a fork or restore makes at most.
	MaxChildren = 1000
	// MaxCollected is how many bytes of each output stream of a command an answer holds that is
	// not streamed. The rest is dropped, and the answer says so.
	MaxCollected = 8 << 20
)

// ValidCount checks how many sandboxes a fork or restore is to make.
func ValidCount(n int) error {
	if n < 1 || n > MaxChildren {
		return Invalid("count", "%d is not from 1 to %d", n, MaxChildren)
	}
	return nil
}

// Bounds of the limits of a sandbox.
const (
	minCPUs      = 0.01 // less is no time that the kernel can give
	minMemoryMiB = 16
	maxMiB       = 1 << 24 // 16 TiB
	maxPids      = 1 << 22
	minOpenFiles = 64 // interpreters of contexts start with them
	maxOpenFiles = 1 << 20

	// overcommit is the largest allowed ratio of a limit to the machine's memory, or to the
	// file system of sandboxes' files: limits that were written for a larger machine work,
	// and a wrong unit is noticed.
	overcommit = 4
)

// Machine is the size of the machine that bounds the limits of its sandboxes.
type Machine struct {
	CPUs      int
	MemoryMiB int64 // 0 if it is not known
	DiskMiB   int64 // of the file system of sandboxes' files; 0 if it is not known
}

// ValidOn returns a CodeInvalid error unless a sandbox on m can have the limits.
func (l Limits) ValidOn(m Machine) error {
	most, why := mostMiB(m.MemoryMiB, ", four times the memory of this machine")
	mostDisk, whyDisk := mostMiB(m.DiskMiB, ", four times the file system that files of sandboxes are on")
	switch {
	case l.CPUs != 0 && !(l.CPUs >= minCPUs && l.CPUs <= float64(m.CPUs)): // neither is true of NaN
		return Invalid("limits.cpus", "%v is not 0 (no limit) or from %v to %d, which this machine has", l.CPUs, minCPUs, m.CPUs)
	case l.MemoryMiB != 0 && (l.MemoryMiB < minMemoryMiB || l.MemoryMiB > most):
		return Invalid("limits.memory_mib", "%d MiB is not 0 (no limit) or from %d to %d MiB%s", l.MemoryMiB, minMemoryMiB, most, why)
	case l.DiskMiB < 0 || l.DiskMiB > mostDisk:
		return Invalid("limits.disk_mib", "%d MiB is not from 0 (no limit) to %d MiB%s", l.DiskMiB, mostDisk, whyDisk)
	case l.Pids < 0 || l.Pids > maxPids:
		return Invalid("limits.pids", "%d is not from 0 (no limit) to %d", l.Pids, maxPids)
	case l.OpenFiles != 0 && (l.OpenFiles < minOpenFiles || l.OpenFiles > maxOpenFiles):
		return Invalid("limits.open_files", "%d is not 0 (the default) or from %d to %d", l.OpenFiles, minOpenFiles, maxOpenFiles)
	}
	return nil
}

// mostMiB returns the largest limit in MiB on a machine that has so many, and the reason. 0 is
// unknown.
func mostMiB(has int64, why string) (int64, string) {
	if has > 0 && has < maxMiB/overcommit {
		return has * overcommit, why
	}
	return maxMiB, ""
}
