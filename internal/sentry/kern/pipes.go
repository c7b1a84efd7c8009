package kern

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
	"gvisor.dev/gvisor/pkg/usermem"
)

// maxQueued is at least what a terminal has, in bytes, with a carriage return for each line
// feed.
const maxQueued = 512 << 10

// Queued returns how many bytes are in a pipe. Terminals tell only tasks: for one it is
// maxQueued.
func (k *Kernel) Queued(file *vfs.FileDescription) int {
	var count [4]byte
	var args arch.SyscallArguments // the count is stored at 0
	args[1].Value = linux.FIONREAD
	if _, err := file.Ioctl(k.SupervisorContext(), &usermem.BytesIO{Bytes: count[:]}, unix.SYS_IOCTL, args); err != nil {
		return maxQueued
	}
	return int(binary.NativeEndian.Uint32(count[:]))
}
