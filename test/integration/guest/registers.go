package main

import "golang.org/x/sys/unix"

// registers is a process that has the value in vector registers, and nowhere else.
type registers struct{ shared *exchange }

// registerBytes is how much that is.
const registerBytes = 64

func newRegisters() (item, error) {
	shared, err := newExchange(unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	return registers{shared}, fork(func() { holdInRegisters(shared) })
}

// holdInRegisters is serveForked for four registers. It does not return, and nothing but
// it runs in its process.
func holdInRegisters(shared *exchange)

func (r registers) set(v string) error {
	clear(r.shared.text[:])
	copy(r.shared.text[:registerBytes], v)
	return r.shared.call(opSet)
}

func (r registers) get() (string, error) {
	clear(r.shared.text[:])
	if err := r.shared.call(opGet); err != nil {
		return "", err
	}
	return cstring(r.shared.text[:registerBytes]), nil
}
