package aside

import (
	"gvisor.dev/gvisor/pkg/sentry/arch/fpu"

	"ramet.dev/ramet/api"
)

// noRegisters is what fpu.State.AfterLoad takes for registers that were never used.
var noRegisters = make(fpu.State, fpu.FP_XSTATE_MAGIC2_SIZE)

// setRegisters sets registers as gVisor's loader does, which panics if this processor lacks
// some of them.
func setRegisters(registers *fpu.State, saved string) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = api.Errorf(api.CodeUnsupported, "this processor cannot hold the registers of a thread: %v", r)
		}
	}()
	*registers = fpu.State(saved)
	registers.AfterLoad()
	return nil
}
