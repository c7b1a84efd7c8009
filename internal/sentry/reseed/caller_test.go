package reseed

import (
	"encoding/binary"
	"testing"

	"gvisor.dev/gvisor/pkg/hostarch"
)

// fakeMemory is memory that has one mapping.
type fakeMemory struct {
	at    hostarch.Addr
	data  []byte
	count int // bytes that were read
}

func (m *fakeMemory) read(at hostarch.Addr, p []byte) int {
	if at < m.at || at >= m.at+hostarch.Addr(len(m.data)) {
		return 0
	}
	n := copy(p, m.data[at-m.at:])
	m.count += n
	return n
}

// program returns memory with a name at 0x5000 and, at 0x3100, the instruction that refers
// to it.
func program(base hostarch.Addr, name string, instruction []byte, relative bool) *fakeMemory {
	m := &fakeMemory{at: base, data: make([]byte, 0x6000)}
	copy(m.data[0x5000:], name+"\x00")
	at := 0x3100 + copy(m.data[0x3100:], instruction)
	target := uint32(base) + 0x5000
	if relative {
		target = 0x5000 - uint32(at+4)
	}
	binary.LittleEndian.PutUint32(m.data[at:], target)
	return m
}

func TestInGenerator(t *testing.T) {
	const base = 0x40_0000
	lea, movl, movq := []byte{0x48, 0x8d, 0x15}, []byte{0xba}, []byte{0x48, 0xc7, 0xc2}
	for _, c := range []struct {
		what     string
		name     string
		code     []byte
		relative bool
		at       hostarch.Addr
		want     bool
	}{
		{"a library", "ossl_prov_drbg_generate", lea, true, base + 0x3010, true},
		{"another register", "ossl_prov_drbg_generate", []byte{0x4c, 0x8d, 0x3d}, true, base + 0x3010, true},
		{"a program with a fixed place", "ossl_prov_drbg_generate", movl, false, base + 0x3010, true},
		{"the same with 64 bits", "ossl_prov_drbg_generate", movq, false, base + 0x3010, true},
		{"the reference comes first", "ossl_prov_drbg_generate", lea, true, base + 0x3200, true},
		{"OpenSSL 1.1", "../crypto/rand/drbg_lib.c", lea, true, base + 0x3010, true},
		{"another function", "ossl_prov_drbg_generate_x", lea, true, base + 0x3010, false},
		{"another file", "../crypto/rand/rand_lib.c", lea, true, base + 0x3010, false},
		{"far behind", "ossl_prov_drbg_generate", lea, true, base + 0x2800, false},
		{"far ahead", "ossl_prov_drbg_generate", lea, true, base + 0x3600, false},
		{"nothing mapped", "ossl_prov_drbg_generate", lea, true, base + 0x9000, false},
		{"at the end of the address space", "ossl_prov_drbg_generate", lea, true, ^hostarch.Addr(0), false},
		{"at its beginning", "ossl_prov_drbg_generate", lea, true, 0, false},
	} {
		if got := inGenerator(program(base, c.name, c.code, c.relative), c.at); got != c.want {
			t.Errorf("%s: %v", c.what, got)
		}
	}
}

// TestInGeneratorAtTheEdge has a function that ends with what is mapped, or begins there.
func TestInGeneratorAtTheEdge(t *testing.T) {
	m := program(0x40_0000, "ossl_prov_drbg_generate", []byte{0xba}, false)
	m.at, m.data = m.at+0x3000, m.data[0x3000:]
	if !inGenerator(m, 0x40_3010) {
		t.Error("nothing is mapped before the function, and it is not found")
	}
	m = program(0x40_0000, "ossl_prov_drbg_generate", []byte{0xba}, false)
	binary.LittleEndian.PutUint32(m.data[0x3101:], 0x40_0100)
	copy(m.data[0x100:], "ossl_prov_drbg_generate\x00")
	m.data = m.data[:0x3200]
	if !inGenerator(m, 0x40_3010) {
		t.Error("nothing is mapped behind the function, and it is not found")
	}
}

// FuzzInGenerator has any code: it is read within bounds.
func FuzzInGenerator(f *testing.F) {
	f.Add(program(0x40_0000, "ossl_prov_drbg_generate", []byte{0xba}, false).data[0x3000:0x3200], uint64(0x40_0000), uint64(0x40_0010))
	f.Add([]byte{0x48, 0x8d, 0x05, 0xff, 0xff, 0xff, 0xff, 0xb8}, ^uint64(0)-100, ^uint64(0)-95)
	f.Fuzz(func(t *testing.T, data []byte, base, at uint64) {
		m := &fakeMemory{at: hostarch.Addr(base), data: data}
		inGenerator(m, hostarch.Addr(at))
		if limit := (codeBefore + codeAfter) * (1 + longestName); m.count > limit {
			t.Errorf("%d bytes were read", m.count)
		}
	})
}
