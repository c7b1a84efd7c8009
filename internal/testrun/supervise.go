package main

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/observe/procfs"
)

// leftBehind begins the lines by which a supervisor reports what a job left.
const leftBehind = "testrun: left behind: "

// grace is how long processes may live on after the job that started them.
const grace = 10 * time.Second

// supervise runs a command as the first process of a job: supervise SCRATCH COMMAND...
// Processes that lose their parent become children of the supervisor, so that none
// survives it. It prints what the job left behind and returns the command's exit code.
func supervise(args []string) int {
	scratch, command := args[0], args[1:]
	// Descriptors that this process was given belong to nobody below it.
	if err := unix.CloseRange(3, 1<<31-1, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return supervisorFault("close descriptors", err)
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return supervisorFault("become the reaper", err)
	}
	program, err := exec.LookPath(command[0])
	if err != nil {
		return supervisorFault("find the command", err)
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	null, err := os.Open(os.DevNull)
	if err != nil {
		return supervisorFault("open the null device", err)
	}
	child, err := os.StartProcess(program, command, &os.ProcAttr{Files: []*os.File{null, os.Stdout, os.Stderr}})
	if err != nil {
		return supervisorFault("start the command", err)
	}
	codes := make(chan int, 1)
	alone := make(chan struct{})
	go reap(child.Pid, codes, alone)
	code := 0
	select {
	case code = <-codes:
	case <-ended:
		end(alone)
		return 130
	}
	select {
	case <-alone:
	case <-ended:
	case <-time.After(grace):
		for _, name := range survivors() {
			fmt.Println(leftBehind + "process " + name)
		}
	}
	end(alone)
	for _, name := range leftovers(scratch) {
		fmt.Println(leftBehind + name)
	}
	return code
}

func supervisorFault(step string, err error) int {
	fmt.Fprintf(os.Stderr, "testrun: %s: %v\n", step, err)
	return 125
}

// reap waits for all children. It sends the exit code of the first one and closes alone when
// there are no more.
func reap(first int, codes chan<- int, alone chan<- struct{}) {
	defer close(alone)
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case err == syscall.EINTR:
			continue
		case err != nil:
			return
		case pid == first && status.Signaled():
			codes <- 128 + int(status.Signal())
		case pid == first:
			codes <- status.ExitStatus()
		}
	}
}

// end kills all descendants until there are none.
func end(alone <-chan struct{}) {
	for {
		for _, pid := range descendants() {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
		}
		select {
		case <-alone:
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func descendants() []int {
	all := []int{}
	for next := []int{os.Getpid()}; len(next) > 0; next = next[1:] {
		children, err := procfs.Children(next[0])
		if err == nil {
			all, next = append(all, children...), append(next, children...)
		}
	}
	return all
}

// survivors describes the descendants. A gateway serves the next daemon for a while, so it may
// survive.
func survivors() []string {
	var names []string
	for _, pid := range descendants() {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		args := strings.Split(strings.TrimRight(string(line), "\x00"), "\x00")
		if err != nil || len(line) == 0 || slices.Contains(args[1:], "gateway") || strings.Contains(args[0], "gateway") {
			continue
		}
		names = append(names, fmt.Sprintf("%d %s", pid, strings.Join(args, " ")))
	}
	return names
}

// leftovers are the mounts and files below the scratch directory.
func leftovers(scratch string) []string {
	var names []string
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return []string{"mounts cannot be read: " + err.Error()}
	}
	for line := range strings.Lines(string(mounts)) {
		if fields := strings.Fields(line); len(fields) > 1 && strings.HasPrefix(fields[1], scratch+"/") {
			names = append(names, "mount "+fields[1])
		}
	}
	entries, err := os.ReadDir(scratch)
	if err != nil {
		return append(names, "files cannot be read: "+err.Error())
	}
	for _, e := range entries {
		names = append(names, "file "+filepath.Join(scratch, e.Name()))
	}
	return names
}
