package sentry

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/wire"
)

// confine gives up the privileges that neither the zygote nor a sentry needs. The order matters:
//
//  1. the root goes while there are still privileges to do so
//  2. resource limits
//  3. capabilities, in all threads, if there are no namespaces: else a sentry gets new
//     ones with its own, see child
//  4. no_new_privs, so that nothing can come back
//  5. files, ports and signals, which needs no_new_privs. proc is the directory of processes
func confine(cfg wire.ZygoteConfig, proc *os.Root) (api.Isolation, error) {
	iso := api.Isolation{
		UserNS: api.LayerOff, OwnUser: api.LayerOff, Namespaces: api.LayerOff, EmptyRoot: api.LayerOff,
		Landlock: api.LayerOff, Cgroup: api.LayerOff, Seccomp: api.LayerOff,
	}
	if cfg.Namespaces {
		iso.UserNS, iso.Namespaces = api.LayerOn, api.LayerOn
	}
	if cfg.Namespaces && !cfg.KeepRoot {
		if err := emptyRoot(); err != nil {
			return iso, fmt.Errorf("enter empty root: %w", err)
		}
		iso.EmptyRoot = api.LayerOn
	}
	if cfg.OwnUsers {
		iso.OwnUser = api.LayerOn // a sentry that cannot have its own is not born
	}
	if err := setLimits(); err != nil {
		return iso, err
	}
	iso.Rlimits = api.LayerOn
	if !cfg.Namespaces {
		if err := dropCapabilities(); err != nil {
			return iso, fmt.Errorf("drop capabilities: %w", err)
		}
	}
	iso.Caps = api.LayerOn
	if err := allThreads(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0); err != nil {
		return iso, fmt.Errorf("set no_new_privs: %w", err)
	}
	iso.NoNewPrivs = api.LayerOn
	restricted, err := restrictAccess(proc)
	if err != nil {
		return iso, fmt.Errorf("restrict access with Landlock: %w", err)
	}
	if restricted {
		iso.Landlock = api.LayerOn
	}
	return iso, nil
}

// emptyRoot makes an empty, read-only file system the root of the process.
func emptyRoot() error {
	if err := unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	const at = "/proc" // any directory that exists everywhere
	if err := unix.Mount("ramet", at, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "size=0,mode=0555"); err != nil {
		return fmt.Errorf("mount empty root: %w", err)
	}
	if err := os.Chdir(at); err != nil {
		return err
	}
	// With both arguments the same the old root ends up on top of the new one,
	// and is what "." refers to.
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("detach old root: %w", err)
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	flags := uintptr(unix.MS_REMOUNT | unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC)
	if err := unix.Mount("ramet", "/", "tmpfs", flags, "size=0,mode=0555"); err != nil {
		return fmt.Errorf("make root read-only: %w", err)
	}
	return nil
}

// setLimits bounds the resources that a compromised sentry could take.
func setLimits() error {
	for _, l := range []struct {
		name     string
		resource int
		max      uint64
	}{
		{"core", unix.RLIMIT_CORE, 0},
		{"locked memory", unix.RLIMIT_MEMLOCK, 0},
		{"message queues", unix.RLIMIT_MSGQUEUE, 0},
	} {
		if err := unix.Setrlimit(l.resource, &unix.Rlimit{Cur: l.max, Max: l.max}); err != nil {
			return fmt.Errorf("limit %s: %w", l.name, err)
		}
	}
	// Descriptors: one for each ancestor's memory, plus a few. The hard limit
	// is the host's; Go raised the soft one to it.
	return nil
}

// dropCapabilities empties the capability sets of all threads, and the bounding
// set of the calling one. A thread that keeps its bounding set gains nothing by
// it: the filter allows no execve, and with no_new_privs even that could not
// give back what is not permitted (capabilities(7)). Dropping it everywhere
// would take 41 system calls that stop the world, most of the time that
// confinement takes.
func dropCapabilities() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		if err == unix.EINVAL {
			break // more than this kernel knows
		}
		if err != nil && err != unix.EPERM {
			return fmt.Errorf("bounding set: %w", err)
		}
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	return allThreads(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&none[0])), 0)
}

// allThreads makes a system call in every thread of the process: Linux keeps
// privileges per thread.
func allThreads(nr, a, b, c uintptr) error {
	if _, _, errno := syscall.AllThreadsSyscall(nr, a, b, c); errno != 0 {
		return errno
	}
	return nil
}
