package main

import "fmt"

// signed has the processor sign a pointer with each of its keys for code, where pointer authentication is on, and
// returns the results.
func signed(pointer uintptr) (a, b uintptr)

// pointers prints whether pointers are signed.
func pointers([]string) (int, error) {
	const pointer = 0x1234_5678
	if a, b := signed(pointer); a != pointer || b != pointer {
		fmt.Printf("signed %#x %#x\n", a, b)
	} else {
		fmt.Println("not signed")
	}
	return 0, nil
}
