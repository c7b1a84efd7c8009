package sentry

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// prepareProcessor turns off pointer authentication in this process and its forks, of which the processes of the
// platform are some: its instructions then do nothing (prctl(2), PR_PAC_SET_ENABLED_KEYS). Programs for arm64 have
// these instructions around their functions. With them the stacks of a guest would have return addresses that were
// signed with keys of this process, which end with it, and a guest that is restored by another daemon would jump to
// nowhere. gVisor tells guests that there is no pointer authentication.
//
// A processor without it, and Linux before 5.13, refuse the call.
func prepareProcessor() error {
	const keys = unix.PR_PAC_APIAKEY | unix.PR_PAC_APIBKEY | unix.PR_PAC_APDAKEY | unix.PR_PAC_APDBKEY
	_, _, errno := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_PAC_SET_ENABLED_KEYS, keys, 0, 0, 0, 0)
	if errno != 0 && !errors.Is(errno, unix.EINVAL) {
		return fmt.Errorf("turn off pointer authentication: %w", errno)
	}
	return nil
}
