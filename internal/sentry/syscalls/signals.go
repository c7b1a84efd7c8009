package syscalls

import (
	"reflect"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/fsimpl/kernfs"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
)

// Linux ignores a signal to the first process of a PID namespace that has neither a handler for the signal
// nor blocks it, whoever sends it; only an ancestor namespace can kill or stop that process. gVisor delivers
// the signal, so that `kill -TERM 1` would end the sandbox. The calls below that send signals check the
// request, and leave the signal out.

// harmless are the signals that do nothing to a process without a handler. SIGCONT also ends a stop.
var harmless = linux.MakeSignalSet(linux.SIGCHLD, linux.SIGCONT, linux.SIGURG, linux.SIGWINCH)

// ignores reports whether target is the first process of a PID namespace and Linux would ignore a signal
// that t sends to it.
func ignores(t, target *kernel.Task, sig linux.Signal) bool {
	tg := target.ThreadGroup()
	own := tg.PIDNamespace()
	if !sig.IsValid() || !tg.IsInitIn(own) {
		return false
	}
	set := linux.SignalSetOf(sig)
	if set&kernel.UnblockableSignals != 0 {
		return t.PIDNamespace() == own || own.IDOfTask(t) != 0 // the sender is not of an ancestor
	}
	if set&(harmless|target.SignalMask()|waitedFor(target)) != 0 {
		return false
	}
	action, err := tg.SetSigAction(sig, nil)
	return err == nil && action.Handler == linux.SIG_DFL
}

// waitedFor returns the signals that a task blocks while sigtimedwait(2) has replaced its mask. It is a race
// with the end of that call, as on Linux.
func waitedFor(t *kernel.Task) linux.SignalSet {
	return linux.SignalSet(reflect.ValueOf(t).Elem().FieldByName("realSignalMask").Uint())
}

// toTask returns a call that sends a signal to one process or thread, which target finds. The arguments
// have the number of the signal at position sigArg.
func toTask(sigArg int, target func(t *kernel.Task, args arch.SyscallArguments) *kernel.Task) func(kernel.SyscallFn) kernel.SyscallFn {
	return func(original kernel.SyscallFn) kernel.SyscallFn {
		return func(t *kernel.Task, sysno uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
			if to := target(t, args); to != nil && ignores(t, to, linux.Signal(args[sigArg].Int())) {
				args[sigArg].Value = 0 // existence and permission are checked, and nothing is sent
			}
			return original(t, sysno, args)
		}
	}
}

// byFirst and bySecond find the task whose number is the first or the second argument.
func byFirst(t *kernel.Task, args arch.SyscallArguments) *kernel.Task {
	return t.PIDNamespace().TaskWithID(kernel.ThreadID(args[0].Int()))
}

func bySecond(t *kernel.Task, args arch.SyscallArguments) *kernel.Task {
	return t.PIDNamespace().TaskWithID(kernel.ThreadID(args[1].Int()))
}

// kill is kill(2), of which original is gVisor's.
func kill(original kernel.SyscallFn) kernel.SyscallFn {
	one := toTask(1, byFirst)(original)
	return func(t *kernel.Task, sysno uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
		pid := args[0].Int()
		if pid > 0 {
			return one(t, sysno, args)
		}
		if pid == -1 { // it leaves the first process of the caller's namespace out
			return original(t, sysno, args)
		}
		pg := t.ThreadGroup().ProcessGroup()
		if pid != 0 {
			pg = t.PIDNamespace().ProcessGroupWithID(kernel.ProcessGroupID(-pid))
		}
		if done, err := toGroup(t, pg, linux.Signal(args[1].Int())); done {
			return 0, nil, err
		}
		return original(t, sysno, args)
	}
}

// toGroup sends a signal to a process group of which a process ignores it, and reports whether there is
// such a process; if not, it sends nothing.
func toGroup(t *kernel.Task, pg *kernel.ProcessGroup, sig linux.Signal) (done bool, err error) {
	if pg == nil || !sig.IsValid() {
		return false, nil
	}
	var to []*kernel.ThreadGroup
	for _, tg := range t.PIDNamespace().ThreadGroups() {
		if tg.ProcessGroup() != pg {
			continue
		}
		if ignores(t, tg.Leader(), sig) {
			done = true
		} else {
			to = append(to, tg)
		}
	}
	if !done {
		return false, nil
	}
	for _, tg := range to {
		if !t.MayKill(tg.Leader(), sig) {
			continue // another process of the group, the one that ignores the signal, got it
		}
		info := &linux.SignalInfo{Signo: int32(sig), Code: linux.SI_USER}
		info.SetPID(int32(tg.PIDNamespace().IDOfTask(t)))
		info.SetUID(int32(t.Credentials().RealKUID.In(tg.Leader().UserNamespace()).OrOverflow()))
		if serr := tg.SendSignal(info); serr != nil && !linuxerr.Equals(linuxerr.ESRCH, serr) { // it has ended
			err = serr
		}
	}
	return true, err
}

// pidfdSendSignal is pidfd_send_signal(2), of which original is gVisor's.
func pidfdSendSignal(original kernel.SyscallFn) kernel.SyscallFn {
	return func(t *kernel.Task, sysno uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
		file := t.GetFile(args[0].Int())
		if file == nil {
			return original(t, sysno, args)
		}
		defer file.DecRef(t)
		to, sig := taskOf(file), linux.Signal(args[1].Int())
		if to == nil || !ignores(t, to, sig) {
			return original(t, sysno, args)
		}
		if args[3].Uint() == linux.PIDFD_SIGNAL_PROCESS_GROUP && args[2].Pointer() == 0 {
			if done, err := toGroup(t, to.ThreadGroup().ProcessGroup(), sig); done {
				return 0, nil, err
			}
		}
		args[1].Value, args[2].Value = 0, 0 // an information of another signal would be refused
		return original(t, sysno, args)
	}
}

// taskOf returns the task of a descriptor of a process or of its directory in /proc, or nil.
func taskOf(file *vfs.FileDescription) *kernel.Task {
	impl := reflect.Indirect(reflect.ValueOf(file.Impl()))
	if impl.Kind() == reflect.Struct && impl.Type().Name() == "pidFD" {
		return (*kernel.Task)(impl.FieldByName("pid").Elem().FieldByName("t").FieldByName("v").UnsafePointer())
	}
	d, ok := file.Dentry().Impl().(*kernfs.Dentry)
	if !ok {
		return nil
	}
	if i, ok := d.Inode().(kernel.TaskOwnedInode); ok {
		return i.TaskFromProcPIDInode()
	}
	return nil
}
