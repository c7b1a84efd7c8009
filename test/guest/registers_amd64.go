package main

import "golang.org/x/sys/cpu"

// registerBytes is how much is in registers.
func registerBytes() int {
	if cpu.X86.HasAVX {
		return 80
	}
	return 64
}

// serveRegisters is serveForked for registers.
//
//go:nosplit
//go:norace
func serveRegisters(shared, _ *exchange) { holdInRegisters(shared, cpu.X86.HasAVX) }

// holdInRegisters serves four registers, the last of which is twice as long with AVX: what
// it is saved in then begins behind what that of the others ends with.
func holdInRegisters(shared *exchange, avx bool)
