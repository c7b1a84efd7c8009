package main

import "fmt"

// cpuid executes the instruction.
func cpuid(leaf, sub uint32) (a, b, c, d uint32)

// sayCPUID prints what the CPU says of itself where gVisor, in its place, says nothing, and
// which is the same on all cores: its clock, and of a hypervisor its name.
func sayCPUID([]string) (int, error) {
	leaves := []uint32{0x15, 0x16}
	if _, _, features, _ := cpuid(1, 0); features>>31 != 0 {
		leaves = append(leaves, 0x4000_0000)
	}
	last, _, _, _ := cpuid(0, 0)
	for _, leaf := range leaves {
		if a, b, c, d := cpuid(leaf, 0); (leaf <= last || leaf >= 0x4000_0000) && a|b|c|d != 0 {
			fmt.Printf("%08x: %08x %08x %08x %08x\n", leaf, a, b, c, d)
		}
	}
	return 0, nil
}
