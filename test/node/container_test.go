package node

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/test/harness"
)

// TestInAContainer runs a test again where container engines would put it: with a read-only root of its own, parts of
// /proc masked, and what their profiles take. packaging says which of them are enough.
func TestInAContainer(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make a container without a user namespace")
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range profiles {
		t.Run(p.name, func(t *testing.T) {
			cmd := exec.Command(program, "container", harness.NewDir(t), harness.Assets, program, strconv.Itoa(i))
			cmd.SysProcAttr = &syscall.SysProcAttr{
				Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWNET,
				Pdeathsig:  syscall.SIGKILL,
			}
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			switch {
			case errors.Is(err, unix.EPERM), errors.As(err, &exit) && exit.ExitCode() == exitNoContainer:
				t.Skipf("no container can be made here: %v: %s", err, out)
			case err != nil, strings.Count(string(out), "\n--- PASS: ") != strings.Count(inContainer, "|")+1:
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// inContainer names the tests that run in a container.
const inContainer = "TestMetricsOfRealWork|TestReachInAContainer"

// exitNoContainer is the exit code of a container that cannot be made.
const exitNoContainer = 77

// containerMain becomes the test in a container below root.
func containerMain(args []string) int {
	runtime.LockOSThread() // what is given up is a thread's
	if err := enterContainer(args[0], args[1], args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return exitNoContainer
	}
	number, err := strconv.Atoi(args[3])
	if err == nil {
		err = profiles[number].enter()
	}
	if err == nil {
		err = unix.Exec("/tests", []string{"/tests", "-test.v", "-test.timeout=2m", "-test.run=^(" + inContainer + ")$"},
			[]string{"HOME=/tmp", "TMPDIR=/tmp", harness.EnvAssets + "=/assets"})
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// enterContainer makes root the root, with what docker and its like put there.
func enterContainer(root, assets, program string) error {
	const quiet = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	in := func(path string) string { return filepath.Join(root, path) }
	var errs []error
	try := func(what string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", what, err))
		}
	}
	mount := func(from, to, kind string, flags uintptr, data string) {
		try("mount "+to, unix.Mount(from, in(to), kind, flags, data))
	}
	bind := func(from, to string) { mount(from, to, "", unix.MS_BIND, "") }

	try("keep mounts private", unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	mount("tmpfs", "/", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755")
	for _, dir := range []string{"proc", "sys", "dev", "tmp", "assets", "old"} {
		try("make directory", os.Mkdir(in(dir), 0o755))
	}
	try("make file", os.WriteFile(in("tests"), nil, 0o755))
	bind(program, "tests")
	bind(assets, "assets")
	mount("proc", "proc", "proc", quiet, "")
	mount("sysfs", "sys", "sysfs", quiet|unix.MS_RDONLY, "")
	mount("tmpfs", "tmp", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=1777")
	mount("tmpfs", "dev", "tmpfs", unix.MS_NOSUID, "mode=755")
	for _, name := range []string{"null", "zero", "full", "random", "urandom", "tty"} {
		try("make file", os.WriteFile(in("dev/"+name), nil, 0o666))
		bind("/dev/"+name, "dev/"+name)
	}
	for _, masked := range []string{"proc/kcore", "proc/keys", "proc/timer_list"} {
		if _, err := os.Stat(in(masked)); err == nil {
			bind("/dev/null", masked)
		}
	}
	for _, fixed := range []string{"proc/bus", "proc/fs", "proc/irq", "proc/sys", "proc/sysrq-trigger"} {
		if _, err := os.Stat(in(fixed)); err == nil {
			bind(in(fixed), fixed)
			mount("", fixed, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|quiet, "")
		}
	}
	try("start the loopback device", loopbackUp())
	if err := errors.Join(errs...); err != nil {
		return err
	}
	try("change root", unix.PivotRoot(root, in("old")))
	try("enter root", unix.Chdir("/"))
	try("leave the host", unix.Unmount("/old", unix.MNT_DETACH))
	try("make root read-only", unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, "mode=755"))
	return errors.Join(errs...)
}

// loopbackUp starts the loopback device of a new network namespace.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var request struct { // struct ifreq
		name  [unix.IFNAMSIZ]byte
		flags uint16
		_     [22]byte
	}
	copy(request.name[:], "lo")
	request.flags = unix.IFF_UP | unix.IFF_RUNNING
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCSIFFLAGS, uintptr(unsafe.Pointer(&request))); errno != 0 {
		return errno
	}
	return nil
}

// dropRights becomes a user with some capabilities, now and later.
func dropRights(user int, capabilities []uintptr) error {
	for c := uintptr(0); ; c++ {
		if slices.Contains(capabilities, c) {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err == unix.EINVAL {
			break // there are no more
		} else if err != nil {
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
	return errors.Join(unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), unix.Setgroups(nil), unix.Setresgid(user, user, user), unix.Setresuid(user, user, user))
}
