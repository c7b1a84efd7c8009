package main

import (
	"fmt"

	"golang.org/x/sys/cpu"
	"golang.org/x/sys/unix"
)

// registers is a process that has the value in vector registers, and nowhere else.
type registers struct{ shared *exchange }

// registerBytes is how much that is.
func registerBytes() int {
	if cpu.X86.HasAVX {
		return 80
	}
	return 64
}

func newRegisters() (item, error) {
	shared, err := newExchange(unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	return registers{shared}, fork(serveRegisters, shared, nil)
}

// serveRegisters is serveForked for registers.
//
//go:nosplit
//go:norace
func serveRegisters(shared, _ *exchange) { holdInRegisters(shared, cpu.X86.HasAVX) }

// holdInRegisters serves four registers, the last of which is twice as long with AVX: what
// it is saved in then begins behind what that of the others ends with.
func holdInRegisters(shared *exchange, avx bool)

func (r registers) set(v string) error {
	clear(r.shared.text[:])
	// In all of them, from the last on.
	for at := registerBytes(); at > 0; at -= 16 {
		copy(r.shared.text[at-16:at], v)
	}
	return r.shared.call(opSet)
}

func (r registers) get() (string, error) {
	clear(r.shared.text[:])
	if err := r.shared.call(opGet); err != nil {
		return "", err
	}
	v := cstring(r.shared.text[:16])
	for at := 16; at < registerBytes(); at += 16 {
		if other := cstring(r.shared.text[at : at+16]); other != v {
			return "", fmt.Errorf("one register has %q, another %q", v, other)
		}
	}
	return v, nil
}
