package main

// registerBytes is how much is in registers.
func registerBytes() int { return 80 }

// serveRegisters is serveForked for registers.
//
//go:nosplit
//go:norace
func serveRegisters(shared, _ *exchange) { holdInRegisters(shared) }

// holdInRegisters serves the first, one of the middle and the last vector register, and two pairs of general ones.
func holdInRegisters(shared *exchange)
