package main

import (
	"bufio"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// attempts makes each system call up to a number with arguments that may fit, many times
// each, in processes that stay. A call that does not come back, or ends the process, is
// the last of that process, and others go on.
func attempts(args []string) (int, error) {
	flags := flag.NewFlagSet("attempts", flag.ContinueOnError)
	seed := flags.Uint64("seed", 1, "of the arguments")
	last := flags.Int("last", 470, "the last number")
	skip := flags.String("skip", "", "numbers that are not called, separated by commas")
	if err := flags.Parse(args); err != nil {
		return 2, err
	}
	ended := 0
	for next := 0; next <= *last; {
		const batch = 60 // calls of one process at most
		end := min(next+batch-1, *last)
		reached, over, err := attemptFrom(next, end, *seed, *skip)
		if err != nil {
			return 1, err
		}
		if !over {
			ended++
		}
		next = max(reached, next) + 1
	}
	fmt.Println("processes that did not come to their end:", ended)
	return 0, nil
}

// attemptFrom has a process make the calls from first to last. It returns the last that
// was begun, and whether all came back.
func attemptFrom(first, last int, seed uint64, skip string) (reached int, over bool, err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return 0, false, err
	}
	defer r.Close()
	c := exec.Command("/proc/self/exe", "attempt", strconv.Itoa(first), strconv.Itoa(last), strconv.FormatUint(seed, 10), skip)
	c.ExtraFiles = []*os.File{w}
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := c.Start(); err != nil {
		return 0, false, err
	}
	w.Close()
	reached = first
	lines := bufio.NewReader(r)
	for {
		if err := r.SetReadDeadline(time.Now().Add(500 * time.Millisecond)); err != nil {
			return 0, false, err
		}
		line, err := lines.ReadString('\n')
		if err != nil {
			fmt.Fprintln(os.Stderr, "no return from", reached, err)
			return reached, false, nil // it waits in the call, or has ended
		}
		if line = strings.TrimSpace(line); line == "over" {
			return last, true, nil
		}
		if reached, err = strconv.Atoi(line); err != nil {
			return 0, false, err
		}
	}
}

// attempt is the process.
func attempt(args []string) (int, error) {
	first, err := strconv.Atoi(args[0])
	if err != nil {
		return 2, err
	}
	last, err := strconv.Atoi(args[1])
	if err != nil {
		return 2, err
	}
	seed, err := strconv.ParseUint(args[2], 10, 64)
	if err != nil {
		return 2, err
	}
	skipped := map[string]bool{}
	for _, number := range strings.Split(args[3], ",") {
		skipped[number] = true
	}
	a, err := newArguments()
	if err != nil {
		return 1, err
	}
	runtime.LockOSThread()
	const reports = 900 // none of the arguments
	if err := unix.Dup3(3, reports, unix.O_CLOEXEC); err != nil {
		return 1, err
	}
	unix.Close(3)
	for number := first; number <= last; number++ {
		if skipped[strconv.Itoa(number)] {
			continue
		}
		if _, err := unix.Write(reports, []byte(strconv.Itoa(number)+"\n")); err != nil {
			return 1, err
		}
		rng := rand.New(rand.NewPCG(seed, uint64(number)))
		for range 100 {
			v := a.pick(rng)
			_, _, _ = unix.RawSyscall6(uintptr(number), v[0], v[1], v[2], v[3], v[4], v[5]) // whatever comes of it
		}
	}
	if _, err := unix.Write(reports, []byte("over\n")); err != nil {
		return 1, err
	}
	unix.Close(reports)
	time.Sleep(24 * time.Hour)
	return 0, nil
}

// arguments are values that system calls take.
type arguments struct{ values []uintptr }

// newArguments makes descriptors of many kinds, paths, and room for structures.
func newArguments() (*arguments, error) {
	a := &arguments{}
	dir, err := os.MkdirTemp("/dev/shm", "attempt-")
	if err != nil {
		return nil, err
	}
	if err := os.Chdir(dir); err != nil {
		return nil, err
	}
	for _, path := range []string{"/", "/tmp", dir, "/proc/self/ns/net", "/dev/null", "/dev/ptmx", "/etc/passwd", "file"} {
		for _, flags := range []int{unix.O_RDWR | unix.O_CREAT, unix.O_RDONLY, unix.O_PATH} {
			if fd, err := unix.Open(path, flags|unix.O_NONBLOCK|unix.O_NOCTTY, 0o600); err == nil {
				a.values = append(a.values, uintptr(fd))
				break
			}
		}
	}
	for _, name := range []string{"eventfd", "epoll-nested", "timer-monotonic", "signalfd", "memfd", "pidfd-self", "unix-stream", "tcp4", "udp4", "netlink", "pipe"} {
		if _, err := allKinds()[name](); err != nil {
			return nil, fmt.Errorf("make %s: %w", name, err)
		}
	}
	if _, err := unix.InotifyInit1(unix.IN_CLOEXEC); err != nil {
		return nil, err
	}
	for fd := uintptr(8); fd < 40; fd += 3 {
		a.values = append(a.values, fd)
	}
	for _, path := range []string{"file", "new", "/tmp", "tmpfs", "/dev/shm", "user.name", "none", ""} {
		a.values = append(a.values, cpath(path))
	}
	for range 4 {
		room, err := unix.Mmap(-1, 0, 1<<16, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
		if err != nil {
			return nil, err
		}
		// A structure may begin with its size, or with a number of which few are right.
		*(*uint64)(unsafe.Pointer(&room[4096])) = 64
		*(*uint64)(unsafe.Pointer(&room[8192])) = 1
		base := uintptr(unsafe.Pointer(&room[0]))
		a.values = append(a.values, base, base+4096, base+8192)
	}
	a.values = append(a.values, 0, 0, 0, 0, 1, 1, 1, 2, 2, 3, 4, 8, 16, 64, 88, 4096, 0x8000, 0x80000, ^uintptr(0), ^uintptr(99), 0x10000000)
	return a, nil
}

func (a *arguments) pick(rng *rand.Rand) (v [6]uintptr) {
	for i := range v {
		v[i] = a.values[rng.IntN(len(a.values))]
	}
	return v
}
