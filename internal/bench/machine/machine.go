package machine

import (
	"fmt"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/observe/procfs"
)

// Machine is where and when the metrics were measured.
type Machine struct {
	CPUs      int       `json:"cpus"`
	CPUModel  string    `json:"cpu_model"`
	MemoryMiB int64     `json:"memory_mib"`
	Kernel    string    `json:"kernel"`
	Arch      string    `json:"arch"`
	Root      bool      `json:"root"`
	Ramet     string    `json:"ramet"`
	Runsc     string    `json:"runsc,omitempty"`
	Started   time.Time `json:"started"`
	// The load averages of the last minute.
	LoadBefore float64 `json:"load_before"`
	LoadAfter  float64 `json:"load_after"`
	// OthersPercent is the share of all processors that other processes used
	// while the daemon was measured. It shows how much the metrics were
	// disturbed; the load averages include our own work.
	OthersPercent float64 `json:"others_percent"`
	// WorkBestMS and WorkMS are the times of a fixed piece of work between the samples: the
	// best and the median.
	WorkBestMS float64 `json:"work_best_ms"`
	WorkMS     float64 `json:"work_ms"`
	Seconds    float64 `json:"seconds"`
}

// This returns the machine that this process runs on. version is that of the daemon.
func This(version string) (Machine, error) {
	mem, err := procfs.ReadMemory()
	if err != nil {
		return Machine{}, err
	}
	m := Machine{
		CPUs: runtime.NumCPU(), MemoryMiB: mem.Total >> 20, Arch: runtime.GOARCH, Root: os.Geteuid() == 0,
		Ramet: version, Started: time.Now().UTC(), LoadBefore: Load(),
	}
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return Machine{}, fmt.Errorf("ask for the kernel's name: %w", err)
	}
	m.Kernel = unix.ByteSliceToString(uts.Release[:])
	if m.CPUModel, err = procfs.CPUModel(); err != nil {
		return Machine{}, err
	}
	return m, nil
}

// Load returns the load average of the last minute, or -1 if it is unknown.
func Load() float64 {
	v, err := procfs.Load()
	if err != nil {
		return -1
	}
	return v
}
