package reseed

import (
	"encoding/binary"
	"slices"
	"testing"

	"gvisor.dev/gvisor/pkg/hostarch"
)

const usual = "adrp and add"

var loaders = map[string]loader{
	usual: func(at, target hostarch.Addr) []byte {
		return words(adrpOf(1, at, target), addOf(1, 1, uint32(target&0xfff)))
	},
	"other instructions between": func(at, target hostarch.Addr) []byte {
		return words(adrpOf(19, at, target), 0xd503201f, 0xd503201f, addOf(2, 19, uint32(target&0xfff)))
	},
	"the beginning of several constants": func(at, target hostarch.Addr) []byte {
		first := target - 0x20
		return words(adrpOf(0, at, first), addOf(0, 0, uint32(first&0xfff)), addOf(1, 0, 0x20))
	},
	"a constant in pages": func(at, target hostarch.Addr) []byte {
		return words(adrpOf(3, at, target-0x1000), addOf(3, 3, 1|1<<12), addOf(4, 3, uint32(target&0xfff)))
	},
	"adr": func(at, target hostarch.Addr) []byte {
		d := uint32(target - at)
		return words(adr | d&3<<29 | d>>2&0x7ffff<<5 | 5)
	},
	"not aligned before": func(at, target hostarch.Addr) []byte {
		return words(0, adrpOf(1, at+4, target), addOf(1, 1, uint32(target&0xfff)))
	},
}

func words(all ...uint32) (b []byte) {
	for _, w := range all {
		b = binary.LittleEndian.AppendUint32(b, w)
	}
	return b
}

func adrpOf(register uint32, at, target hostarch.Addr) uint32 {
	pages := uint32(target>>12) - uint32(at>>12)
	return adrp | pages&3<<29 | pages>>2&0x7ffff<<5 | register
}

func addOf(to, from, constant uint32) uint32 { return add | constant<<10 | from<<5 | to }

// TestAddresses compares with what an assembler made: adrp x1, 0x12000; add x1, x1, #0x345; adrp x2, 0xf000, the last in the next page.
func TestAddresses(t *testing.T) {
	code := words(0xd0000001, 0x910d1421, 0xd0ffffe2)
	got := slices.Collect(references(code, 0x10ff8))
	if want := []hostarch.Addr{0x12000, 0x12345, 0xf000}; !slices.Equal(got, want) {
		t.Errorf("%x, want %x", got, want)
	}
}
