package guest

import (
	"fmt"
	"strconv"

	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/sentry/fsimpl/cgroup2fs"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
)

// taskGroup is the control group, of the guest's kernel, that all tasks of a
// sandbox with a limit of them are in. The host's limit would hit the sentry
// as well; this one is an error that a guest can handle.
const taskGroup = "/guest"

// limitTasks makes the task group.
func (g *Guest) limitTasks(ctx context.Context, creds *auth.Credentials, max int64) error {
	fs := g.k.Cgroup2FS()
	if err := fs.RootCgroup().WriteControl(ctx, "cgroup.subtree_control", "+pids"); err != nil {
		return fmt.Errorf("limit tasks: %w", err)
	}
	mnt := cgroup2fs.NewInternalMount(g.k, g.k.VFS())
	defer mnt.DecRef(ctx)
	if err := makeDir(ctx, g.k, creds, vfs.MakeVirtualDentry(mnt, mnt.Root()), taskGroup, 0o755); err != nil {
		return fmt.Errorf("limit tasks: %w", err)
	}
	group, err := fs.FindCgroup(ctx, taskGroup)
	if err != nil {
		return fmt.Errorf("limit tasks: %w", err)
	}
	const initTask = 1 // which is ours, not the user's
	if err := group.WriteControl(ctx, "pids.max", strconv.FormatInt(max+initTask, 10)); err != nil {
		return fmt.Errorf("limit tasks: %w", err)
	}
	return nil
}

// tasks returns the control group for a new process: nil, the root, without a
// limit.
func (g *Guest) tasks(ctx context.Context) (kernel.Cgroup2, error) {
	if g.id.Limits.Pids == 0 {
		return nil, nil
	}
	group, err := g.k.Cgroup2FS().FindCgroup(ctx, taskGroup)
	if err != nil {
		return nil, fmt.Errorf("find task group: %w", err)
	}
	return group, nil
}
