// Command ramet-gateway is the process that opens the connections of sandboxes. A daemon starts
// it, and it never runs by itself.
package main

import (
	"fmt"
	"os"

	"ramet.dev/ramet/internal/network/process"
)

func main() {
	code, is := process.Main(os.Args)
	if !is {
		fmt.Fprintln(os.Stderr, "ramet-gateway is started by ramet only")
		code = 2
	}
	os.Exit(code)
}
