package sentry

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/bpf"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/sentry/guest"
	"ramet.dev/ramet/internal/sentry/platforms"
	"ramet.dev/ramet/internal/sentry/selffork"
)

// fdControl is the descriptor that the zygote is started with: one of a SOCK_SEQPACKET
// pair, on which the daemon asks for sentries.
const fdControl = 3

// zygote is the process that all sentries of a daemon are forks of. Work that is the same for
// all of them is done in it, once: packages initialised, filters compiled, the root emptied.
// It never sees data of a sandbox, and reads from the daemon only.
//
// A fork must share nothing with its parent by which the two could communicate, or by which
// one could guess a secret of the other. For descriptors see child. No memory is shared, and
// guest.NewBlank throws away the random bytes that were read ahead. The Go runtime's seeds for
// maps and math/rand are the same in all forks: no random number that matters may come from
// there.
type zygote struct {
	namespaces bool
	isolation  api.Isolation // of its children
	processes  *os.Root      // /proc, which it cannot reach by name any more; nil in a template
	proc       *os.Root      // /proc/self
	lastCap    uintptr
	kind       platforms.Platform
	platform   int // descriptor of the platform's file that forks do not share
	forker     *selffork.Forker
	steps      []selffork.Step   // room for those of a child
	template   *guest.Template   // nil in the zygote itself
	filter     []bpf.Instruction // of templates
}

// newZygote confines the process.
func newZygote(cfg wire.ZygoteConfig, kind platforms.Platform) (*zygote, error) {
	z := &zygote{kind: kind, namespaces: cfg.Namespaces}
	_ = setTimerSlack(bornSlack) // else a start takes longer
	var err error
	if z.processes, err = os.OpenRoot("/proc"); err != nil {
		return nil, fmt.Errorf("open /proc: %w", err)
	}
	if z.proc, err = z.processes.OpenRoot("self"); err != nil {
		return nil, fmt.Errorf("open /proc/self: %w", err)
	}
	// Without it the host may kill the daemon first, which is no reason to have no sandboxes.
	_ = z.offerToOOMKiller()
	for unix.Prctl(unix.PR_CAPBSET_READ, z.lastCap+1, 0, 0, 0) == nil {
		z.lastCap++
	}
	if z.isolation, err = confine(cfg, z.processes); err != nil {
		return nil, err
	}
	if err := prepareProcessor(); err != nil {
		return nil, err
	}
	return z, nil
}

// oomScoreAdj is how much sooner than others a sentry, and all processes of its platform,
// are killed when memory runs out, of 1000: rather than the daemon, which may be in the
// same control group, when a guest takes more than there is.
const oomScoreAdj = 500

// offerToOOMKiller raises the adjustment of this process, and of all that descend from it,
// unless it is higher. No privilege is needed for that.
func (z *zygote) offerToOOMKiller() error {
	f, err := z.proc.OpenFile("oom_score_adj", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	var text [8]byte
	n, err := f.Read(text[:])
	if err != nil {
		return err
	}
	now, err := strconv.Atoi(strings.TrimSpace(string(text[:n])))
	if err != nil || now >= oomScoreAdj {
		return err
	}
	_, err = f.WriteAt([]byte(strconv.Itoa(oomScoreAdj)), 0)
	return err
}

// outfit is what a sentry is born with, in the order in which it comes with a
// wire.Spawn; its log and the files of its control group follow.
type outfit struct{ lifeline, listener, memory, files *os.File }

// birthFiles is how many these are, with the log.
const birthFiles = 5

// serve forks a sentry for every Birth, until the daemon is gone: then it ends the
// process. It returns in the sentries only.
func (z *zygote) serve() *outfit {
	b, err := z.forkAll()
	if err != nil {
		fmt.Fprintln(os.Stderr, lastWord, err)
		os.Exit(1)
	}
	return b
}

// births is how many sentries are forked from one collection of garbage to the next. The
// collector is off; garbage of the zygote is in each sentry, too, and a sentry collects
// nothing before it is a sandbox (see settle in package guest).
const births = 100

func (z *zygote) forkAll() (*outfit, error) {
	debug.SetGCPercent(-1)
	var err error
	if z.platform, err = z.kind.SharedFile(z.proc); err != nil {
		return nil, err
	}
	if z.forker, err = selffork.New(z.proc); err != nil {
		return nil, err
	}
	if err := answer(wire.TypeReply, wire.Spawned{PID: os.Getpid()}); err != nil {
		return nil, err
	}
	for n := 0; ; n++ {
		if n == 0 || n%births == 0 && z.template == nil { // a template would copy what it shares
			debug.FreeOSMemory()
		}
		asked, fds, err := awaitBirth()
		if err != nil {
			return nil, err
		}
		fork := z.fork
		if asked.Template != nil {
			fork = z.forkTemplate
		} else if len(fds) < birthFiles {
			return nil, fmt.Errorf("await birth: %d descriptors", len(fds))
		}
		pid, err := fork(asked, fds)
		if err == nil && pid == 0 && asked.Template != nil {
			if err := z.becomeTemplate(fds); err != nil {
				return nil, err
			}
			n = -1 // what it loaded has left garbage
			continue
		}
		if err == nil && pid == 0 {
			unix.Close(fdControl)
			z.close()
			return adopt(fds), nil
		}
		for _, fd := range fds {
			unix.Close(fd)
		}
		if errors.Is(err, errUnfit) {
			return nil, err
		}
		if err != nil {
			err = answer(wire.TypeFail, api.AsError(err))
		} else {
			err = answer(wire.TypeReply, wire.Spawned{PID: pid})
		}
		if err != nil {
			return nil, err
		}
	}
}

// close closes what a fork does not need.
func (z *zygote) close() {
	z.forker.Close()
	z.proc.Close()
	if z.processes != nil {
		z.processes.Close()
	}
}

// awaitBirth returns a Spawn and the descriptors that come with it.
func awaitBirth() (asked wire.Spawn, fds []int, err error) {
	fds, err = receive(&asked, 128, birthFiles+wire.MaxEntrances)
	return asked, fds, err
}

// receive returns the next message on the control socket, of size bytes at most, and the descriptors that come
// with it. It uses plain system calls, because every sentry would inherit the descriptors that package net
// registers with the runtime's poller.
func receive(message any, size, files int) (fds []int, err error) {
	data := make([]byte, size)
	oob := make([]byte, unix.CmsgSpace(4*files))
	n, noob, flags := 0, 0, 0
	for err = unix.EINTR; err == unix.EINTR; {
		n, noob, flags, _, err = unix.Recvmsg(fdControl, data, oob, unix.MSG_CMSG_CLOEXEC)
	}
	if err != nil {
		return nil, fmt.Errorf("await message: %w", err)
	}
	if n == 0 {
		os.Exit(0) // the daemon is gone
	}
	messages, err := unix.ParseSocketControlMessage(oob[:noob])
	if err != nil {
		return nil, fmt.Errorf("await message: %w", err)
	}
	if len(messages) != 1 || flags&(unix.MSG_CTRUNC|unix.MSG_TRUNC) != 0 {
		return nil, errors.New("await message: a part of it was lost")
	}
	if err := json.Unmarshal(data[min(n, 1):n], message); err != nil { // behind the type
		return nil, fmt.Errorf("await message: %w", err)
	}
	if fds, err = unix.ParseUnixRights(&messages[0]); err != nil {
		return nil, fmt.Errorf("await message: %w", err)
	}
	return fds, nil
}

// answer sends a packet as wire.Conn does.
func answer(t wire.Type, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}
	if err := unix.Sendmsg(fdControl, append([]byte{byte(t)}, body...), nil, nil, unix.MSG_NOSIGNAL); err != nil {
		os.Exit(0) // the daemon is gone
	}
	return nil
}

// fork forks a sentry. It returns 0 in the sentry.
func (z *zygote) fork(asked wire.Spawn, fds []int) (pid int, err error) {
	fresh, err := z.kind.NewFile()
	if err != nil {
		return 0, err
	}
	defer unix.Close(fresh) // in both
	c := z.child(fds, fresh)
	c.User = uintptr(asked.User)
	return z.split(c)
}

// split forks the process, and explains errors.
func (z *zygote) split(c selffork.Child) (pid int, err error) {
	pid, err = z.forker.Fork(c)
	for _, short := range []error{unix.EAGAIN, unix.ENOMEM, unix.ENOSPC} { // ENOSPC: too many namespaces
		if errors.Is(err, short) {
			return 0, api.Errorf(api.CodeLimit, "the host refused another process: %w", err)
		}
	}
	var errno unix.Errno
	if err != nil && !errors.As(err, &errno) {
		return 0, errors.Join(errUnfit, err)
	}
	if errors.Is(err, unix.EPERM) {
		return 0, api.Errorf(api.CodeIsolation, "the host does not let a process in a user namespace make another one (is kernel.unprivileged_userns_clone 0?): %w", err)
	}
	return pid, err
}

// errUnfit says that the zygote must be replaced.
var errUnfit = errors.New("the zygote cannot be forked any more")

// The memory that the steps of a child refer to.
var (
	myself       = [1]byte{'0'}                                     // in files of control groups: the writer itself
	sentryName   = [16]byte([]byte("ramet-sentry\x00\x00\x00\x00")) // for ps(1), which calls the zygote by its descriptor
	capHeader    = unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	noPrivileges [2]unix.CapUserData
)

// child says how a sentry differs from the zygote: its log, control group and session; its
// namespaces; and its capabilities, of which it has all in a new user namespace.
//
// A thread that kept its bounding set would gain nothing by it: the filter allows no
// execve, and with no_new_privs even that could not give back capabilities that are not
// permitted (capabilities(7)). So a host that does not let it go is no reason to end.
func (z *zygote) child(fds []int, fresh int) selffork.Child {
	c := z.offspring(fds[birthFiles-1], fds[birthFiles:], fresh, &sentryName)
	step := func(what string, call uintptr, args ...uintptr) *selffork.Step {
		return addStep(&c, what, call, args...)
	}
	if z.namespaces {
		c.Flags |= unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS
		for bit := range z.lastCap + 1 {
			step(lastWord+" drop capability", unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, bit).Tolerated = unix.EPERM
		}
	}
	step(lastWord+" drop capabilities", unix.SYS_CAPSET, uintptr(unsafe.Pointer(&capHeader)), uintptr(unsafe.Pointer(&noPrivileges)))
	z.steps = c.Steps
	return c
}

// offspring says how all forks differ from the zygote: by their log, control group, session, name and the platform's
// file.
func (z *zygote) offspring(log int, groups []int, fresh int, name *[16]byte) selffork.Child {
	c := selffork.Child{Flags: unix.CLONE_PARENT, Steps: z.steps[:0]} // the daemon waits for it
	addStep(&c, lastWord+" open log", unix.SYS_DUP3, uintptr(log), 2, 0)
	addStep(&c, lastWord+" open log", unix.SYS_DUP3, uintptr(log), 1, 0)
	for _, fd := range groups {
		addStep(&c, lastWord+" enter control group", unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&myself)), uintptr(len(myself)))
	}
	addStep(&c, lastWord+" replace the platform's file", unix.SYS_DUP3, uintptr(fresh), uintptr(z.platform), unix.O_CLOEXEC)
	addStep(&c, lastWord+" begin session", unix.SYS_SETSID)
	addStep(&c, lastWord+" take a name", unix.SYS_PRCTL, unix.PR_SET_NAME, uintptr(unsafe.Pointer(name)))
	return c
}

// addStep adds a system call to those that the child makes.
func addStep(c *selffork.Child, what string, call uintptr, args ...uintptr) *selffork.Step {
	c.Steps = append(c.Steps, selffork.Step{What: what, Call: call})
	s := &c.Steps[len(c.Steps)-1]
	copy(s.Args[:], args)
	return s
}

// adopt makes files of the descriptors that a sentry was born with and needs.
func adopt(fds []int) *outfit {
	file := func(i int, name string) *os.File { return os.NewFile(uintptr(fds[i]), name) }
	for _, fd := range fds[birthFiles-1:] { // the log is standard output now
		unix.Close(fd)
	}
	return &outfit{lifeline: file(0, "lifeline"), listener: file(1, "listener"), memory: file(2, "memory"), files: file(3, "files")}
}

// sockets takes over the sockets.
func (b *outfit) sockets() (*wire.Conn, *net.UnixListener, error) {
	defer b.lifeline.Close()
	defer b.listener.Close()
	c, err := net.FileConn(b.lifeline)
	if err != nil {
		return nil, nil, fmt.Errorf("open lifeline: %w", err)
	}
	l, err := net.FileListener(b.listener)
	if err != nil {
		return nil, nil, fmt.Errorf("open listener: %w", err)
	}
	ul := l.(*net.UnixListener)
	ul.SetUnlinkOnClose(false) // the path is the host side's
	return wire.NewConn(c.(*net.UnixConn)), ul, nil
}
