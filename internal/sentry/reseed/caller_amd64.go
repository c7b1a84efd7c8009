package reseed

import (
	"encoding/binary"
	"iter"

	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
)

// callersOf returns what may be the generator's code: the C library's getpid returns to what is on top of the stack,
// and is itself at the call unless it is inlined.
func callersOf(t *kernel.Task) (places [2]hostarch.Addr, ok bool) {
	var top [8]byte
	if n, _ := t.CopyInBytes(hostarch.Addr(t.Arch().Stack()), top[:]); n < len(top) {
		return places, false
	}
	return [2]hostarch.Addr{hostarch.Addr(hostarch.ByteOrder.Uint64(top[:])), hostarch.Addr(t.Arch().IP())}, true
}

// references returns the addresses that code, which is at an address, may load into registers.
func references(code []byte, at hostarch.Addr) iter.Seq[hostarch.Addr] {
	return func(yield func(hostarch.Addr) bool) {
		for i := range code {
			if target, ok := reference(code[i:], at+hostarch.Addr(i)); ok && !yield(target) {
				return
			}
		}
	}
}

// reference returns the address that an instruction at an address loads into a register,
// if it is one that compilers use for that: lea relative to the next instruction, or mov
// of a constant in a program whose place is fixed.
func reference(code []byte, at hostarch.Addr) (hostarch.Addr, bool) {
	switch {
	case len(code) >= 7 && code[0]&0xf8 == 0x48 && code[1] == 0x8d && code[2]&0xc7 == 0x05:
		return at + 7 + hostarch.Addr(int64(int32(binary.LittleEndian.Uint32(code[3:])))), true
	case len(code) >= 5 && code[0]&0xf8 == 0xb8:
		target := hostarch.Addr(binary.LittleEndian.Uint32(code[1:]))
		return target, target >= hostarch.PageSize
	case len(code) >= 7 && code[0]&0xf8 == 0x48 && code[1] == 0xc7 && code[2]&0xf8 == 0xc0:
		target := hostarch.Addr(binary.LittleEndian.Uint32(code[3:]))
		return target, target >= hostarch.PageSize
	}
	return 0, false
}
