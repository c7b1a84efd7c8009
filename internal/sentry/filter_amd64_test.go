package sentry

import "golang.org/x/sys/unix"

// archForbidden are calls that other architectures lack.
var archForbidden = []uintptr{unix.SYS_OPEN, unix.SYS_FORK, unix.SYS_VFORK, unix.SYS_MODIFY_LDT, unix.SYS_IOPL, unix.SYS_IOPERM}
