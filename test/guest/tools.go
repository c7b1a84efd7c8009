package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// exitWith exits with its argument as the code.
func exitWith(args []string) (int, error) { return strconv.Atoi(args[0]) }

// say prints its arguments. Those with one of these prefixes do something else:
// "err:" prints to standard error, "env:" a variable, "file:" a file, "sleep:"
// waits and "exit:" ends with that code.
func say(args []string) (int, error) {
	for _, a := range args {
		kind, rest, ok := strings.Cut(a, ":")
		switch {
		case ok && kind == "err":
			fmt.Fprintln(os.Stderr, rest)
		case ok && kind == "exit":
			return strconv.Atoi(rest)
		case ok && kind == "env":
			fmt.Println(os.Getenv(rest))
		case ok && kind == "sleep":
			d, err := time.ParseDuration(rest)
			if err != nil {
				return 1, err
			}
			time.Sleep(d)
		case ok && kind == "file":
			b, err := os.ReadFile(rest)
			if err != nil {
				return 1, err
			}
			fmt.Print(string(b))
		default:
			fmt.Println(a)
		}
	}
	return 0, nil
}

// cat copies files, or standard input, to standard output.
func cat(args []string) (int, error) {
	if len(args) == 0 {
		_, err := io.Copy(os.Stdout, os.Stdin)
		return 0, err
	}
	for _, name := range args {
		b, err := os.ReadFile(name)
		if err != nil {
			return 1, err
		}
		if _, err := os.Stdout.Write(b); err != nil {
			return 1, err
		}
	}
	return 0, nil
}

// tee copies standard input to both outputs.
func tee([]string) (int, error) {
	_, err := io.Copy(io.MultiWriter(os.Stdout, os.Stderr), os.Stdin)
	return 0, err
}

// env prints the environment.
func env([]string) (int, error) {
	for _, kv := range os.Environ() {
		fmt.Println(kv)
	}
	return 0, nil
}

// sysinfo keeps a processor busy, and prints the memory there is, the processors it may use and whether there is a load.
func sysinfo([]string) (int, error) {
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); {
	}
	var info syscall.Sysinfo_t
	if err := syscall.Sysinfo(&info); err != nil {
		return 1, err
	}
	fmt.Printf("MemTotal: %d kB\n%d processors\n%t\n", info.Totalram*uint64(info.Unit)>>10, runtime.NumCPU(), info.Loads[0] > 0)
	return 0, nil
}

// id prints user, group, host name, working directory and pid.
func id([]string) (int, error) {
	host, err := os.Hostname()
	if err != nil {
		return 1, err
	}
	dir, err := os.Getwd()
	fmt.Println(os.Geteuid(), os.Getegid(), host, dir, os.Getpid())
	return 0, err
}

// write writes its second argument to the file of its first, and makes the
// directory of it if need be. The third is the file's mode.
func write(args []string) (int, error) {
	if err := os.MkdirAll(filepath.Dir(args[0]), 0o755); err != nil {
		return 1, err
	}
	if err := os.WriteFile(args[0], []byte(args[1]), 0o644); err != nil || len(args) < 3 {
		return 0, err
	}
	mode, err := strconv.ParseUint(args[2], 8, 32)
	if err != nil {
		return 1, err
	}
	return 0, os.Chmod(args[0], os.FileMode(mode))
}

// many writes its fourth argument to files below a directory, of as many as the
// second says those whose numbers are multiples of the third.
func many(args []string) (int, error) {
	count, err := strconv.Atoi(args[1])
	if err != nil {
		return 1, err
	}
	step, err := strconv.Atoi(args[2])
	if err != nil {
		return 1, err
	}
	for i := 0; i < count; i += step {
		if _, err := write([]string{fmt.Sprintf("%s/%d/%d", args[0], i/100, i), args[3]}); err != nil {
			return 1, err
		}
	}
	return 0, nil
}

// link makes a symbolic link.
func link(args []string) (int, error) { return 0, os.Symlink(args[0], args[1]) }

// fifos makes fifos that everybody may execute.
func fifos(args []string) (int, error) {
	for _, name := range args {
		if err := syscall.Mkfifo(name, 0o777); err != nil {
			return 1, err
		}
		if err := os.Chmod(name, 0o777); err != nil { // not what the mask leaves
			return 1, err
		}
	}
	return 0, nil
}

// rename renames a file.
func rename(args []string) (int, error) { return 0, os.Rename(args[0], args[1]) }

// remove removes files and trees.
func remove(args []string) (int, error) {
	for _, name := range args {
		if _, err := os.Lstat(name); err != nil {
			return 1, err
		}
		if err := os.RemoveAll(name); err != nil {
			return 1, err
		}
	}
	return 0, nil
}

// churn keeps replacing what is in a directory, by files, directories, links and
// pipes.
func churn(args []string) (int, error) {
	fmt.Println("churning")
	for i := 0; ; i++ {
		p := filepath.Join(args[0], strconv.Itoa(i%7))
		err := os.RemoveAll(p)
		if err == nil {
			switch i % 5 {
			case 0, 1:
				_, err = write([]string{p, strconv.Itoa(i)})
			case 2:
				_, err = write([]string{filepath.Join(p, "deep/file"), strconv.Itoa(i)})
			case 3:
				err = os.Symlink("0", p)
			case 4:
				err = syscall.Mkfifo(p, 0o600)
			}
		}
		if err != nil {
			return 1, err
		}
	}
}

// trail adds the variables that its arguments name to /srv/trail, and prints the variable SCORE.
func trail(args []string) (int, error) {
	f, err := os.OpenFile("/srv/trail", os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return 1, err
	}
	for _, name := range args {
		if _, err := fmt.Fprintf(f, "%s ", os.Getenv(name)); err != nil {
			return 1, err
		}
	}
	fmt.Println(os.Getenv("SCORE"))
	return 0, f.Close()
}

// sleep says that it started and sleeps.
func sleep(args []string) (int, error) {
	d, err := time.ParseDuration(args[0])
	if err != nil {
		return 1, err
	}
	fmt.Println("sleeping")
	time.Sleep(d)
	return 0, nil
}

// spew writes that many bytes to standard output.
func spew(args []string) (int, error) {
	left, err := strconv.Atoi(args[0])
	chunk := []byte(strings.Repeat("0123456789abcde\n", 4096))
	for left > 0 && err == nil {
		var n int
		n, err = os.Stdout.Write(chunk[:min(left, len(chunk))])
		left -= n
	}
	return 0, err
}

// eat touches that many MiB of memory, keeps them for as long as the second argument says, and
// prints "done".
func eat(args []string) (int, error) {
	mib, err := strconv.Atoi(args[0])
	if err != nil {
		return 1, err
	}
	b := make([]byte, mib<<20)
	for i := 0; i < len(b); i += 4096 {
		b[i] = byte(i >> 12)
	}
	fmt.Println("done")
	if len(args) > 1 {
		if _, err := sleep(args[1:]); err != nil {
			return 1, err
		}
	}
	return int(b[0]), nil
}

// fill writes that many MiB, none of them zeros, to a file.
func fill(args []string) (int, error) {
	mib, err := strconv.Atoi(args[1])
	if err != nil {
		return 1, err
	}
	f, err := os.Create(args[0])
	if err != nil {
		return 1, err
	}
	defer f.Close()
	for range mib {
		if _, err := f.Write(bytes.Repeat([]byte("full"), 1<<18)); err != nil {
			return 1, err
		}
	}
	return 0, nil
}

// endInit ends the first process, which ignores signals: a tracer can do that.
func endInit([]string) (int, error) {
	runtime.LockOSThread()
	if err := syscall.PtraceAttach(1); err != nil {
		return 1, err
	}
	if _, err := syscall.Wait4(1, nil, 0, nil); err != nil {
		return 1, err
	}
	if _, _, errno := syscall.Syscall6(syscall.SYS_PTRACE, syscall.PTRACE_KILL, 1, 0, 0, 0, 0); errno != 0 {
		return 1, errno
	}
	return 0, nil
}

// pollInit makes the kernel send SIGIO to the first process.
func pollInit([]string) (int, error) {
	ends := make([]int, 2)
	if err := unix.Pipe(ends); err != nil {
		return 1, err
	}
	for _, c := range []struct{ cmd, arg int }{{unix.F_SETOWN, 1}, {unix.F_SETFL, unix.O_ASYNC}} {
		if _, err := unix.FcntlInt(uintptr(ends[0]), c.cmd, c.arg); err != nil {
			return 1, err
		}
	}
	_, err := unix.Write(ends[1], []byte("x"))
	return 0, err
}

// kill sends a signal to the processes that are named, or to itself.
func kill(args []string) (int, error) {
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return 1, err
	}
	for _, p := range args[1:] {
		pid, err := strconv.Atoi(p)
		if err == nil {
			err = syscall.Kill(pid, syscall.Signal(n))
		}
		if err != nil {
			return 1, err
		}
	}
	if len(args) > 1 {
		return 0, nil
	}
	if err := syscall.Kill(os.Getpid(), syscall.Signal(n)); err != nil {
		return 1, err
	}
	time.Sleep(time.Hour)
	return 0, nil
}

// bomb starts processes that start processes, until no more can be, and goes on when some
// end.
func bomb(args []string) (int, error) {
	for {
		c := exec.Command("/proc/self/exe", "bomb")
		if c.Start() != nil {
			time.Sleep(20 * time.Millisecond)
		}
	}
}

// brood starts that many children in its process group, prints their process
// ids and waits for them. If one cannot be started it ends all.
func brood(args []string) (int, error) {
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return 1, err
	}
	var children []*exec.Cmd
	for range n {
		c := exec.Command("/proc/self/exe", "sleep", "1h")
		if err := c.Start(); err != nil {
			for _, c := range children {
				_ = c.Process.Kill() // it runs for an hour, unless somebody was faster
				_ = c.Wait()
			}
			return 1, err
		}
		children = append(children, c)
		fmt.Println(c.Process.Pid)
	}
	for _, c := range children {
		err := c.Wait()
		if ended, ok := errors.AsType[*exec.ExitError](err); ok && !ended.Exited() {
			// Their signal was for the whole group: it must not meet a process
			// that ends of its own.
			time.Sleep(time.Hour)
		}
		if err != nil {
			return 1, err
		}
	}
	return 0, nil
}

// leave prints "left", starts a process that writes without end to both streams, in
// a session of its own, and ends after some time.
func leave(args []string) (int, error) {
	d, err := time.ParseDuration(args[0])
	if err != nil {
		return 1, err
	}
	fmt.Println("left")
	for _, stream := range []*os.File{os.Stdout, os.Stderr} {
		c := exec.Command("/proc/self/exe", "spew", strconv.Itoa(math.MaxInt))
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		c.Stdout = stream
		if err := c.Start(); err != nil {
			return 1, err
		}
	}
	time.Sleep(d)
	return 0, nil
}

// count answers each line of its input with how many came so far.
func count([]string) (int, error) {
	lines := bufio.NewScanner(os.Stdin)
	for n := 1; lines.Scan(); n++ {
		if _, err := fmt.Println(n, lines.Text()); err != nil {
			return 1, err
		}
	}
	return 0, lines.Err()
}

// warn has the kernel warn that often, each time with as much text as a system
// call takes.
func warn(args []string) (int, error) {
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return 1, err
	}
	option := strings.Repeat("x", 4000)
	for range n {
		if err := syscall.Mount("none", "/tmp", "tmpfs", 0, option); err != syscall.EINVAL {
			return 1, fmt.Errorf("mount with a bad option: %w", err)
		}
	}
	return 0, nil
}
