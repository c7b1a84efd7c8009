package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/engine/idlepoll"
	"ramet.dev/ramet/internal/observe/procfs"
)

const (
	mib = 1 << 20
	// One idle Python sandbox takes about 40 MiB, half of which its forks share.
	wantedMemory, minMemory = 512 * mib, 64 * mib
	// An image with Python and numpy takes about 100 MiB, and as much again while
	// it is made.
	wantedDisk, minDisk = 2048 * mib, 256 * mib
)

func probeMemory(_ context.Context, m *machine) Finding {
	info, err := m.text("proc/meminfo")
	if err != nil {
		return warn("mount /proc", "free memory is unknown: %v", err)
	}
	memory, err := procfs.ParseMemory([]byte(info))
	if err != nil {
		return warn("mount /proc", "free memory is unknown: %v", err)
	}
	free := memory.Available
	remedy := "end other programs, or use a machine with more memory"
	switch {
	case free < minMemory:
		return fail(remedy, "%d MiB available", free/mib)
	case free < wantedMemory:
		return warn(remedy, "%d MiB available, enough for few sandboxes", free/mib)
	}
	return ok("%d MiB available", free/mib)
}

func probeDisk(_ context.Context, m *machine) Finding {
	dir, err := existingAncestor(m.dataDir)
	if err != nil {
		return fail("choose another data directory", "%v", err)
	}
	if err := unix.Faccessat(unix.AT_FDCWD, dir, unix.W_OK|unix.X_OK, unix.AT_EACCESS); err != nil {
		return fail("choose another data directory, or let this user write to "+dir, "%s cannot be written: %v", dir, err)
	}
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return fail("choose another data directory", "%s: %v", dir, err)
	}
	return judgeDisk(dir, s.Bavail*uint64(s.Bsize)) // Bavail: without what is kept for root
}

func judgeDisk(dir string, free uint64) Finding {
	remedy := "make room, or choose a data directory on another disk"
	switch {
	case free < minDisk:
		return fail(remedy, "%d MiB free in %s", free/mib, dir)
	case free < wantedDisk:
		return warn(remedy, "%d MiB free in %s, enough for few images", free/mib, dir)
	}
	return ok("%d MiB free in %s", free/mib, dir)
}

// existingAncestor returns dir, or the closest directory above it that exists:
// that is where dir will be made.
func existingAncestor(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("find data directory: %w", err)
	}
	for {
		info, err := os.Stat(dir)
		switch {
		case err == nil && info.IsDir():
			return dir, nil
		case err == nil:
			return "", fmt.Errorf("find data directory: %s is not a directory", dir)
		case !errors.Is(err, os.ErrNotExist) || dir == "/":
			return "", fmt.Errorf("find data directory: %w", err)
		}
		dir = filepath.Dir(dir)
	}
}

func probeIdlePoll(_ context.Context, m *machine) Finding {
	if err := idlepoll.Usable(m.path("")); err != nil {
		return ok("idle processors cannot poll while a request is new, whatever RAMET_IDLE_POLL says: %v", err)
	}
	return ok("idle processors can poll while a request is new, and commands are up to a millisecond faster, if the daemon has RAMET_IDLE_POLL=auto")
}

func probeKVM(_ context.Context, m *machine) Finding {
	if _, err := os.Stat(m.path("dev/kvm")); err != nil {
		return ok("not there, and not needed")
	}
	return ok("there, but not needed")
}
