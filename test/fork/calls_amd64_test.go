package fork

import "golang.org/x/sys/unix"

// archUntriedCalls are more of untriedCalls.
var archUntriedCalls = []int{unix.SYS_FORK, unix.SYS_VFORK}
