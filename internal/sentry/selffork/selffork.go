package selffork

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Step is a system call that the child makes before anything else, while it has one
// thread: what it changes of a thread holds for all those that follow.
type Step struct {
	What string // it says so when it fails
	Call uintptr
	Args [5]uintptr
	// Tolerated is an error that does not count, 0 for none.
	Tolerated syscall.Errno
}

// Child says how the child differs from its parent.
type Child struct {
	Flags uintptr // of clone(2): namespaces, CLONE_PARENT
	// User is the user, and the group, that the child is, also as the owner of its new
	// user namespace, in which it cannot name one; 0 for those of the parent, which needs
	// CAP_SETUID, CAP_SETGID and CAP_SETPCAP, and must be one user and group in every
	// respect, else.
	User  uintptr
	Steps []Step
}

// maxThreads is the most that a process may have, here and in threads_*.s.
const maxThreads = 4096

// maxYields bounds the wait for a thread: several seconds on an idle machine, more on
// a busy one.
const maxYields = 10_000_000

// thread is one that is held.
type thread struct {
	//lint:ignore U1000 the handler's and revive's, in threads_*.s
	sp, fs uintptr
	id     uintptr
	noted  uintptr // where the runtime keeps id
}

// What the handler and split share. Only one fork is under way at a time.
var (
	forking sync.Mutex
	threads [maxThreads]thread
	//lint:ignore U1000 the handler counts it, in threads_*.s
	arriving uint32         // handlers that began
	arrived  uint32         // entries of threads that are filled in
	round    uint32         // odd while threads are held
	entries  [16 << 10]byte // of /proc/self/task
)

func ownNoted() uintptr
func note(at uintptr)
func handler() uintptr
func restorer() uintptr
func revive(t *thread, flags uintptr) uintptr

// holdSignal is one that nobody uses: the last but one of the real-time signals.
const holdSignal = 63

// signalAction is Linux's struct sigaction.
type signalAction struct{ handler, flags, restorer, mask uintptr }

// Its flags, and a call of futex(2).
const (
	saRestorer       = 0x04000000
	saOnStack        = 0x08000000
	saRestart        = 0x10000000
	futexWakePrivate = 1 | 128
)

// threadFlags are those that the Go runtime makes threads with, and that for noting
// the id: it fills the lower half of a word, of which the upper one is 0.
const threadFlags = unix.CLONE_VM | unix.CLONE_FS | unix.CLONE_FILES | unix.CLONE_SIGHAND | unix.CLONE_THREAD | unix.CLONE_SYSVSEM | unix.CLONE_SETTLS | unix.CLONE_PARENT_SETTID

// Forker forks the process that made it. What it needs of the kernel it asks for once:
// each page that the process writes to from one fork to the next is copied for it, as it
// shares the page with a child.
type Forker struct {
	tasks   *os.File // /proc/self/task
	pollers []poller
}

// New returns a Forker. proc is /proc/self, which the caller may not reach by that name
// any more. Nothing may be added later to what the Go runtime polls: a child would not
// poll it.
func New(proc *os.Root) (*Forker, error) {
	// The runtime has a poller from the first pipe on, at the latest.
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("fork: %w", err)
	}
	r.Close()
	w.Close()
	pollers, err := findPollers(proc)
	if err != nil {
		return nil, fmt.Errorf("fork: %w", err)
	}
	if err := learnThreads(proc); err != nil {
		return nil, fmt.Errorf("fork: %w", err)
	}
	tasks, err := proc.Open("task")
	if err != nil {
		return nil, fmt.Errorf("fork: %w", err)
	}
	return &Forker{tasks, pollers}, nil
}

// Close frees what the Forker has: in a child, for which it is of no use, as well as at
// the end of the process that made it.
func (f *Forker) Close() error { return f.tasks.Close() }

// Fork forks the process and returns the child's id, 0 in the child. All of the program
// stands still meanwhile, for a millisecond or two. A child whose steps fail says so on
// standard error and exits with the number of the error. An error that has no
// syscall.Errno means that the process cannot be forked, now or ever.
//
// Locks, buffers and goroutines are in the child what they were in the parent; the
// caller sees to it that none of them is half of something with the outside.
func (f *Forker) Fork(c Child) (pid int, err error) {
	forking.Lock()
	defer forking.Unlock()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	s := split{
		tasks: f.tasks.Fd(), group: os.Getpid(), self: uintptr(unix.Gettid()), noted: ownNoted(),
		steps: c.Steps, pollers: f.pollers, user: c.User,
		flags: c.Flags | uintptr(unix.SIGCHLD),
	}
	if s.noted == 0 {
		return 0, errNotNoted
	}
	hold := signalAction{handler: handler(), flags: saRestorer | saOnStack | saRestart, restorer: restorer(), mask: ^uintptr(0)}
	was, err := setAction(&hold)
	if err != nil {
		return 0, err
	}
	defer setAction(&was)
	// From here to the end of split this thread must not leave its processor.
	mask, err := setMask(^uint64(0))
	if err != nil {
		return 0, err
	}
	defer setMask(mask)
	pid, failed := s.run()
	switch {
	case failed.what == "":
		return pid, nil
	case failed.errno == 0:
		return 0, fmt.Errorf("fork: %s", failed.what)
	}
	return 0, fmt.Errorf("fork: %s: %w", failed.what, failed.errno)
}

var errNotNoted = errors.New("fork: the Go runtime keeps the ids of threads in another way")

func setAction(a *signalAction) (was signalAction, err error) {
	_, _, errno := syscall.RawSyscall6(unix.SYS_RT_SIGACTION, holdSignal, uintptr(unsafe.Pointer(a)), uintptr(unsafe.Pointer(&was)), 8, 0, 0)
	if errno != 0 {
		return was, fmt.Errorf("fork: set signal handler: %w", errno)
	}
	return was, nil
}

func setMask(mask uint64) (was uint64, err error) {
	was, errno := swapMask(mask)
	if errno != 0 {
		return 0, fmt.Errorf("fork: set signal mask: %w", errno)
	}
	return was, nil
}

// swapMask is setMask for where nothing may come between.
//
//go:nosplit
//go:norace
func swapMask(mask uint64) (was uint64, errno syscall.Errno) {
	_, _, errno = syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&mask)), uintptr(unsafe.Pointer(&was)), 8, 0, 0)
	return was, errno
}

// split is one fork. Its methods run while other threads are held, and some of them
// in a child that has no others: no method may allocate, grow the stack, take a lock
// or be preempted.
type split struct {
	tasks   uintptr // descriptor of /proc/self/task
	group   int     // process id
	self    uintptr // thread id
	noted   uintptr // see thread
	steps   []Step
	pollers []poller
	flags   uintptr // of clone(2)
	user    uintptr // of the child; 0 for the parent's
}

// failure says what went wrong; nothing did if what is empty.
type failure struct {
	what  string
	errno syscall.Errno
}

//go:nosplit
//go:norace
func (s *split) run() (pid int, failed failure) {
	arriving, arrived = 0, 0
	atomic.AddUint32(&round, 1)
	if failed = s.holdAll(); failed.what == "" {
		r, errno := s.clone()
		if errno != 0 {
			failed = failure{"clone", errno}
		} else if r == 0 {
			s.becomeChild()
			return 0, failure{}
		}
		pid = int(r)
	}
	atomic.AddUint32(&round, 1)
	syscall.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(&round)), futexWakePrivate, maxThreads, 0, 0, 0)
	return pid, failed
}

// clone makes the child. The user of a process is that of each of its threads, so this
// one is the child's user for so long: what it has been goes to the child, and comes back
// here. It keeps its capabilities meanwhile.
//
//go:nosplit
//go:norace
func (s *split) clone() (pid uintptr, errno syscall.Errno) {
	if s.user == 0 {
		pid, _, errno = syscall.RawSyscall6(unix.SYS_CLONE, s.flags, 0, 0, 0, 0, 0)
		return pid, errno
	}
	uid, _, _ := syscall.RawSyscall(unix.SYS_GETUID, 0, 0, 0)
	gid, _, _ := syscall.RawSyscall(unix.SYS_GETGID, 0, 0, 0)
	bits, _, errno := syscall.RawSyscall(unix.SYS_PRCTL, unix.PR_GET_SECUREBITS, 0, 0)
	if errno == 0 {
		_, _, errno = syscall.RawSyscall(unix.SYS_PRCTL, unix.PR_SET_SECUREBITS, bits|noSetuidFixup, 0)
	}
	if errno != 0 {
		return 0, errno
	}
	if errno = become(s.user, s.user); errno == 0 {
		if pid, _, errno = syscall.RawSyscall6(unix.SYS_CLONE, s.flags, 0, 0, 0, 0, 0); errno == 0 && pid == 0 {
			return 0, 0
		}
	}
	back := become(uid, gid)
	if back == 0 {
		_, _, back = syscall.RawSyscall(unix.SYS_PRCTL, unix.PR_SET_SECUREBITS, bits, 0)
	}
	if back != 0 {
		die("be the same user again", back)
	}
	return pid, errno
}

// noSetuidFixup is the bit by which another user has the same capabilities.
const noSetuidFixup = 1 << 2

// become changes all users and groups of this thread but the supplementary groups. What
// changes its user becomes one that others of that user may not trace, and a child too,
// which then could not trace its own.
//
//go:nosplit
//go:norace
func become(uid, gid uintptr) (errno syscall.Errno) {
	if _, _, errno = syscall.RawSyscall(unix.SYS_SETRESGID, gid, gid, gid); errno != 0 {
		return errno
	}
	if _, _, errno = syscall.RawSyscall(unix.SYS_SETRESUID, uid, uid, uid); errno != 0 {
		return errno
	}
	_, _, errno = syscall.RawSyscall(unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 1, 0)
	return errno
}

// holdAll returns when no other thread runs. A thread that has not been held may
// make another one, so it looks again until it finds none.
//
//go:nosplit
//go:norace
func (s *split) holdAll() failure {
	signaled := uint32(0)
	for {
		before := signaled
		if _, _, errno := syscall.RawSyscall(unix.SYS_LSEEK, s.tasks, 0, 0); errno != 0 {
			return failure{"list threads", errno}
		}
		for {
			n, _, errno := syscall.RawSyscall(unix.SYS_GETDENTS64, s.tasks, uintptr(unsafe.Pointer(&entries[0])), uintptr(len(entries)))
			if errno != 0 {
				return failure{"list threads", errno}
			}
			if n == 0 {
				break
			}
			for at := 0; at < int(n); at += int(entries[at+16]) | int(entries[at+17])<<8 {
				id := number(at + 19)
				if id == 0 || id == s.self || isHeld(id) {
					continue
				}
				if signaled == maxThreads {
					return failure{what: "there are too many threads"}
				}
				// One that has ended meanwhile is no error.
				if _, _, errno := syscall.RawSyscall(unix.SYS_TGKILL, uintptr(s.group), id, holdSignal); errno == 0 {
					signaled++
				}
			}
		}
		if signaled == before {
			break
		}
		for yields := 0; atomic.LoadUint32(&arrived) < signaled; yields++ {
			if yields == maxYields {
				return failure{what: "a thread does not stop"}
			}
			syscall.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
		}
	}
	for i := range signaled {
		if threads[i].noted == 0 {
			return failure{what: "the Go runtime keeps the ids of threads in another way"}
		}
	}
	return failure{}
}

// number reads the name of an entry.
//
//go:nosplit
//go:norace
func number(at int) (n uintptr) {
	for ; entries[at] >= '0' && entries[at] <= '9'; at++ {
		n = n*10 + uintptr(entries[at]-'0')
	}
	return n
}

//go:nosplit
//go:norace
func isHeld(id uintptr) bool {
	for i := range atomic.LoadUint32(&arrived) {
		if threads[i].id == id {
			return true
		}
	}
	return false
}

// becomeChild makes of the one thread a process like the parent's.
//
//go:nosplit
//go:norace
func (s *split) becomeChild() {
	note(s.noted)
	for i := range s.pollers {
		if errno := s.pollers[i].renew(); errno != 0 {
			die("renew the poller", errno)
		}
	}
	for i := range s.steps {
		st := &s.steps[i]
		if _, _, errno := syscall.RawSyscall6(st.Call, st.Args[0], st.Args[1], st.Args[2], st.Args[3], st.Args[4], 0); errno != 0 && errno != st.Tolerated {
			die(st.What, errno)
		}
	}
	round++
	pid, _, _ := syscall.RawSyscall(unix.SYS_GETPID, 0, 0, 0)
	self, _, _ := syscall.RawSyscall(unix.SYS_GETTID, 0, 0, 0)
	for i := range arrived {
		id := int(revive(&threads[i], threadFlags))
		if id < 0 {
			die("make thread", syscall.Errno(-id))
		}
		syscall.RawSyscall(unix.SYS_TGKILL, pid, uintptr(id), preempts)
	}
	syscall.RawSyscall(unix.SYS_TGKILL, pid, self, preempts)
}

// preempts is the signal by which the runtime asks a thread to stop what it runs. One
// may have been on its way to a thread that was held, and signals are not inherited:
// as the runtime sends no second before the first has come, every thread gets one.
const preempts = uintptr(unix.SIGURG)

//go:nosplit
//go:norace
func die(what string, errno syscall.Errno) {
	const newline = "\n"
	syscall.RawSyscall(unix.SYS_WRITE, 2, uintptr(unsafe.Pointer(unsafe.StringData(what))), uintptr(len(what)))
	syscall.RawSyscall(unix.SYS_WRITE, 2, uintptr(unsafe.Pointer(unsafe.StringData(newline))), 1)
	for {
		syscall.RawSyscall(unix.SYS_EXIT_GROUP, uintptr(errno), 0, 0)
	}
}
