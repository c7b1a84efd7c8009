package main

import "fmt"

// pointers prints whether pointers are signed.
func pointers([]string) (int, error) {
	fmt.Println("not signed")
	return 0, nil
}
