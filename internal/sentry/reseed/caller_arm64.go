package reseed

import (
	"encoding/binary"
	"iter"

	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
)

// returnRegister has the address that a function returns to: x30.
const returnRegister = 30

// callersOf returns what may be the generator's code: the C library's getpid calls no other function, so it leaves
// its return address in the register, and is itself at the call unless it is inlined. In Debian's libcrypto a function
// between the generator and getpid ends with a jump to that, so the address is the generator's.
func callersOf(t *kernel.Task) (places [2]hostarch.Addr, ok bool) {
	regs := &t.Arch().StateData().Regs
	return [2]hostarch.Addr{hostarch.Addr(regs.Regs[returnRegister]), hostarch.Addr(regs.Pc)}, true
}

// The instructions with which compilers load an address, and what is left of them without registers and constants
// (Arm Architecture Reference Manual, C6.2). ADR is relative to itself, ADRP to its page; ADD adds to that, if need
// be more than once: the first ADD may be to the beginning of several constants.
const (
	adr, adrp, adrMask = 0x10000000, 0x90000000, 0x9f000000
	add, addMask       = 0x91000000, 0xff800000
	addShift           = 1 << 22 // the constant of ADD is in pages of 4 KiB
	wordSize           = 4
)

// references returns the addresses that code, which is at an address, may load into registers. What else changes a
// register is left out of account: a name that is not referred to is of no harm.
func references(code []byte, at hostarch.Addr) iter.Seq[hostarch.Addr] {
	skip := int(-at % wordSize)
	return func(yield func(hostarch.Addr) bool) {
		var known [32]hostarch.Addr // by register, 0 if it has no address
		for i := skip; i+wordSize <= len(code); i += wordSize {
			word, here := binary.LittleEndian.Uint32(code[i:]), at+hostarch.Addr(i)
			to, from := word&31, word>>5&31
			distance := int64(int32(word<<8)>>13<<2 | int32(word>>29&3)) // immhi in bits 23:5, immlo in 30:29
			switch {
			case word&adrMask == adr:
				known[to] = here + hostarch.Addr(distance)
			case word&adrMask == adrp:
				known[to] = here&^(1<<12-1) + hostarch.Addr(distance<<12)
			case word&addMask == add && known[from] != 0:
				constant := hostarch.Addr(word >> 10 & (1<<12 - 1))
				if word&addShift != 0 {
					constant <<= 12
				}
				known[to] = known[from] + constant
			default:
				continue
			}
			if !yield(known[to]) {
				return
			}
		}
	}
}
