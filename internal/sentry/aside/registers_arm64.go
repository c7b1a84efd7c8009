package aside

import (
	"gvisor.dev/gvisor/pkg/sentry/arch/fpu"

	"ramet.dev/ramet/api"
)

// noRegisters is the head of a saved state, without registers. The kernel is never run with it.
var noRegisters = make(fpu.State, 16)

// setRegisters sets the FPSIMD registers: 32 vectors of 128 bits, control and status. Every arm64 processor
// has all of them, and gVisor shows no others (SVE, SME) to a guest.
func setRegisters(registers *fpu.State, saved string) error {
	fresh := fpu.NewState() // aligned as the processor stores it
	if len(saved) != len(fresh) {
		return api.Errorf(api.CodeUnsupported, "saved registers of a thread are %d bytes, arm64 has %d", len(saved), len(fresh))
	}
	copy(fresh, saved)
	*registers = fresh
	return nil
}
