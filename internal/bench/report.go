package bench

import (
	"fmt"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/observe/procfs"
)

// Report is the result of a run, for --json.
type Report struct {
	Machine Machine  `json:"machine"`
	Rows    []Row    `json:"rows"`
	Targets []Target `json:"targets"`
	// Notes say what was not measured, and why.
	Notes []string `json:"notes"`
}

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

func thisMachine(version string) (Machine, error) {
	mem, err := procfs.ReadMemory()
	if err != nil {
		return Machine{}, err
	}
	m := Machine{
		CPUs: runtime.NumCPU(), MemoryMiB: mem.Total >> 20, Arch: runtime.GOARCH, Root: os.Geteuid() == 0,
		Ramet: version, Started: time.Now().UTC(), LoadBefore: load(),
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

// load returns the load average of the last minute, or -1 if it is unknown.
func load() float64 {
	v, err := procfs.Load()
	if err != nil {
		return -1
	}
	return v
}
