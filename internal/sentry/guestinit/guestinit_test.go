package guestinit

import (
	"bytes"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/polltest"
)

// helperEnv makes this test binary start a family and then become the program
// under test, whose path is the variable's value.
const helperEnv = "RAMET_TEST_BECOME_INIT"

// families is the number of parents, each with one child. The children of dead
// parents are orphans.
const families = 20

func TestMain(m *testing.M) {
	if path := os.Getenv(helperEnv); path != "" {
		fmt.Fprintln(os.Stderr, becomeInit(path))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// becomeInit starts the families and executes path in its own place. Parents
// live until file descriptor 3 is at its end, their children until 4 is.
func becomeInit(path string) error {
	if os.Getpid() != 1 {
		// Orphans come to us as they would to pid 1. The setting survives exec.
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("become subreaper: %w", err)
		}
	}
	parentsEnd, childrenEnd := os.NewFile(3, "parents"), os.NewFile(4, "children")
	for range families {
		cmd := exec.Command("sh", "-c", "(read x <&4) & read x <&3")
		cmd.ExtraFiles = []*os.File{parentsEnd, childrenEnd}
		if err := cmd.Start(); err != nil {
			return err
		}
	}
	return syscall.Exec(path, []string{"init"}, nil)
}

func TestELFIsOneReadExecuteSegment(t *testing.T) {
	b := ELF()
	f, err := elf.NewFile(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	if f.Type != elf.ET_EXEC || f.Machine != machine || f.Class != elf.ELFCLASS64 || len(f.Sections) != 0 {
		t.Errorf("header %+v", f.FileHeader)
	}
	if len(f.Progs) != 1 {
		t.Fatalf("%d segments", len(f.Progs))
	}
	want := elf.ProgHeader{
		Type: elf.PT_LOAD, Flags: elf.PF_R | elf.PF_X, Vaddr: loadAddress, Paddr: loadAddress,
		Filesz: uint64(len(b)), Memsz: uint64(len(b)), Align: pageSize,
	}
	if got := f.Progs[0].ProgHeader; got != want {
		t.Errorf("segment %+v, want %+v", got, want)
	}
	if f.Entry != loadAddress+120 || len(b) > pageSize {
		t.Errorf("entry %#x, size %d", f.Entry, len(b))
	}
}

// TestProgramBytes was checked by hand against the instruction tables: a change
// of the encoder must not go unseen.
func TestProgramBytes(t *testing.T) {
	want := strings.Join(strings.Fields(programBytes), "")
	if got := hex.EncodeToString(program()); got != want {
		t.Errorf("program is\n%s, want\n%s", got, want)
	}
}

func TestReapsAsSubreaper(t *testing.T) {
	testReaps(t, &syscall.SysProcAttr{})
}

func TestReapsAsPid1(t *testing.T) {
	attr := &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID}
	if os.Geteuid() != 0 {
		attr.Cloneflags |= unix.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
	}
	probe := exec.Command("true")
	probe.SysProcAttr = attr
	if err := probe.Run(); err != nil {
		t.Skipf("no pid namespace to be had: %v", err)
	}
	testReaps(t, attr)
}

func testReaps(t *testing.T, attr *syscall.SysProcAttr) {
	path := filepath.Join(t.TempDir(), "init")
	if err := os.WriteFile(path, ELF(), 0o755); err != nil {
		t.Fatal(err)
	}
	parentsR, parentsW := pipe(t)
	childrenR, childrenW := pipe(t)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), helperEnv+"="+path)
	cmd.ExtraFiles = []*os.File{parentsR, childrenR}
	cmd.SysProcAttr = attr
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	t.Cleanup(func() {
		parentsW.Close()
		childrenW.Close()
		cmd.Process.Kill()
		select {
		case <-done: // its result is our kill
		case <-time.After(10 * time.Second):
			t.Error("init does not die of SIGKILL")
		}
	})

	polltest.Eventually(t, 20*time.Second, "the families to be there", func() bool {
		exe, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		kids := childrenOf(t, pid)
		return exe == path && len(kids) == families && allHaveChildren(t, kids)
	})
	parentsW.Close()
	polltest.Eventually(t, 20*time.Second, "the parents to be reaped and the orphans adopted", func() bool {
		kids := childrenOf(t, pid)
		return len(kids) == families && !allHaveChildren(t, kids)
	})
	childrenW.Close()
	polltest.Eventually(t, 20*time.Second, "the orphans to be reaped", func() bool { return len(childrenOf(t, pid)) == 0 })
	polltest.Eventually(t, 20*time.Second, "init to sleep", func() bool { return statOf(pid).state == "S" })
	before := statOf(pid)
	select {
	case err := <-done:
		t.Fatalf("init ended: %v, %s", err, stderr.String())
	default:
	}
	if before.pages > 4 { // text, stack, and the vdso's pages if they count
		t.Errorf("init has %d resident pages", before.pages)
	}
	if before.ticks > 50*polltest.Slow() { // those that made the families count, too, and a loop would take all
		t.Errorf("init used %d ticks of processor time", before.ticks)
	}
}

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

type stat struct {
	state string // Z is a zombie
	ppid  int
	ticks int // user and system time
	pages int // resident
}

// statOf returns the zero stat for a process that does not exist.
func statOf(pid int) stat {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return stat{}
	}
	_, after, _ := strings.Cut(string(b), ") ") // the name in () may hold spaces
	f := strings.Fields(after)                  // f[0] is field 3 of proc(5)
	n := func(field int) int { v, _ := strconv.Atoi(f[field-3]); return v }
	return stat{state: f[0], ppid: n(4), ticks: n(14) + n(15), pages: n(24)}
}

func childrenOf(t *testing.T, pid int) []int {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	var out []int
	for _, e := range entries {
		child, err := strconv.Atoi(e.Name())
		if errors.Is(err, strconv.ErrSyntax) {
			continue
		}
		if statOf(child).ppid == pid {
			out = append(out, child)
		}
	}
	return out
}

func allHaveChildren(t *testing.T, pids []int) bool {
	t.Helper()
	parents := map[int]bool{}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			parents[statOf(pid).ppid] = true
		}
	}
	for _, pid := range pids {
		if !parents[pid] {
			return false
		}
	}
	return true
}
