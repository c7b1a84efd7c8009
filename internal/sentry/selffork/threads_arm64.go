package selffork

import (
	"fmt"
	"os"
	"strings"
)

// The vDSO, the kernel's code in each process. A fork has it at the same place.
//
//lint:ignore U1000 the handler's, in threads_arm64.s
var vdsoStart, vdsoSize uintptr

// learnThreads finds what the handler must know. proc is /proc/self.
func learnThreads(proc *os.Root) error {
	if vdsoSize != 0 {
		return nil // a fork
	}
	maps, err := proc.ReadFile("maps")
	if err != nil {
		return fmt.Errorf("find vDSO: %w", err)
	}
	for line := range strings.Lines(string(maps)) {
		if !strings.HasSuffix(line, " [vdso]\n") {
			continue
		}
		var start, end uintptr
		if _, err := fmt.Sscanf(line, "%x-%x ", &start, &end); err != nil {
			return fmt.Errorf("find vDSO: %q: %w", line, err)
		}
		vdsoStart, vdsoSize = start, end-start
		return nil
	}
	return nil // without one, no code uses the register of g for anything else
}
