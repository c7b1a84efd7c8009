package main

import (
	"fmt"
	"os"
)

// sentryMain is the process that a sandbox is. It returns its exit code.
func sentryMain([]string) int {
	fmt.Fprintln(os.Stderr, "ramet: engine not linked")
	return 1
}
