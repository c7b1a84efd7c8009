package main

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// keepVectors loads vector registers from in, makes a system call, writes to touched, and
// stores the registers in out.
func keepVectors(in, out *[128]byte, touched *byte)

// vectors has a process with two threads keep values in vector registers for as long as it
// takes to stop it COUNT times and have it go on; "vectors keep" is that process, which
// runs until it is killed or a register has another value than it was given.
func vectors(args []string) (int, error) {
	if args[0] == "keep" {
		fmt.Println("keeping")
		failed := make(chan error)
		for i := range 2 {
			go func() { failed <- keepThread(uint64(i)) }()
		}
		return 1, <-failed
	}
	c := exec.Command("/proc/self/exe", "vectors", "keep")
	c.Stderr = os.Stderr
	if err := c.Start(); err != nil {
		return 1, err
	}
	for i := range mustInt(args[0], 10) {
		time.Sleep(time.Duration(i%16) * 20 * time.Microsecond) // another moment each time
		if err := c.Process.Signal(unix.SIGSTOP); err != nil {
			return 1, err
		}
		var status unix.WaitStatus
		if _, err := unix.Wait4(c.Process.Pid, &status, unix.WUNTRACED, nil); err != nil {
			return 1, err
		}
		if !status.Stopped() {
			return 1, fmt.Errorf("instead of being stopped it ended with code %d", status.ExitStatus())
		}
		if err := c.Process.Signal(unix.SIGCONT); err != nil {
			return 1, err
		}
	}
	return 0, c.Process.Kill()
}

func keepThread(value uint64) error {
	runtime.LockOSThread()
	m, err := unix.Mmap(-1, 0, page, readWrite, private|unix.MAP_ANONYMOUS)
	if err != nil {
		return err
	}
	for {
		var in, out [128]byte
		for i := 0; i < len(in); i += 8 {
			value = value*6364136223846793005 + 1442695040888963407 // Knuth's MMIX generator
			binary.LittleEndian.PutUint64(in[i:], value)
		}
		if value>>62 == 0 { // else there are only system calls
			if err := unix.Madvise(m, unix.MADV_DONTNEED); err != nil {
				return err
			}
		}
		if keepVectors(&in, &out, &m[0]); in != out {
			return fmt.Errorf("vector registers have %x, not %x", out, in)
		}
	}
}
