package procfs

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// occupied are the lines of meminfo that grow with sandboxes and that the kernel cannot
// reclaim: pages of processes and of memory files, and the kernel's own memory for each
// process. The page cache is left out: the kernel reclaims it when memory is short.
var occupied = []string{"AnonPages", "Shmem", "PageTables", "KernelStack"}

// Memory is the state of the machine's memory, in bytes.
type Memory struct {
	Total     int64
	Available int64
	// Occupied is the memory of processes and memory files, with the kernel's page
	// tables and stacks for them.
	Occupied int64
}

// ReadMemory returns the state of the machine's memory.
func ReadMemory() (Memory, error) {
	doc, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return Memory{}, fmt.Errorf("read memory of the machine: %w", err)
	}
	return ParseMemory(doc)
}

// ParseMemory returns the state of a machine's memory by the text of its meminfo.
func ParseMemory(doc []byte) (Memory, error) {
	values := map[string]int64{}
	lines := bufio.NewScanner(bytes.NewReader(doc))
	for lines.Scan() {
		name, rest, ok := strings.Cut(lines.Text(), ":")
		if !ok {
			continue
		}
		number, _ := strings.CutSuffix(strings.TrimSpace(rest), " kB")
		kib, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			continue // a line of a newer kernel, in another form
		}
		values[name] = kib << 10
	}
	m := Memory{Total: values["MemTotal"], Available: values["MemAvailable"]}
	for _, name := range append([]string{"MemTotal", "MemAvailable"}, occupied...) {
		if _, ok := values[name]; !ok {
			return Memory{}, fmt.Errorf("read memory of the machine: no line %s", name)
		}
	}
	for _, name := range occupied {
		m.Occupied += values[name]
	}
	return m, nil
}
