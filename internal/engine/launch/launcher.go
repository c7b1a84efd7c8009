package launch

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"regexp"
	"time"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/cgroup"
	"ramet.dev/ramet/internal/engine/confinement"
	"ramet.dev/ramet/internal/engine/memwatch"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/observe/procfs"
)

// keyPattern is the form of a sentry's key, which names its socket, its log and
// its control group.
var keyPattern = regexp.MustCompile(`^pool_[0-9a-f]{16}$`)

// Config says how sentries are started.
type Config struct {
	// Executable is the program whose "sentry" subcommand is a sentry.
	Executable string
	// Dir is the directory of the sockets and logs of sentries. Only this user can
	// enter it.
	Dir string
	// FilesDir is a directory on a disk, for files without a name with what sandboxes write.
	FilesDir string
	// BuildID must equal the build id that sentries report.
	BuildID string
	// Zygote names the log of the zygote, which no other launcher of Dir may use; "zygote" if empty.
	Zygote string
	// Cgroups makes control groups; nil where there are none.
	Cgroups *cgroup.Hierarchy
	// Log has the stacks of sentries that crash; nil is slog.Default.
	Log *slog.Logger
}

// Launcher starts sentries. It is safe for concurrent use.
type Launcher struct {
	cfg      Config
	nsReason string // why there are no namespaces; empty if there are
	noRoot   string // why there is no empty root, although there are namespaces; empty if there is
	noUsers  string // why sentries have no users of their own; empty if they do
	zygotes  zygotePool
	watches  *memwatch.Group

	helloTimeout time.Duration // helloTimeout but in tests
	quitTimeout  time.Duration // adoptTimeout but in tests
}

// New finds out which isolation the machine allows. Close ends the zygote.
func New(ctx context.Context, cfg Config) (*Launcher, error) {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if reason := confinement.WhyNoSandboxes(); reason != "" {
		return nil, api.Errorf(api.CodeUnsupported, "%s", reason)
	}
	l := &Launcher{cfg: cfg, watches: memwatch.NewGroup(), quitTimeout: adoptTimeout, helloTimeout: helloTimeout}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make sentry directory: %w", err)
	}
	if err := keepInherited(); err != nil {
		return nil, fmt.Errorf("keep descriptors from sentries: %w", err)
	}
	if noRoot, err := confinement.Probe(ctx, cfg.Executable); IsShort(err) {
		return nil, err // the machine has namespaces, but no resources for them now
	} else if err != nil {
		l.nsReason = err.Error()
	} else if l.noRoot = noRoot; noRoot != "" {
		cfg.Log.Warn("sentries keep the root", "reason", noRoot)
	}
	l.noUsers = confinement.WhyNoUsers(l.nsReason)
	if l.noUsers != "" && os.Geteuid() == 0 {
		cfg.Log.Warn("sentries share a user of the host", "reason", l.noUsers)
	}
	l.zygotes = newZygotePool(cfg, wire.ZygoteConfig{Namespaces: l.nsReason == "", OwnUsers: l.noUsers == "", KeepRoot: l.noRoot != ""})
	return l, nil
}

// Close ends the zygote. No sentry can be started any more; running sentries go on.
func (l *Launcher) Close() {
	l.watches.Close()
	l.zygotes.close()
}

// keepInherited makes sure that no descriptor that this process inherited reaches a
// sentry. Descriptors that Go opens are closed on exec already.
func keepInherited() error {
	open, err := procfs.OwnDescriptors()
	if err != nil {
		return err
	}
	for _, fd := range open {
		if fd > 2 {
			unix.CloseOnExec(fd) // fails for that of the directory, which is closed
		}
	}
	return nil
}

// Missing returns the isolation layers that sentries do without on this
// machine, by their JSON names, each with the reason.
func (l *Launcher) Missing() map[string]string {
	m := map[string]string{}
	if l.nsReason != "" {
		for _, layer := range []string{"user_namespace", "namespaces", "empty_root"} {
			m[layer] = l.nsReason
		}
	}
	if l.noRoot != "" {
		m["empty_root"] = l.noRoot
	}
	if l.noUsers != "" {
		m["own_user"] = l.noUsers
	}
	if reason := confinement.WhyNoLandlock(); reason != "" {
		m["landlock"] = reason
	}
	if l.cfg.Cgroups == nil {
		m["cgroup"] = "no control group can be made by this user"
	}
	return m
}

// startAttempts is how often a sentry, or the zygote, is started that ends before it
// is ready. The platform maps its code at a random address, and when that is taken it
// looks for a free one in /proc, which the empty root does not have: about one zygote
// in five hundred ends because of that.
const startAttempts = 3

// helloTimeout is how long a sentry may take from its fork until it is ready, which is
// some milliseconds, and more where many are started at once. It waits for ever for a process
// of the platform that was killed, for example by the kernel when memory is short.
const helloTimeout = 15 * time.Second

// Start starts a blank sentry and waits until it is ready. Cancelling ctx kills
// it.
func (l *Launcher) Start(ctx context.Context) (s *Sentry, err error) {
	for range startAttempts {
		s, err = l.startOnce(ctx, &l.zygotes)
		if api.CodeOf(err) != api.CodeSandboxDied || ctx.Err() != nil {
			break
		}
	}
	return s, err
}

// parent forks itself into sentries.
type parent interface {
	// spawn returns the process id of a new sentry that has duplicates of fds.
	spawn(ctx context.Context, fds []int) (pid int, err error)
}

func (l *Launcher) startOnce(ctx context.Context, of parent) (_ *Sentry, err error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	s := &Sentry{watches: l.watches, process: process{key: key, dir: l.cfg.Dir, logger: l.cfg.Log, done: make(chan struct{})}}
	defer func() {
		if err != nil {
			s.Kill()
		}
	}()
	if err := l.startProcess(ctx, s, of); err != nil {
		return nil, err
	}
	bounded, cancel := context.WithTimeoutCause(ctx, l.helloTimeout, api.Errorf(api.CodeSandboxDied, "the sentry was not ready within %v", l.helloTimeout))
	defer cancel()
	if err := s.awaitHello(bounded, l.cfg); err != nil {
		if bounded.Err() != nil && ctx.Err() == nil {
			l.cfg.Log.Warn("sentry given up", "sentry", s.key, "error", err)
		}
		return nil, err
	}
	return s, nil
}

// startProcess makes the descriptors of the process and starts it. When it returns, only
// the process has them: its end is the end of the lifeline.
func (l *Launcher) startProcess(ctx context.Context, s *Sentry, of parent) (err error) {
	var given donation
	defer given.close()
	if s.lifeline, err = l.donate(s, &given); err != nil {
		return err
	}
	if err := s.equip(l.cfg.Cgroups, cgroup.Limits{}, &given); err != nil {
		return err
	}
	if s.pid, err = of.spawn(ctx, descriptors(given.files)); err != nil {
		s.endUnknown()
		return fmt.Errorf("start sentry: %w", err)
	}
	if s.handle, err = os.FindProcess(s.pid); err != nil {
		return fmt.Errorf("start sentry: %w", err)
	}
	go s.reap()
	return nil
}

// donate makes the descriptors that the sentry starts with, in the order that
// package sentry expects, and keeps the other ends.
func (l *Launcher) donate(s *Sentry, given *donation) (*wire.Conn, error) {
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	given.add(theirs)
	listener, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: s.socketPath(), Net: "unixpacket"})
	if err != nil {
		ours.Close()
		return nil, fmt.Errorf("listen for sentry: %w", err)
	}
	listener.SetUnlinkOnClose(false)
	file, err := listener.File()
	listener.Close()
	if err != nil {
		ours.Close()
		return nil, fmt.Errorf("listen for sentry: %w", err)
	}
	given.add(file)
	memory, readOnly, err := memoryFile("ramet:" + s.key)
	if err != nil {
		ours.Close()
		return nil, err
	}
	given.add(memory)
	s.memory = readOnly
	files, err := NewPageFile(l.cfg.FilesDir)
	if err != nil {
		ours.Close()
		return nil, err
	}
	given.add(files)
	if s.files, err = ReadOnly(files); err != nil {
		ours.Close()
		return nil, err
	}
	return ours, nil
}

func newKey() (string, error) {
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		return "", fmt.Errorf("read random bytes: %w", err)
	}
	return "pool_" + hex.EncodeToString(b[:]), nil
}

// validKey reports whether key may name a sentry.
func validKey(key string) bool { return keyPattern.MatchString(key) }

// donation collects descriptors for a child process; they are closed here once
// it has them.
type donation struct{ files []*os.File }

func (d *donation) add(f *os.File) { d.files = append(d.files, f) }

func (d *donation) close() {
	for _, f := range d.files {
		f.Close()
	}
}

func socketPair() (ours *wire.Conn, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make lifeline: %w", err)
	}
	f := os.NewFile(uintptr(fds[0]), "lifeline")
	defer f.Close()
	theirs = os.NewFile(uintptr(fds[1]), "lifeline")
	c, err := net.FileConn(f)
	if err != nil {
		theirs.Close()
		return nil, nil, fmt.Errorf("make lifeline: %w", err)
	}
	return wire.NewConn(c.(*net.UnixConn)), theirs, nil
}

// NewFile returns an empty file in memory.
func NewFile(name string) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("make memory file: %w", errors.Join(err, memoryHint(err)))
	}
	return os.NewFile(uintptr(fd), name), nil
}

// Seal makes a file from NewFile unchangeable, also for processes that have it open for
// writing. It returns the file open for reading, in place of f, which it closes. Without
// the seal, contents could change after they were checked, and a shorter file would end
// this process when it reads a mapping. Seal fails while a process has the file mapped for
// writing.
func Seal(f *os.File) (*os.File, error) {
	const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		return nil, fmt.Errorf("seal memory file: %w", err)
	}
	// Kernels before 6.7 do not map a sealed file that is open for writing.
	ro, err := ReadOnly(f)
	if err != nil {
		return nil, err
	}
	f.Close()
	return ro, nil
}

func memoryHint(err error) error {
	if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
		return api.Errorf(api.CodeLimit, "the limit of open files is reached")
	}
	return nil
}

// memoryFile returns a sandbox's memory file and a read-only view of it. Other sandboxes
// only get the view.
func memoryFile(name string) (rw, ro *os.File, err error) {
	if rw, err = NewFile(name); err != nil {
		return nil, nil, err
	}
	if ro, err = ReadOnly(rw); err != nil {
		rw.Close()
		return nil, nil, err
	}
	return rw, ro, nil
}

// NewPageFile makes a file on disk that has no name: it is deleted when it is closed
// everywhere.
func NewPageFile(dir string) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err == nil {
		return os.NewFile(uintptr(fd), "files"), nil
	}
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EISDIR) { // not all file systems can
		return unlinkedFile(dir)
	}
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return nil, api.Errorf(api.CodeNoSpace, "make file for the sandbox's files in %s: %w", dir, err)
	}
	return nil, fmt.Errorf("make file for the sandbox's files in %s: %w", dir, errors.Join(err, memoryHint(err)))
}

// unlinkedFile makes a file without a name where there is no O_TMPFILE. A file that a
// crash leaves behind is empty.
func unlinkedFile(dir string) (*os.File, error) {
	f, err := os.CreateTemp(dir, "files-")
	if err == nil {
		err = os.Remove(f.Name())
	}
	if err != nil {
		return nil, fmt.Errorf("make file for the sandbox's files: %w", err)
	}
	return f, nil
}
