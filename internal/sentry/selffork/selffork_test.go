package selffork

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// programs are what the test binary does instead of its tests, by the variable
// asProgram: the fork of a test would go on with the test.
var programs = map[string]func() error{
	"busy":   busy,
	"spin":   spin,
	"clock":  clocks,
	"poller": pollers,
	"text":   text,
	"steps":  steps,
	"user":   user,
	"copy":   copies,
}

const asProgram = "SELFFORK_PROGRAM"

func TestMain(m *testing.M) {
	program := programs[os.Getenv(asProgram)]
	if program == nil {
		os.Exit(m.Run())
	}
	if err := program(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}

// run runs one of programs and returns what it printed.
func run(t *testing.T, program string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = append(os.Environ(), asProgram+"="+program)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v\n%s", program, err, out)
	}
	return string(out)
}

func TestForkOfBusyProgram(t *testing.T) { run(t, "busy") }

func TestChildIsPreempted(t *testing.T) { run(t, "spin") }

// TestForkInVDSO forks while threads are in the vDSO, where a register of the runtime may have another use.
func TestForkInVDSO(t *testing.T) { run(t, "clock") }

func TestPollerIsNotShared(t *testing.T) { run(t, "poller") }

func TestKeepText(t *testing.T) { run(t, "text") }

func TestSteps(t *testing.T) {
	if out := run(t, "steps"); out != "no such step\n" {
		t.Errorf("the child said %q", out)
	}
}

func TestCopy(t *testing.T) {
	if out := run(t, "copy"); out != "copy: as it should\n" {
		t.Errorf("the copies said %q", out)
	}
}

func TestChildIsAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("an ordinary user has no other users")
	}
	run(t, "user")
}

// forkers has the one of all forks of a process, by its id: a child has the parent's, too.
var forkers = map[int]*Forker{}

func forkerOf(pid int) (*Forker, error) {
	if f := forkers[pid]; f != nil {
		return f, nil
	}
	proc, err := os.OpenRoot("/proc/self")
	if err != nil {
		return nil, err
	}
	defer proc.Close()
	f, err := New(proc)
	forkers[pid] = f
	return f, err
}

// fork runs f in a child and returns how it ended.
func fork(c Child, f func() error) error {
	forker, err := forkerOf(os.Getpid())
	if err != nil {
		return err
	}
	pid, err := forker.Fork(c)
	if err != nil {
		return err
	}
	if pid == 0 {
		if err := f(); err != nil {
			fmt.Println("child:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	var ws unix.WaitStatus
	if _, err := unix.Wait4(pid, &ws, 0, nil); err != nil {
		return err
	}
	if ws != 0 {
		return fmt.Errorf("child: exit status %d, signal %v", ws.ExitStatus(), ws.Signal())
	}
	return nil
}

// busy forks a program of which all threads do something.
func busy() error {
	var rounds [8]atomic.Int64
	for i := range rounds {
		go func() {
			for garbage := [][]byte(nil); ; rounds[i].Add(1) {
				if garbage = append(garbage, make([]byte, 1000)); len(garbage) == 1000 {
					garbage = nil
					<-time.After(time.Millisecond)
				}
			}
		}()
	}
	blocked, _, err := os.Pipe()
	if err != nil {
		return err
	}
	go func() { _, _ = syscall.Read(int(blocked.Fd()), make([]byte, 1)) }() // a thread that is in the kernel
	// alive is true of a program of which every part works.
	alive := func() error {
		for i := range rounds {
			for before := rounds[i].Load(); rounds[i].Load() == before; {
				<-time.After(time.Millisecond) // a timer, and a thread that wakes
			}
		}
		runtime.GC()
		// This one signals each thread by the id that the runtime knows.
		if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0); errno != 0 {
			return errno
		}
		return echo()
	}
	for range 25 {
		err := fork(Child{}, func() error {
			// A fork of a fork.
			return errors.Join(alive(), fork(Child{}, alive))
		})
		if err := errors.Join(err, alive()); err != nil {
			return err
		}
	}
	return nil
}

// spin forks while threads are being told to stop, and has the child run a loop that
// stops for nothing else.
func spin() error {
	go func() {
		for {
			runtime.GC()
		}
	}()
	for range 30 {
		err := fork(Child{}, func() error {
			var collected atomic.Bool
			go func() {
				runtime.GC()
				collected.Store(true)
			}()
			for !collected.Load() {
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// clocks forks while threads ask for the time, which they do without a system call.
func clocks() error {
	var asked [2]atomic.Int64
	for i := range asked {
		go func() {
			for time.Now().Unix() > 0 {
				if asked[i].Add(1)%1000 == 0 {
					runtime.Gosched()
				}
			}
		}()
	}
	alive := func() error {
		for i := range asked {
			for before := asked[i].Load(); asked[i].Load() == before; {
				runtime.Gosched()
			}
		}
		return nil
	}
	for range 15 {
		if err := errors.Join(alive(), fork(Child{}, alive)); err != nil {
			return err
		}
	}
	return nil
}

// echo waits for a pipe, in the poller.
func echo() error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	go func() {
		<-time.After(time.Millisecond)
		w.Write([]byte("hello"))
		w.Close()
	}()
	if b, err := io.ReadAll(r); err != nil || string(b) != "hello" {
		return fmt.Errorf("read %q, %w", b, err)
	}
	return nil
}

// pollers forks a program that waits for a pipe, which parent and child have both
// open: what either registers, the other's poller must not have.
func pollers() error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer w.Close()
	read := make(chan error)
	go func() {
		_, err := io.ReadFull(r, make([]byte, 1))
		read <- err
	}()
	if err := echo(); err != nil { // the poller runs
		return err
	}
	before, err := targets()
	if err != nil {
		return err
	}
	if len(before) < 3 { // its eventfd, and both ends of the pipe
		return fmt.Errorf("the poller has %d targets: the test proves nothing", len(before))
	}
	err = fork(Child{}, func() error {
		after, err := targets()
		if err != nil || !slices.Equal(before, after) {
			return fmt.Errorf("the poller had %v, and %v in the child (%w)", before, after, err)
		}
		if _, _, err := os.Pipe(); err != nil {
			return err
		}
		if more, err := targets(); err != nil || len(more) != len(before)+2 {
			return fmt.Errorf("with one more pipe the poller has %d targets, not %d (%w)", len(more), len(before)+2, err)
		}
		return nil // the parent waits for the same pipe, and might read what is written here
	})
	if err != nil {
		return err
	}
	after, err := targets()
	if err != nil || !slices.Equal(before, after) {
		return fmt.Errorf("the poller had %v, and %v after a child's pipe (%w)", before, after, err)
	}
	if _, err := w.Write([]byte("x")); err != nil {
		return err
	}
	return <-read
}

func targets() ([]target, error) {
	proc, err := os.OpenRoot("/proc/self")
	if err != nil {
		return nil, err
	}
	defer proc.Close()
	found, err := findPollers(proc)
	if err != nil || len(found) != 1 {
		return nil, fmt.Errorf("%d pollers, %w", len(found), err)
	}
	slices.SortFunc(found[0].targets, func(a, b target) int { return a.fd - b.fd })
	return found[0].targets, nil
}

// text forks a program whose text is in memory: both must still run, and panic, which
// reads tables that were moved.
func text() error {
	if err := KeepText(); err != nil {
		return err
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return err
	}
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(maps)) {
		if strings.HasSuffix(line, exe+"\n") && !strings.Contains(line, " rw-p ") {
			return fmt.Errorf("still of the file: %s", line)
		}
	}
	works := func() (err error) {
		defer func() {
			if r := recover(); r == nil {
				err = errors.New("no panic")
			}
		}()
		runtime.GC()
		var nothing []int
		fmt.Println(nothing[len(os.Args)])
		return nil
	}
	return errors.Join(fork(Child{}, works), works())
}

// steps forks with steps that work, one that fails and may, and one that fails.
func steps() error {
	works := Step{What: "umask", Call: unix.SYS_UMASK, Args: [5]uintptr{0o27}}
	tolerated := Step{What: "tolerated", Call: unix.SYS_CLOSE, Args: [5]uintptr{1 << 20}, Tolerated: unix.EBADF}
	err := fork(Child{Steps: []Step{works, tolerated}}, func() error {
		if mask := unix.Umask(0); mask != 0o27 {
			return fmt.Errorf("the mask is %o", mask)
		}
		return nil
	})
	if err != nil {
		return err
	}
	fails := Step{What: "no such step", Call: unix.SYS_CLOSE, Args: [5]uintptr{1 << 20}}
	err = fork(Child{Steps: []Step{works, fails}}, func() error { return errors.New("it lives") })
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("exit status %d,", int(unix.EBADF))) {
		return fmt.Errorf("the child: %w", err)
	}
	return nil
}

// user forks children of other users, in new user namespaces and in its own. Another
// thread than the one that forked must be the user, too.
func user() error {
	// is compares users, groups and whether others of the same user may trace this process.
	is := func(want, overflow int) error {
		for range 20 {
			errs := make(chan error)
			go func() {
				var r, e, s, gr, ge, gs int
				r, e, s = unix.Getresuid()
				gr, ge, gs = unix.Getresgid()
				if got, all := []int{r, e, s, gr, ge, gs}, slices.Repeat([]int{overflow}, 6); !slices.Equal(got, all) {
					errs <- fmt.Errorf("users and groups are %v, not all %d", got, overflow)
					return
				}
				d, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
				if d != 1 {
					err = fmt.Errorf("it is dumpable: %d, %w", d, err)
				}
				errs <- err
			}()
			if err := <-errs; err != nil {
				return fmt.Errorf("user %d: %w", want, err)
			}
		}
		return nil
	}
	for i := range 20 {
		id := 0x70000000 + i
		own := fork(Child{User: uintptr(id)}, func() error {
			// It has the parent's capabilities, so it can fork another user itself.
			return errors.Join(is(id, id), fork(Child{User: uintptr(id + 100)}, func() error { return is(id+100, id+100) }))
		})
		// Its parent sees it as what it is; it has no names for users.
		r, w, err := os.Pipe()
		if err != nil {
			return err
		}
		forker, err := forkerOf(os.Getpid())
		if err != nil {
			return err
		}
		pid, err := forker.Fork(Child{User: uintptr(id), Flags: unix.CLONE_NEWUSER})
		if err != nil {
			return err
		}
		if pid == 0 {
			w.Close()
			err := is(id, 65534)
			_, _ = syscall.Read(int(r.Fd()), make([]byte, 1)) // until the parent has looked
			if err != nil {
				fmt.Println("child:", err)
				os.Exit(1)
			}
			os.Exit(0)
		}
		var st unix.Stat_t
		err = unix.Stat(fmt.Sprintf("/proc/%d", pid), &st)
		if err == nil && (int(st.Uid) != id || int(st.Gid) != id) {
			err = fmt.Errorf("the child in a namespace is user %d of group %d, not %d", st.Uid, st.Gid, id)
		}
		r.Close()
		w.Close()
		var ws unix.WaitStatus
		if _, werr := unix.Wait4(pid, &ws, 0, nil); werr != nil || ws != 0 {
			err = errors.Join(err, fmt.Errorf("child in a namespace: status %d (%w)", ws, werr))
		}
		if err := errors.Join(own, err, is(0, 0)); err != nil {
			return err
		}
	}
	bits, err := unix.PrctlRetInt(unix.PR_GET_SECUREBITS, 0, 0, 0, 0)
	if bits != 0 {
		err = fmt.Errorf("the secure bits are %#x (%w)", bits, err)
	}
	return err
}

// copies makes copies of a program of which all threads do something, and that goes on.
func copies() error {
	debug.SetGCPercent(-1)
	var rounds [8]atomic.Int64
	for i := range rounds {
		go func() {
			for {
				rounds[i].Add(1)
				if i%2 == 0 {
					<-time.After(time.Millisecond)
				}
				runtime.Gosched() // nothing in a copy preempts it
			}
		}()
	}
	forker, err := forkerOf(os.Getpid())
	if err != nil {
		return err
	}
	forker.Close()
	result, err := unix.MemfdCreate("result", 0)
	if err != nil {
		return err
	}
	others, _, err := os.Pipe() // which a copy does not have
	if err != nil {
		return err
	}
	value := 0
	for n := range 50 {
		value = n
		c, err := forker.Copy([]int{result}, func(say func()) error {
			made := make(chan int)
			go func() { made <- value * 2 }() // another goroutine, in the same thread
			twice := <-made
			for range 1000 { // memory
				_ = make([]byte, 10_000)
			}
			say()
			if _, err := unix.FcntlInt(others.Fd(), unix.F_GETFD, 0); err != unix.EBADF {
				return fmt.Errorf("a descriptor that is not to be kept: %w", err)
			}
			_, err := unix.Pwrite(result, []byte{byte(twice)}, 0)
			return err
		})
		if err != nil {
			return err
		}
		value = -1
		if err := c.Said(10 * time.Second); err != nil {
			return errors.Join(err, c.End(0))
		}
		if err := c.End(10 * time.Second); err != nil {
			return err
		}
		var b [1]byte
		if _, err := unix.Pread(result, b[:], 0); err != nil || int(b[0]) != n*2 {
			return fmt.Errorf("copy %d wrote %d, %w", n, b[0], err)
		}
	}
	fails, err := forker.Copy(nil, func(func()) error { return errors.New("as it should") })
	if err != nil {
		return err
	}
	if said := fails.Said(10 * time.Second); said == nil {
		return errors.New("a copy that failed said something")
	}
	if err := fails.End(10 * time.Second); err == nil || !strings.Contains(err.Error(), "status") {
		return fmt.Errorf("the end of a copy that failed: %w", err)
	}
	stuck, err := forker.Copy(nil, func(func()) error { <-make(chan int); return nil })
	if err != nil {
		return err
	}
	if err := stuck.End(50 * time.Millisecond); !errors.Is(err, errLate) {
		return fmt.Errorf("the end of a copy that waits for nothing: %w", err)
	}
	for i := range rounds {
		for before := rounds[i].Load(); rounds[i].Load() == before; {
			<-time.After(time.Millisecond)
		}
	}
	return nil
}
