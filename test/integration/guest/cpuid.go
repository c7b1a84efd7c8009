package main

import "fmt"

// cpuid executes the instruction.
func cpuid(leaf, sub uint32) (a, b, c, d uint32)

// sayCPUID prints what the CPU says of itself where gVisor, which could answer in its
// place, says nothing: the hypervisor's leaf, which on Intel is that of the last basic one
// where there is no hypervisor, and those of processor features and clock.
func sayCPUID([]string) (int, error) {
	for _, leaf := range []uint32{0x40000000, 0x6, 0x15, 0x16} {
		a, b, c, d := cpuid(leaf, 0)
		fmt.Printf("%08x: %08x %08x %08x %08x\n", leaf, a, b, c, d)
	}
	return 0, nil
}
