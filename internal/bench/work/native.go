package work

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// enter gives the root directory $1 the devices and processes that programs need, and runs the rest
// of its arguments there. It runs in namespaces of its own, which end with it.
const enter = `set -e
root=$1
shift
mount --make-rprivate /
mkdir -p "$root/dev" "$root/proc"
for name in null zero full random urandom; do
	: >"$root/dev/$name"
	mount --bind "/dev/$name" "$root/dev/$name"
done
mount -t proc proc "$root/proc"
exec chroot "$root" /usr/bin/env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"`

// CannotRunNatively returns the reason why this process cannot call Native, or an empty text.
func CannotRunNatively() string {
	if os.Geteuid() != 0 {
		return "it needs root for its root directory"
	}
	for _, name := range []string{"mount", "chroot"} {
		if _, err := exec.LookPath(name); err != nil {
			return err.Error()
		}
	}
	return ""
}

// Native runs Command in a root directory of this machine, without a sandbox. Its processes have
// namespaces of their own and no network, and end with ctx.
func Native(ctx context.Context, root string, out io.Writer) error {
	const pipesLeft = 10 * time.Second // for the output of processes that were killed
	cmd := exec.CommandContext(ctx, "/bin/sh", append([]string{"-c", enter, "enter", root}, Command()...)...)
	cmd.Dir = "/"
	cmd.WaitDelay = pipesLeft
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC,
		Pdeathsig:  syscall.SIGKILL,
	}
	var problems strings.Builder
	cmd.Stdout, cmd.Stderr = out, &problems
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("run the work without a sandbox: %w: %.500s", err, strings.TrimSpace(problems.String()))
	}
	return nil
}
