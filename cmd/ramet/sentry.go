package main

import "ramet.dev/ramet/internal/sentry"

// sentryMain is the process that a sandbox is. It returns its exit code.
func sentryMain(args []string) int { return sentry.Main(args) }
