package reseed

import (
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

// loader returns instructions at an address that load another address into a register.
type loader func(at, target hostarch.Addr) []byte

// program returns memory with a name at 0x5000 and, at 0x3100, instructions that refer to it.
func program(base hostarch.Addr, name string, load loader) *fakeMemory {
	m := &fakeMemory{at: base, data: make([]byte, 0x6000)}
	copy(m.data[0x5000:], name+"\x00")
	copy(m.data[0x3100:], load(base+0x3100, base+0x5000))
	return m
}

const base = 0x40_0000

// TestReferences has the code of a generator refer to its name in all ways that compilers use.
func TestReferences(t *testing.T) {
	for what, load := range loaders {
		if !inGenerator(program(base, "ossl_prov_drbg_generate", load), base+0x3010) {
			t.Errorf("%s is not found", what)
		}
	}
}

func TestInGenerator(t *testing.T) {
	for _, c := range []struct {
		what string
		name string
		at   hostarch.Addr
		want bool
	}{
		{"a library", "ossl_prov_drbg_generate", base + 0x3010, true},
		{"the reference comes first", "ossl_prov_drbg_generate", base + 0x3200, true},
		{"OpenSSL 1.1", "../crypto/rand/drbg_lib.c", base + 0x3010, true},
		{"another function", "ossl_prov_drbg_generate_x", base + 0x3010, false},
		{"another file", "../crypto/rand/rand_lib.c", base + 0x3010, false},
		{"far behind", "ossl_prov_drbg_generate", base + 0x2800, false},
		{"far ahead", "ossl_prov_drbg_generate", base + 0x3600, false},
		{"nothing mapped", "ossl_prov_drbg_generate", base + 0x9000, false},
		{"at the end of the address space", "ossl_prov_drbg_generate", ^hostarch.Addr(0), false},
		{"at its beginning", "ossl_prov_drbg_generate", 0, false},
	} {
		if got := inGenerator(program(base, c.name, loaders[usual]), c.at); got != c.want {
			t.Errorf("%s: %v", c.what, got)
		}
	}
}

// TestInGeneratorAtTheEdge has a function that ends with what is mapped, or begins there.
func TestInGeneratorAtTheEdge(t *testing.T) {
	m := program(base, "ossl_prov_drbg_generate", loaders[usual])
	m.at, m.data = m.at+0x3000, m.data[0x3000:]
	if !inGenerator(m, base+0x3010) {
		t.Error("nothing is mapped before the function, and it is not found")
	}
	m = program(base, "", loaders[usual])
	copy(m.data[0x3100:], loaders[usual](base+0x3100, base+0x100))
	copy(m.data[0x100:], "ossl_prov_drbg_generate\x00")
	m.data = m.data[:0x3200]
	if !inGenerator(m, base+0x3010) {
		t.Error("nothing is mapped behind the function, and it is not found")
	}
}

// FuzzInGenerator has any code: it is read within bounds.
func FuzzInGenerator(f *testing.F) {
	for _, load := range loaders {
		f.Add(program(base, "ossl_prov_drbg_generate", load).data[0x3000:0x3200], uint64(base), uint64(base+0x10))
		f.Add(load(base, ^hostarch.Addr(0)), ^uint64(0)-100, ^uint64(0)-95)
	}
	f.Fuzz(func(t *testing.T, data []byte, base, at uint64) {
		m := &fakeMemory{at: hostarch.Addr(base), data: data}
		inGenerator(m, hostarch.Addr(at))
		if limit := (codeBefore + codeAfter) * (1 + longestName); m.count > limit {
			t.Errorf("%d bytes were read", m.count)
		}
	})
}
