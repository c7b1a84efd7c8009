package aside

import (
	"slices"
	"strings"
	"testing"

	"gvisor.dev/gvisor/pkg/cpuid"
	"gvisor.dev/gvisor/pkg/sentry/arch/fpu"
)

// initRegisters learns which registers this processor has.
func initRegisters() {
	cpuid.Initialize()
	fpu.InitHostState()
}

// loadUnused does what gVisor does with registers that it has loaded.
func loadUnused(t *testing.T, registers *fpu.State, size int) {
	t.Helper()
	*registers = slices.Clone(*registers)
	registers.AfterLoad()
	if len(*registers) != size {
		t.Fatalf("unused registers are %d bytes, not %d", len(*registers), size)
	}
}

// unknownRegisters returns saved registers that no processor has.
func unknownRegisters(registers fpu.State) string {
	all := slices.Clone(registers)
	copy(all[512:], strings.Repeat("\xff", 8)) // XSTATE_BV: all that there could ever be
	return string(all)
}
