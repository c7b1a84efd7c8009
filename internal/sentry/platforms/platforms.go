package platforms

import (
	"os"

	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/platform"
)

// Platform is a way in which gVisor runs the code of guests.
type Platform interface {
	// Make makes the platform, once per process. It calls born when all is done that is the same in every sentry; born
	// may return in a fork of the process. What Make does afterwards belongs to that process alone.
	Make(born func()) (platform.Platform, error)
	// Constants returns a platform that is only asked what is constant, until there is one.
	Constants() platform.Platform
	// Calls returns the system calls of the guest that the platform replaces, by name. It is called before Make.
	Calls() map[string]func(original kernel.SyscallFn) kernel.SyscallFn
	// Filter returns what gVisor's rules for system calls of a sentry depend on.
	Filter() (platform.SeccompInfo, error)
	// SharedFile returns the descriptor of a file in memory that a fork may not share, while Make is in born. proc is
	// /proc/self.
	SharedFile(proc *os.Root) (fd int, err error)
	// NewFile returns another such file, for a fork.
	NewFile() (fd int, err error)
	// Spares returns how many address spaces to make before there is a guest.
	Spares() int
}
