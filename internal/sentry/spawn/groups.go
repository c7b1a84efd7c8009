package spawn

import (
	"fmt"
	"strconv"
	"strings"

	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/sentry/fsimpl/cgroup2fs"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
)

// taskGroup is the control group of the guest's kernel that has all tasks of a
// sandbox with a limit of tasks. The host's limit would hit the sentry
// as well; the limit of the group is an error that a guest can handle.
const taskGroup = "/guest"

// reserveGroup is the group of commands that are started from outside while it has
// more room than the task group: a user needs a task to end a fork bomb with. Besides them,
// only the processes that they start are in it.
const reserveGroup = "/reserve"

// reservedTasks returns how many tasks may be in it, for a limit: a program in Go that
// ends others has up to eight.
func reservedTasks(limit int64) int64 { return max(8, min(limit/4, 32)) }

// LimitTasks makes the task group of a sandbox with a limit.
func (s *Spawner) LimitTasks(ctx context.Context, creds *auth.Credentials) error {
	limit := s.Identity.Limits.Pids
	if limit == 0 {
		return nil
	}
	fs := s.k.Cgroup2FS()
	if err := fs.RootCgroup().WriteControl(ctx, "cgroup.subtree_control", "+pids"); err != nil {
		return fmt.Errorf("limit tasks: %w", err)
	}
	mnt := cgroup2fs.NewInternalMount(s.k.Kernel, s.k.VFS())
	defer mnt.DecRef(ctx)
	const initTask = 1 // which is ours, not the user's
	for name, most := range map[string]int64{taskGroup: limit + initTask, reserveGroup: reservedTasks(limit)} {
		if err := s.k.MakeDir(ctx, creds, vfs.MakeVirtualDentry(mnt, mnt.Root()), name, 0o755); err != nil {
			return fmt.Errorf("limit tasks: %w", err)
		}
		group, err := fs.FindCgroup(ctx, name)
		if err != nil {
			return fmt.Errorf("limit tasks: %w", err)
		}
		if err := group.WriteControl(ctx, "pids.max", strconv.FormatInt(most, 10)); err != nil {
			return fmt.Errorf("limit tasks: %w", err)
		}
	}
	return nil
}

// Group returns the control group for a new process: nil, the root, without a
// limit.
func (s *Spawner) Group(ctx context.Context) (kernel.Cgroup2, error) {
	if s.Identity.Limits.Pids == 0 {
		return nil, nil
	}
	group, err := s.k.Cgroup2FS().FindCgroup(ctx, taskGroup)
	if err != nil {
		return nil, fmt.Errorf("find task group: %w", err)
	}
	return group, nil
}

// commandGroup returns the control group for a command from outside: the task group, or
// the reserve if that has more room.
func (s *Spawner) commandGroup(ctx context.Context) (kernel.Cgroup2, error) {
	group, err := s.Group(ctx)
	if group == nil || err != nil {
		return group, err
	}
	reserve, err := s.k.Cgroup2FS().FindCgroup(ctx, reserveGroup)
	if err != nil {
		return group, nil // the sandbox comes from a snapshot without a reserve
	}
	free, err := freeTasks(ctx, group)
	if err != nil {
		return nil, err
	}
	if kept, err := freeTasks(ctx, reserve); err != nil || kept <= free {
		return group, err
	}
	return reserve, nil
}

// freeTasks returns how many tasks may still be made in a group with a limit.
func freeTasks(ctx context.Context, group kernel.Cgroup2) (int64, error) {
	var numbers [2]int64
	for i, name := range []string{"pids.max", "pids.current"} {
		text, err := group.ReadControl(ctx, name)
		if err == nil {
			numbers[i], err = strconv.ParseInt(strings.TrimSpace(text), 10, 64)
		}
		if err != nil {
			return 0, fmt.Errorf("count tasks: %w", err)
		}
	}
	return numbers[0] - numbers[1], nil
}

// GroupNamespace returns the namespace of control groups that all processes are in: what they find in
// /proc/self/cgroup is the root, as what they find in /sys/fs/cgroup is. group is the one that they are in, nil for the
// kernel's root.
func (s *Spawner) GroupNamespace(ctx context.Context, group kernel.Cgroup2) *kernel.CgroupNamespace {
	cgroup2fs.NewInternalMount(s.k.Kernel, s.k.VFS()).DecRef(ctx) // before one was mounted, that file is empty
	if group == nil {
		group = s.k.Cgroup2FS().RootCgroup()
	}
	return s.k.NewCgroupNamespace(ctx, group, s.k.RootUserNamespace())
}
