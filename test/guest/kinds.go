package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// kind makes one kind of kernel object in this process. The process keeps it, and
// check says whether it works, as often as it is called. An error of a system call
// that makes says that the kernel has no such object for this user.
type kind func() (check func() error, err error)

// allKinds returns all kinds by name.
func allKinds() map[string]kind {
	all := map[string]kind{}
	for _, some := range []map[string]kind{fileKinds(), socketKinds(), eventKinds(), systemKinds()} {
		maps.Copy(all, some)
	}
	return all
}

// kindsDir is where the processes that keep a kind of object listen.
func kindsDir() string { return fmt.Sprintf("/tmp/kinds-%d", os.Getuid()) }

// alone are the kinds that change the process that makes them, or keep something of all of
// it. Each has a process of its own.
var alone = []string{
	"all-dev", "all-proc", "all-proc-1", "all-proc-net", "all-proc-self", "all-proc-sys", "all-sys", "chroot", "key", "keyctl-join",
	"keyctl-session", "locked-memory", "membarrier", "pdeathsig", "posix-timer-event", "robust", "rseq", "sched-attr", "seccomp",
	"seccomp-listener", "signalfd", "stopped", "subreaper", "traced",
}

// together is how many other kinds share a process. A process costs more than a kind does:
// each fork starts all of them anew.
const together = 16

// processesOf divides kinds into those that share a process.
func processesOf(names []string) [][]string {
	var all [][]string
	var shared []string
	for _, name := range names {
		if slices.Contains(alone, name) {
			all = append(all, []string{name})
		} else {
			shared = append(shared, name)
		}
	}
	return slices.AppendSeq(all, slices.Chunk(shared, together))
}

// kinds makes each kind of object, or those that are named, in processes that keep them,
// and prints what came of it: "held", or the name of an error.
func kinds(args []string) (int, error) {
	if err := os.MkdirAll(kindsDir(), 0o755); err != nil {
		return 1, err
	}
	if os.Getuid() == 0 { // others come later
		if err := os.Chmod("/tmp", 0o777|os.ModeSticky); err != nil {
			return 1, err
		}
	}
	if len(args) == 0 {
		args = slices.Sorted(maps.Keys(allKinds()))
	}
	for _, names := range processesOf(args) {
		if err := startKinds(names); err != nil {
			return 1, err
		}
	}
	return 0, nil
}

// startKinds starts the process that keeps some kinds and prints what it says of each.
func startKinds(names []string) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	log, err := os.Create(filepath.Join(kindsDir(), names[0]+".log"))
	if err != nil {
		return err
	}
	defer log.Close()
	c := exec.Command("/proc/self/exe", append([]string{"kind"}, names...)...)
	c.Stdout, c.Stderr = log, log
	c.ExtraFiles = []*os.File{w}
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := c.Start(); err != nil {
		return fmt.Errorf("%s: %w", names[0], err)
	}
	w.Close()
	said := bufio.NewReader(r)
	for _, name := range names {
		line, err := said.ReadString('\n')
		if err != nil {
			said, _ := os.ReadFile(log.Name())
			return fmt.Errorf("%s: its process ended: %s", name, said)
		}
		fmt.Println(name, strings.TrimSpace(line))
	}
	return nil
}

// keepKinds is a process that keeps kinds of objects and checks them for whoever connects.
func keepKinds(names []string) (int, error) {
	unix.CloseOnExec(3) // else programs that this process starts keep it open
	ready := os.NewFile(3, "ready")
	checks := map[string]func() error{}
	var said []string // of each kind, when the process can be asked
	for _, name := range names {
		check, err := allKinds()[name]()
		var errno unix.Errno
		switch {
		case errors.As(err, &errno):
			said = append(said, unix.ErrnoName(errno))
			continue
		case err != nil:
			return 1, fmt.Errorf("%s: %w", name, err)
		}
		if err := check(); err != nil {
			return 1, fmt.Errorf("%s: at once: %w", name, err)
		}
		checks[name] = check
		said = append(said, "held")
	}
	tell := func() {
		fmt.Fprintln(ready, strings.Join(said, "\n"))
		ready.Close()
	}
	if len(checks) == 0 {
		tell()
		return 0, nil
	}
	l, err := net.Listen("unix", filepath.Join(kindsDir(), names[0]+".sock"))
	if err != nil {
		return 1, err
	}
	tell()
	for {
		c, err := l.Accept()
		if err != nil {
			return 1, err
		}
		for _, name := range slices.Sorted(maps.Keys(checks)) {
			fmt.Fprint(c, name, " ") // known even if its check hangs
			said := "works"
			if err := checks[name](); err != nil {
				said = strings.ReplaceAll(err.Error(), "\n", "; ")
			}
			fmt.Fprintln(c, said)
		}
		c.Close()
	}
}

// checkKinds asks all processes of kinds and prints what is broken.
func checkKinds([]string) (int, error) {
	sockets, err := filepath.Glob(filepath.Join(kindsDir(), "*.sock"))
	if err != nil {
		return 1, err
	}
	works, broken := 0, 0
	for _, path := range sockets {
		said, err := askKinds(path)
		for line := range strings.Lines(said) {
			if strings.HasSuffix(line, " works\n") {
				works++
			} else {
				broken++
				fmt.Println(strings.TrimSpace(line))
			}
		}
		if err != nil {
			broken++
			fmt.Println("the process of "+filepath.Base(path)+":", err)
		}
	}
	if broken > 0 {
		return 3, nil
	}
	fmt.Println(works, "work")
	return 0, nil
}

// askKinds returns what the process of some kinds says of each.
func askKinds(socket string) (string, error) {
	c, err := net.DialTimeout("unix", socket, patience)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return "", err
	}
	said, err := io.ReadAll(c)
	return string(said), err
}

// opened is the kind of a descriptor that make makes. It works if use, which may be
// nil, says so.
func opened(make func() (int, error), use func(fd int) error) kind {
	return func() (func() error, error) {
		fd, err := make()
		if err != nil {
			return nil, err
		}
		return func() error {
			var st unix.Stat_t
			if err := unix.Fstat(fd, &st); err != nil {
				return fmt.Errorf("fstat: %w", err)
			}
			if use == nil {
				return nil
			}
			return use(fd)
		}, nil
	}
}

// open is opened of a path.
func open(path string, flags int, use func(fd int) error) kind {
	return opened(func() (int, error) { return unix.Open(path, flags|unix.O_CLOEXEC, 0o600) }, use)
}

// call is opened of a plain system call.
func call(use func(fd int) error, number uintptr, args ...uintptr) kind {
	return opened(func() (int, error) { return rawCall(number, args...) }, use)
}

func rawCall(number uintptr, args ...uintptr) (int, error) {
	var a [6]uintptr
	copy(a[:], args)
	r, _, errno := unix.Syscall6(number, a[0], a[1], a[2], a[3], a[4], a[5])
	if errno != 0 {
		return 0, errno
	}
	return int(r), nil
}

// rounds numbers the checks, so that each writes something else.
var rounds int

func nextRound() string {
	rounds++
	return fmt.Sprintf("round %d of %d", rounds, os.Getpid())
}

// rewrite writes to the start of a file and reads it again.
func rewrite(fd int) error {
	text := nextRound()
	if _, err := unix.Pwrite(fd, []byte(text), 0); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return wantAt(fd, text)
}

func wantAt(fd int, text string) error {
	b := make([]byte, len(text))
	n, err := unix.Pread(fd, b, 0)
	if err != nil {
		return fmt.Errorf("read: %w", err)
	}
	if string(b[:n]) != text {
		return fmt.Errorf("it has %q, not %q", b[:n], text)
	}
	return nil
}

// pass sends text through a pair of descriptors.
func pass(from, to int) error {
	text := nextRound()
	if _, err := unix.Write(from, []byte(text)); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return wantNext(to, text)
}

// wantNext reads text, for which it waits.
func wantNext(fd int, text string) error {
	if err := awaitReadable(fd); err != nil {
		return err
	}
	b := make([]byte, 4096)
	n, err := unix.Read(fd, b)
	if err != nil {
		return fmt.Errorf("read: %w", err)
	}
	if string(b[:n]) != text {
		return fmt.Errorf("it reads %q, not %q", b[:n], text)
	}
	return nil
}

// pair is the kind of two descriptors through which text passes in both directions.
func pair(make func() (a, b int, err error)) kind {
	return func() (func() error, error) {
		a, b, err := make()
		if err != nil {
			return nil, err
		}
		return func() error { return errors.Join(pass(a, b), pass(b, a)) }, nil
	}
}

// oneWay is pair for text that passes from a to b only.
func oneWay(make func() (a, b int, err error)) kind {
	return func() (func() error, error) {
		a, b, err := make()
		if err != nil {
			return nil, err
		}
		return func() error { return pass(a, b) }, nil
	}
}

// helper starts a process that is there until it is killed.
func helper(args ...string) (*exec.Cmd, error) { return helperOf("/proc/self/exe", args...) }

func helperOf(program string, args ...string) (*exec.Cmd, error) {
	c := exec.Command(program, args...)
	return c, c.Start()
}

// lives says whether the process runs.
func lives(pid int) error {
	state, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return err
	}
	if fields := strings.Fields(string(state[strings.LastIndexByte(string(state), ')')+1:])); fields[0] == "Z" {
		return fmt.Errorf("process %d has ended", pid)
	}
	return nil
}
