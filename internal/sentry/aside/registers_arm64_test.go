package aside

import (
	"slices"
	"testing"

	"gvisor.dev/gvisor/pkg/sentry/arch/fpu"
)

// initRegisters has nothing to learn.
func initRegisters() {}

// loadUnused does what gVisor does with registers that it has loaded: nothing.
func loadUnused(t *testing.T, registers *fpu.State, size int) {
	t.Helper()
	*registers = slices.Clone(*registers)
	if len(*registers) >= size {
		t.Fatalf("unused registers are %d bytes", len(*registers))
	}
}

// unknownRegisters returns saved registers of another processor, which has more.
func unknownRegisters(registers fpu.State) string { return string(registers) + "SVE" }
