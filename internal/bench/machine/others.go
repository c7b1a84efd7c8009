package machine

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"

	"ramet.dev/ramet/internal/observe/procfs"
)

// Usage is the processor time of the machine, and our part of it.
type Usage struct {
	at         time.Time
	busy, ours time.Duration
}

// Used reads the processor time of the machine, and that of the daemon with its
// sandboxes and of this process.
func Used(daemon int) (Usage, error) {
	u := Usage{at: time.Now()}
	var err error
	if u.busy, err = procfs.Busy(); err != nil {
		return u, err
	}
	if u.ours, err = procfs.TreeCPU(daemon, os.Getpid()); err != nil {
		return u, fmt.Errorf("read processor time of the daemon: %w", err)
	}
	return u, nil
}

// OthersSince returns the percentage of all processors that other processes used since before.
func (u Usage) OthersSince(before Usage) float64 {
	others := (u.busy - before.busy) - (u.ours - before.ours)
	all := u.at.Sub(before.at) * time.Duration(runtime.NumCPU())
	return 100 * max(0, float64(others)/float64(all))
}

// Child returns a child of a process that has an argument, or 0 if there is none.
func Child(parent int, argument string) (int, error) {
	children, err := procfs.Children(parent)
	if err != nil {
		return 0, err
	}
	found, err := procfs.Find(argument)
	if err != nil {
		return 0, err
	}
	for _, pid := range found {
		if slices.Contains(children, pid) {
			return pid, nil
		}
	}
	return 0, nil
}
