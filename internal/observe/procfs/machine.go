package procfs

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"
)

// BootID returns the id of the current boot.
func BootID() (string, error) {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("find out which run of the host this is: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// Load returns the load average of the last minute.
func Load() (float64, error) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return 0, err
	}
	load, err := fs.LoadAvg()
	if err != nil {
		return 0, fmt.Errorf("read the load: %w", err)
	}
	return load.Load1, nil
}

// CPUModel returns the name of the processor's model; empty on architectures that do not
// have it.
func CPUModel() (string, error) {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "", fmt.Errorf("read processors: %w", err)
	}
	return cpuModel(string(info)), nil
}

// cpuModel returns the first model name in cpuinfo, or "".
func cpuModel(info string) string {
	for line := range strings.Lines(info) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// Busy returns the processor time that the whole machine has used since it
// started, with that which other virtual machines took from it.
func Busy() (time.Duration, error) {
	doc, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, fmt.Errorf("read processor time of the machine: %w", err)
	}
	return parseBusy(string(doc))
}

// parseBusy reads the first line of proc_stat(5).
func parseBusy(doc string) (time.Duration, error) {
	line, _, _ := strings.Cut(doc, "\n")
	fields := strings.Fields(line)
	// user, nice and system; idle and iowait are left out; irq, softirq, steal.
	used := []int{1, 2, 3, 6, 7, 8}
	if len(fields) <= used[len(used)-1] || fields[0] != "cpu" {
		return 0, fmt.Errorf("read processor time of the machine: %q is not its line", line)
	}
	var sum time.Duration
	for _, i := range used {
		ticks, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read processor time of the machine: %w", err)
		}
		sum += time.Duration(ticks) * time.Second / userHZ
	}
	return sum, nil
}
