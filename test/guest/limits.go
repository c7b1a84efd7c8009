package main

import (
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// opens opens files until it fails, and prints how many descriptors it had then
// and why.
func opens([]string) (int, error) {
	for last := -1; ; {
		fd, err := unix.Open("/dev/null", unix.O_RDONLY, 0)
		if err != nil {
			fmt.Println(last+1, unix.ErrnoName(err.(syscall.Errno)))
			return 0, nil
		}
		last = fd
	}
}

// raise sets the limit of open files, of itself or of the process that the second
// argument names, and root lets the kernel have as many as it can first.
func raise(args []string) (int, error) {
	n, err := strconv.ParseUint(args[0], 10, 64)
	if err != nil {
		return 1, err
	}
	pid := 0
	if len(args) > 1 {
		if pid, err = strconv.Atoi(args[1]); err != nil {
			return 1, err
		}
	}
	if os.Getuid() == 0 {
		if err := os.WriteFile("/proc/sys/fs/nr_open", []byte("2147483647"), 0); err != nil {
			return 1, err
		}
	}
	return 0, unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: n, Max: n}, nil)
}
