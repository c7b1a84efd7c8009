package kern

import (
	"slices"

	"github.com/google/uuid"
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
)

// NewMark returns the mark of a command: processes inherit it, and cannot change it. It is the container
// ID of gVisor, for which Ramet has no other use. It is random, so that commands that siblings start after a
// fork have different marks.
func NewMark() string { return "command-" + uuid.NewString() }

// KillTree kills a process that was started from outside, its process group, and all processes with its mark,
// also those in sessions and groups of their own. It returns all that it has killed.
func (k *Kernel) KillTree(tg *kernel.ThreadGroup) (killed []*kernel.ThreadGroup) {
	mark, pg := tg.Leader().ContainerID(), tg.ProcessGroup()
	kill := &linux.SignalInfo{Signo: int32(linux.SIGKILL)}
	// A process that was about to start another one has done so in the next round. Errors mean that a process
	// is gone already.
	for found := true; found; {
		found = false
		for _, other := range k.RootPIDNamespace().ThreadGroups() {
			in := other == tg || pg != nil && other.ProcessGroup() == pg || mark != "" && other.Leader().ContainerID() == mark
			if in && !slices.Contains(killed, other) {
				killed, found = append(killed, other), true
				_ = k.SendExternalSignalThreadGroup(other, kill)
			}
		}
	}
	return killed
}
