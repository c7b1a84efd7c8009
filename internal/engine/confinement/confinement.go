package confinement

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	landlock "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/engine/hostuser"
	"ramet.dev/ramet/internal/engine/wire"
)

// nobody is the user of the sentries of a root daemon where they have no users of their own.
const nobody = 65534

// WhyNoUsers returns why no sentry can have a user of its own, or nothing if each can. noNamespaces
// is why there are no namespaces.
func WhyNoUsers(noNamespaces string) string {
	if uid := os.Geteuid(); uid != 0 {
		return fmt.Sprintf("the daemon is user %d, and only root can give others", uid)
	}
	if noNamespaces != "" {
		return noNamespaces
	}
	if !hostuser.MayBecome() {
		return "root of this container has no CAP_SETUID and CAP_SETGID"
	}
	if _, err := hostuser.FreeRange("/"); err != nil {
		return err.Error()
	}
	return ""
}

// WhyNoSandboxes returns why no sandbox can run on this kernel and what to do about it, or nothing if they can.
func WhyNoSandboxes() string {
	if InGVisor() {
		return "this is gVisor's kernel, in which sandboxes cannot run: run ramet outside of it"
	}
	if reason := WhyNoPages(os.Getpagesize()); reason != "" {
		return reason + ": boot a kernel with pages of 4 KiB"
	}
	return ""
}

// WhyNoPages returns why sandboxes cannot run on a kernel whose pages of memory have this size, or nothing if they
// can. Some arm64 kernels have pages of 16 KiB, for which gVisor has no code, or of 64 KiB, for which it must be built
// in another way.
func WhyNoPages(size int) string {
	if size == pageSize {
		return ""
	}
	return fmt.Sprintf("this kernel has memory pages of %d KiB, and sandboxes need 4 KiB", size>>10)
}

// pageSize is what a sentry is built for.
const pageSize = 4 << 10

// WhyNoLandlock returns why sentries do without Landlock, or nothing if they have it.
func WhyNoLandlock() string {
	if version, err := landlock.LandlockGetABIVersion(); err != nil || version < 1 {
		return "the kernel has no Landlock: it came with Linux 5.13 and is chosen by the lsm= parameter"
	}
	return ""
}

// Isolate asks for new namespaces, in which the zygote makes those of sentries. Root in
// them is an ordinary user of the host: the daemon's, or with ownUsers the first of a free
// range, of which the other users are for sentries. A pid namespace is left out: the first
// process of a pid namespace cannot make siblings.
func Isolate(attr *syscall.SysProcAttr, ownUsers bool) error {
	uid, gid, count := os.Geteuid(), os.Getegid(), 1
	maps := uid == 0 && hostuser.MayBecome() // other users than this process's own
	switch {
	case ownUsers:
		first, err := hostuser.FreeRange("/")
		if err != nil {
			return err
		}
		uid, gid, count = first, first, hostuser.RangeSize
	case maps:
		uid, gid = nobody, nobody
	}
	attr.Cloneflags = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWNET
	attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: count}}
	attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: gid, Size: count}}
	attr.Credential = &syscall.Credential{Uid: 0, Gid: 0, NoSetGroups: !maps}
	attr.GidMappingsEnableSetgroups = maps // so that root's groups can go
	return nil
}

// Probe starts executable in namespaces of all kinds that sentries have, and has it make its root
// empty. noRoot is why it cannot do that, as where AppArmor's profile of containers denies mounts. An
// error is why there are no namespaces.
func Probe(ctx context.Context, executable string) (noRoot string, err error) {
	cmd := exec.CommandContext(ctx, executable, "sentry", wire.ProbeRoot)
	var said bytes.Buffer
	cmd.Stderr = &said
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if err := Isolate(cmd.SysProcAttr, false); err != nil {
		return "", err
	}
	cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWPID // sentries have a pid namespace, their parent cannot
	if err := mayClone(cmd.SysProcAttr.Cloneflags); err != nil {
		return "", withCause(fmt.Errorf("make namespaces: %w", err))
	}
	err = cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.Exited() {
		return fmt.Sprintf("a sentry cannot make its root empty: %s", strings.TrimSpace(said.String())), nil
	}
	if err != nil {
		return "", withCause(fmt.Errorf("make namespaces: %w", err))
	}
	return "", nil
}

// mayClone tries to make a process in new namespaces, of a program that does not exist. Package syscall leaks a pipe
// when a process whose users are mapped cannot be made.
func mayClone(flags uintptr) error {
	const nothing = "/proc/nothing"
	_, err := syscall.ForkExec(nothing, []string{nothing}, &syscall.ProcAttr{Sys: &syscall.SysProcAttr{Cloneflags: flags}})
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}
