package sentry

import "golang.org/x/sys/unix"

// archBirthCalls see birthCalls: the segment of thread-local variables, in which Go keeps g.
var archBirthCalls = []uintptr{unix.SYS_ARCH_PRCTL}
