package main

import (
	"bufio"
	"fmt"
	"os"
	"syscall"
)

// forkID asks getpid(2) the way that OpenSSL's generator does.
func forkID() uint64

// forkIDs prints for each line of its input what getpid(2) says to this program, and to
// OpenSSL's generator, and how often the answers to one of them differed in a thousand calls.
func forkIDs([]string) (int, error) {
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		pid, id, differed := os.Getpid(), forkID(), 0
		for range 1000 {
			if os.Getpid() != pid || forkID() != id {
				differed++
			}
		}
		fmt.Println(pid, id, differed)
	}
	return 0, nil
}

// wipeOnFork prints what madvise(MADV_WIPEONFORK) says. Libraries that would keep random
// numbers in such memory ask the kernel for each instead if there is none.
func wipeOnFork([]string) (int, error) {
	const MADV_WIPEONFORK = 18
	page, err := syscall.Mmap(-1, 0, os.Getpagesize(), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		return 1, err
	}
	fmt.Println(syscall.Madvise(page, MADV_WIPEONFORK))
	return 0, syscall.Munmap(page)
}
