package spawn

import (
	"fmt"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
	"gvisor.dev/gvisor/pkg/sentry/limits"
)

// Open files of a process in a sandbox without such a limit: as many as container runtimes
// give.
const (
	softOpenFiles = 65536
	hardOpenFiles = 1 << 20
)

// Limits returns Linux's defaults, with the sandbox's limit of open files.
func (s *Spawner) Limits() *limits.LimitSet {
	ls, err := limits.NewLinuxLimitSet()
	if err != nil {
		panic(fmt.Sprintf("default limits: %v", err)) // a constant table
	}
	files := limits.Limit{Cur: softOpenFiles, Max: hardOpenFiles}
	if n := uint64(s.Identity.Limits.OpenFiles); n > 0 {
		files = limits.Limit{Cur: n, Max: n}
	}
	ls.SetUnchecked(limits.NumberOfFiles, files)
	return ls
}

// Bounded returns the credentials of a new process without the capability by which it, or a
// program that it executes, could raise its limit of open files. The kernel asks for that
// capability in the root user namespace, and only the bounding set leads back to
// it there. Its own maximum, fs.nr_open, would not do: root may write it.
func (s *Spawner) Bounded(creds *auth.Credentials) *auth.Credentials {
	if s.Identity.Limits.OpenFiles > 0 {
		creds = creds.Fork() // they are never changed once others have them
		keep := ^auth.CapabilitySetOf(linux.CAP_SYS_RESOURCE)
		creds.PermittedCaps &= keep
		creds.EffectiveCaps &= keep
		creds.BoundingCaps &= keep
	}
	return creds
}
