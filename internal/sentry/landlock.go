package sentry

import (
	"fmt"
	"os"

	landlock "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// The rights to files that each version of Landlock knows, from the first one on.
var fileRights = []uint64{
	1<<13 - 1, landlock.AccessFSRefer, landlock.AccessFSTruncate, 0, landlock.AccessFSIoctlDev,
}

// Landlock's versions in which ports and scopes came.
const (
	landlockNet   = 4
	landlockScope = 6
)

// restrictAccess takes every right to files from the process and all that descend from it, except to read and write
// what is below proc, the directory of processes. A sentry closes that, see zygote. Descriptors that are open
// work on. With a newer kernel it also takes TCP ports, and signals and abstract sockets of processes that do not
// descend from this one. It reports whether the kernel has Landlock.
func restrictAccess(proc *os.Root) (bool, error) {
	version, err := landlock.LandlockGetABIVersion()
	if err != nil || version < 1 {
		return false, nil
	}
	var attr landlock.RulesetAttr
	for _, rights := range fileRights[:min(version, len(fileRights))] {
		attr.HandledAccessFS |= rights
	}
	if version >= landlockNet {
		attr.HandledAccessNet = landlock.AccessNetBindTCP | landlock.AccessNetConnectTCP
	}
	if version >= landlockScope {
		attr.Scoped = landlock.ScopeAbstractUnixSocket | landlock.ScopeSignal
	}
	ruleset, err := landlock.LandlockCreateRuleset(&attr, 0)
	if err != nil {
		return false, fmt.Errorf("make a ruleset: %w", err)
	}
	defer unix.Close(ruleset)
	dir, err := proc.Open(".")
	if err != nil {
		return false, err
	}
	defer dir.Close()
	rule := landlock.PathBeneathAttr{
		ParentFd:      int(dir.Fd()),
		AllowedAccess: attr.HandledAccessFS & (landlock.AccessFSReadFile | landlock.AccessFSReadDir | landlock.AccessFSWriteFile | landlock.AccessFSTruncate),
	}
	if err := landlock.LandlockAddPathBeneathRule(ruleset, &rule, 0); err != nil {
		return false, fmt.Errorf("allow the directory of processes: %w", err)
	}
	if err := allThreads(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(ruleset), 0, 0); err != nil {
		return false, fmt.Errorf("restrict all threads: %w", err)
	}
	return true, nil
}
