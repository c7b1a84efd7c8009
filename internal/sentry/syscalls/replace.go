package syscalls

import (
	"fmt"
	"maps"

	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	_ "gvisor.dev/gvisor/pkg/sentry/syscalls/linux" // the system call table

	"ramet.dev/ramet/internal/sentry/datagrams"
	"ramet.dev/ramet/internal/sentry/reseed"
)

// Replace puts our own system calls in the place of some of gVisor's, and those that platform has. Call it once
// per process.
func Replace(platform map[string]func(original kernel.SyscallFn) kernel.SyscallFn) error {
	all := map[string]func(original kernel.SyscallFn) kernel.SyscallFn{
		"connect":           datagrams.Connect,
		"epoll_pwait":       foreverMilliseconds(3),
		"epoll_pwait2":      forever(3),
		"fallocate":         passOnModes,
		"futex":             lockPI,
		"getpid":            reseed.Getpid,
		"io_getevents":      forever(4),
		"kill":              kill,
		"msgrcv":            restarts(linuxerr.ERESTARTNOHAND),
		"msgsnd":            restarts(linuxerr.ERESTARTNOHAND),
		"openat":            restarts(linuxerr.ERESTARTSYS),
		"openat2":           restarts(linuxerr.ERESTARTSYS),
		"pidfd_send_signal": pidfdSendSignal,
		"rt_sigqueueinfo":   toTask(1, byFirst),
		"rt_sigtimedwait":   forever(2),
		"rt_tgsigqueueinfo": toTask(2, bySecond),
		"semop":             restarts(linuxerr.ERESTARTNOHAND),
		"semtimedop":        forever(3),
		"sendmmsg":          datagrams.Sendmmsg,
		"sendmsg":           datagrams.Sendmsg,
		"sendto":            datagrams.Sendto,
		"shmget":            boundSegments,
		"sysinfo":           showLoad,
		"tgkill":            toTask(2, bySecond),
		"tkill":             toTask(1, byFirst),
		"open_tree":         missing,
		"move_mount":        missing,
		"fsopen":            missing,
		"fsconfig":          missing,
		"fsmount":           missing,
	}
	maps.Copy(all, platform)
	for name, ours := range all {
		if found := replace(name, ours); found < len(kernel.SyscallTables()) {
			return fmt.Errorf("replace a system call: gVisor has no %s", name)
		}
	}
	for name, ours := range map[string]func(original kernel.SyscallFn) kernel.SyscallFn{
		"creat":      restarts(linuxerr.ERESTARTSYS),
		"epoll_wait": foreverMilliseconds(3),
		"open":       restarts(linuxerr.ERESTARTSYS),
	} { // new architectures do not have these calls
		replace(name, ours)
	}
	return nil
}

// replace replaces one call in each table that has it, and returns their number.
func replace(name string, ours func(original kernel.SyscallFn) kernel.SyscallFn) (found int) {
	for _, table := range kernel.SyscallTables() {
		number, err := table.LookupNo(name)
		if err != nil {
			continue
		}
		found++
		changed := maps.Clone(table.Table)
		call := changed[number]
		call.Fn = ours(call.Fn)
		changed[number] = call
		table.Table = changed
		table.Init()
	}
	return found
}

// missing is a system call that this kernel does not have. The calls for mounts by descriptor
// make objects that gVisor cannot save (mountfd.Fd): a process that kept one would keep the
// sandbox from being forked. Programs fall back to mount(2), as they do on Linux before
// 5.2, provided that all of these calls are missing.
func missing(kernel.SyscallFn) kernel.SyscallFn {
	return func(*kernel.Task, uintptr, arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
		return 0, nil, linuxerr.ENOSYS
	}
}
