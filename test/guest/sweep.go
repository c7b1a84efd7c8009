package main

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// sweep has a process in the background that goes through as many MiB of memory as its
// first argument says, again and again, and adds one to the number on each page. In the
// file of its second argument it says how often it has done so, or what was wrong.
func sweep(args []string) (int, error) {
	c := exec.Command("/proc/self/exe", append([]string{"sweeping"}, args...)...)
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return 0, c.Start()
}

func sweeping(args []string) (int, error) {
	mib, err := strconv.Atoi(args[0])
	if err != nil {
		return 2, err
	}
	memory, err := unix.Mmap(-1, 0, mib<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return 1, err
	}
	for round := uint64(0); ; round++ {
		for at := 0; at < len(memory); at += page {
			n := binary.LittleEndian.Uint64(memory[at:])
			if n != round {
				return 1, os.WriteFile(args[1], fmt.Appendf(nil, "page %d has %d in round %d", at/page, n, round), 0o644)
			}
			binary.LittleEndian.PutUint64(memory[at:], n+1)
		}
		if err := os.WriteFile(args[1]+".new", fmt.Appendf(nil, "%d", round), 0o644); err != nil {
			return 1, err
		}
		if err := os.Rename(args[1]+".new", args[1]); err != nil {
			return 1, err
		}
	}
}
