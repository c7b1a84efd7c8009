// Command ramet-sentry is the process of a sandbox. It is embedded in ramet,
// whose daemon starts it, and never runs by itself.
package main

import (
	"fmt"
	"os"

	"ramet.dev/ramet/internal/sentry"
)

func main() {
	if len(os.Args) < 2 || os.Args[1] != "sentry" {
		fmt.Fprintln(os.Stderr, "ramet-sentry is started by ramet only")
		os.Exit(2)
	}
	os.Exit(sentry.Main(os.Args[2:]))
}
