package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// insides are the things that a process makes inside namespaces of its own. Each returns the check.
var insides = map[string]func() (func() error, error){
	"pivot-root":   pivotRoot,
	"net-loopback": ownLoopback,
	"net-links":    interfaces,
	"net-pair":     pairOfNamespaces,
}

// insideOf is a process in new namespaces, which makes what insides has under name and checks it when asked.
func insideOf(name string, flags uintptr) kind {
	return func() (func() error, error) {
		c := exec.Command("/proc/self/exe", "inside", name)
		c.Stderr = os.Stderr
		c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags}
		if uid := os.Getuid(); uid != 0 { // as bubblewrap does
			c.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
			c.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
			c.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
		}
		ask, err := c.StdinPipe()
		if err != nil {
			return nil, err
		}
		answers, err := c.StdoutPipe()
		if err != nil {
			return nil, err
		}
		if err := c.Start(); err != nil {
			return nil, err
		}
		said := bufio.NewReader(answers)
		return func() error {
			if _, err := fmt.Fprintln(ask); err != nil {
				return err
			}
			line, err := said.ReadString('\n')
			if err != nil {
				return fmt.Errorf("the process inside: %w", err)
			}
			if line = strings.TrimSpace(line); line != "works" {
				return errors.New(line)
			}
			return nil
		}, nil
	}
}

// inside is the process of insideOf.
func inside(args []string) (int, error) {
	check, err := insides[args[0]]()
	if err != nil {
		return 1, err
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		said := "works"
		if err := check(); err != nil {
			said = strings.ReplaceAll(err.Error(), "\n", "; ")
		}
		fmt.Println(said)
	}
	return 0, nil
}

// pivotRoot gives the process a root of its own, a tmpfs with a directory of the old root, as bubblewrap does.
func pivotRoot() (func() error, error) {
	dir := filepath.Join(kindsDir(), "new-root")
	for _, step := range []func() error{
		func() error { return unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") },
		func() error { return os.MkdirAll(dir, 0o755) },
		func() error { return unix.Mount("none", dir, "tmpfs", 0, "") },
		func() error { return errors.Join(os.Mkdir(dir+"/old", 0o755), os.Mkdir(dir+"/etc", 0o755)) },
		func() error { return unix.Mount("/etc", dir+"/etc", "", unix.MS_BIND, "") },
		func() error { return unix.PivotRoot(dir, dir+"/old") },
		func() error { return unix.Chdir("/") },
		func() error { return unix.Unmount("/old", unix.MNT_DETACH) },
		func() error { return os.WriteFile("/here", []byte("new root"), 0o644) },
	} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return func() error {
		entries, err := os.ReadDir("/")
		if err != nil {
			return err
		}
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		if got := strings.Join(names, " "); got != "etc here old" {
			return fmt.Errorf("the new root has %s", got)
		}
		_, err = os.ReadDir("/etc")
		return err
	}, nil
}
