package sentry

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/memutil"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/sentry/guest"
	"ramet.dev/ramet/internal/sentry/selffork"
)

// A template is a fork of the zygote that loads the state of a frozen sandbox, and then does what the zygote does:
// it forks itself into sentries, which have the state from it.
//
// Unlike the zygote it handles data of a sandbox, so it has fewer privileges: a user namespace of its own, in
// which it has the users of its sentries and no others, no capability but for becoming them, no /proc, and a
// filter of system calls. Unlike a sentry it has no pid namespace, as the first process of one cannot make siblings.

// templateFiles are the descriptors that come with a wire.SpawnTemplate, but for those of its control group.
const templateFiles = 2

// The memory that the steps of a template refer to.
var (
	templateName = [16]byte([]byte("ramet-template\x00\x00"))
	goAhead      [1]byte
	userChanger  = [2]unix.CapUserData{{Effective: mayChangeUser, Permitted: mayChangeUser}}
)

const mayChangeUser = 1<<unix.CAP_SETUID | 1<<unix.CAP_SETGID | 1<<unix.CAP_SETPCAP

// forkTemplate forks a template. It returns 0 in that.
func (z *zygote) forkTemplate(asked wire.Spawn, fds []int) (pid int, err error) {
	if z.processes == nil || !z.namespaces || len(fds) < templateFiles {
		return 0, fmt.Errorf("fork template: with %d descriptors, in namespaces: %t", len(fds), z.namespaces)
	}
	fresh, err := z.kind.NewFile()
	if err != nil {
		return 0, err
	}
	defer unix.Close(fresh) // in both
	var wait [2]int
	if err := unix.Pipe2(wait[:], unix.O_CLOEXEC); err != nil {
		return 0, fmt.Errorf("fork template: %w", err)
	}
	defer unix.Close(wait[0]) // in both
	defer unix.Close(wait[1])
	c := z.offspring(fds[1], fds[templateFiles:], fresh, &templateName)
	c.Flags |= unix.CLONE_NEWUSER
	step := func(what string, call uintptr, args ...uintptr) { addStep(&c, lastWord+" "+what, call, args...) }
	step("open control socket", unix.SYS_DUP3, uintptr(fds[0]), fdControl, unix.O_CLOEXEC)
	step("leave users to the zygote", unix.SYS_CLOSE, uintptr(wait[1])) // so that it reads the end if the zygote has none
	step("await users", unix.SYS_READ, uintptr(wait[0]), uintptr(unsafe.Pointer(&goAhead)), 1)
	step("become a user", unix.SYS_SETRESGID, 0, 0, 0) // fails if there are none
	step("become a user", unix.SYS_SETRESUID, 0, 0, 0)
	step("become a user", unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 1)
	capabilities := &noPrivileges
	if asked.Template.Users > 1 {
		capabilities = &userChanger
	}
	step("drop capabilities", unix.SYS_CAPSET, uintptr(unsafe.Pointer(&capHeader)), uintptr(unsafe.Pointer(capabilities)))
	z.steps = c.Steps
	if pid, err = z.split(c); err != nil || pid == 0 {
		return pid, err
	}
	// Without users the template ends, and says so. The daemon has to know of it all the same, to wait for it.
	if err = z.giveUsers(pid, asked.User, asked.Template.Users); err == nil {
		_, err = unix.Write(wait[1], goAhead[:])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, lastWord, err)
	}
	return pid, nil
}

// giveUsers gives the user namespace of a process n users, and groups, of the zygote's, from first on.
func (z *zygote) giveUsers(pid, first, n int) error {
	for _, name := range []string{"uid_map", "gid_map"} {
		f, err := z.processes.OpenFile(strconv.Itoa(pid)+"/"+name, os.O_WRONLY, 0)
		if err != nil {
			return fmt.Errorf("give users to a template: %w", err)
		}
		_, err = fmt.Fprintf(f, "0 %d %d\n", first, n)
		f.Close()
		if err != nil {
			return fmt.Errorf("give users to a template: %w", err)
		}
	}
	return nil
}

// becomeTemplate makes this process, a fork of the zygote, a template, and tells the daemon.
func (z *zygote) becomeTemplate(fds []int) error {
	if err := z.loadTemplate(fds); err != nil {
		return errors.Join(err, answer(wire.TypeFail, api.AsError(err)))
	}
	return answer(wire.TypeReply, wire.Spawned{PID: os.Getpid()})
}

func (z *zygote) loadTemplate(fds []int) error {
	for _, fd := range fds {
		unix.Close(fd)
	}
	proc, err := z.processes.OpenRoot("self")
	if err != nil {
		return fmt.Errorf("open /proc/self: %w", err)
	}
	z.close()
	z.processes, z.proc = nil, proc
	defer proc.Close()
	var own [2]*os.File
	for i, name := range []string{"memory", "files"} {
		fd, err := memutil.CreateMemFD("template-"+name, 0)
		if err != nil {
			return fmt.Errorf("make memory file: %w", err)
		}
		own[i] = os.NewFile(uintptr(fd), name)
	}
	if z.template, err = guest.ReadyTemplate(z.kind, own[0], own[1]); err != nil {
		return err
	}
	if z.forker, err = selffork.New(proc); err != nil {
		return err
	}
	proc.Close()
	if err := installFilter(z.filter); err != nil {
		return err
	}
	var d wire.Decode
	passed, err := receive(&d, wire.MaxPacket, wire.MaxFiles)
	if err != nil {
		return err
	}
	if len(passed) != 2+len(d.Generations) {
		return fmt.Errorf("load template: %d descriptors for %d generations", len(passed), len(d.Generations))
	}
	files := guest.LoadFiles{}
	for i, fd := range passed {
		f := os.NewFile(uintptr(fd), "passed")
		switch i {
		case 0:
			files.Snapshot = f
			defer f.Close()
		case 1:
			files.Image = f
		default:
			files.Generations = append(files.Generations, f)
		}
	}
	return z.template.Load(&d, files)
}
