package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// fileLog returns a Log of the file at path, which is not what the test's process writes
// its messages to.
func fileLog(t *testing.T, path string, limit int64) *Log {
	t.Helper()
	l := &Log{path: path, max: limit}
	for _, std := range []**os.File{&l.stderr, &l.stdout} {
		f, err := openLog(path, limit)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		*std = f
	}
	return l
}

// readLogs returns the lines of the log that was put aside and of the log.
func readLogs(t *testing.T, path string, limit int64) []string {
	t.Helper()
	var lines []string
	for _, name := range []string{path + ".1", path} {
		b, err := os.ReadFile(name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		if int64(len(b)) > limit {
			t.Errorf("%s has %d bytes, more than %d", filepath.Base(name), len(b), limit)
		}
		lines = append(lines, strings.SplitAfter(string(b), "\n")...)
	}
	return lines
}

func inode(t *testing.T, path string) uint64 {
	t.Helper()
	var st syscall.Stat_t
	if err := syscall.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Ino
}

// TestLogsLoseNoLine has many goroutines of two daemons write to one log. In each round
// they write less than a file holds, so that all lines of the round must be found in the
// two files.
func TestLogsLoseNoLine(t *testing.T) {
	const (
		rounds, writers, linesEach = 40, 8, 50
		line                       = "round %04d writer %04d line %04d, which says a few words more\n"
		// Each daemon may have a line on the way while the other one puts the log aside.
		limit = int64(writers*linesEach+2) * int64(len(line)+3)
	)
	path := filepath.Join(t.TempDir(), "daemon.log")
	daemons := []*Log{fileLog(t, path, limit), fileLog(t, path, limit)}
	last, rotations := inode(t, path), 0
	for round := range rounds {
		var wg sync.WaitGroup
		for w := range writers {
			wg.Go(func() {
				for i := range linesEach {
					if _, err := fmt.Fprintf(daemons[w%len(daemons)], line, round, w, i); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		count := map[string]int{}
		for _, l := range readLogs(t, path, limit+int64(len(line))) {
			count[l]++
		}
		for w := range writers {
			for i := range linesEach {
				if l := fmt.Sprintf(line, round, w, i); count[l] != 1 {
					t.Fatalf("%d times in the logs: %q", count[l], l)
				}
			}
		}
		if now := inode(t, path); now != last {
			last, rotations = now, rotations+1
		}
	}
	if rotations < rounds/2 {
		t.Errorf("the log was put aside %d times: the test proves nothing", rotations)
	}
}

func TestALogHasALimit(t *testing.T) {
	const limit = 1000
	path := filepath.Join(t.TempDir(), "daemon.log")
	l := fileLog(t, path, limit)
	for i := range 500 {
		fmt.Fprintln(l, strings.Repeat("x", i%100))
		readLogs(t, path, limit)
	}
	// A line that no file has room for has one of its own.
	long := strings.Repeat("y", 2*limit) + "\n"
	fmt.Fprint(l, long)
	if b, err := os.ReadFile(path); err != nil || string(b) != long {
		t.Errorf("a long line: %d bytes, %v", len(b), err)
	}
	fmt.Fprintln(l, "short")
	if b, err := os.ReadFile(path); err != nil || string(b) != "short\n" {
		t.Errorf("the line after it: %q, %v", b, err)
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 2 {
		t.Errorf("files: %v, %v", entries, err)
	}
}

func TestALogThatSomebodyRemovedIsMadeAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "daemon.log")
	l := fileLog(t, path, 1000)
	fmt.Fprintln(l, "before")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(l, "after")
	if b, err := os.ReadFile(path); err != nil || string(b) != "after\n" {
		t.Errorf("the log: %q, %v", b, err)
	}
}

func TestALogThatCannotBePutAsideGrows(t *testing.T) {
	path := filepath.Join(t.TempDir(), "daemon.log")
	l := fileLog(t, path, 10)
	if err := os.MkdirAll(path+".1/in the way", 0o700); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := fmt.Fprintln(l, "a line of the log"); err != nil {
			t.Fatal(err)
		}
	}
	if b, err := os.ReadFile(path); err != nil || strings.Count(string(b), "a line of the log\n") != 2 {
		t.Errorf("the log: %q, %v", b, err)
	}
}

// TestTheRuntimeWritesToTheNewLog fills the log of a daemon and has the Go runtime end it.
func TestTheRuntimeWritesToTheNewLog(t *testing.T) {
	p := testPaths(t)
	useEnv(t, p)
	if err := p.MakeData(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p.Log(), make([]byte, maxLog-10), logPerm); err != nil {
		t.Fatal(err)
	}
	c, h, err := Ensure(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if fi, err := os.Stat(p.Log() + ".1"); err != nil || fi.Size() != maxLog-10 {
		t.Errorf("old log: %v, %v", fi, err)
	}
	for _, fd := range []string{"1", "2"} {
		if file, err := os.Readlink("/proc/" + strconv.Itoa(h.PID) + "/fd/" + fd); err != nil || file != p.Log() {
			t.Errorf("descriptor %s of the daemon is %s: %v", fd, file, err)
		}
	}
	if err := syscall.Kill(h.PID, syscall.SIGQUIT); err != nil {
		t.Fatal(err)
	}
	lock, err := acquire(t.Context(), p.Lock())
	if err != nil {
		t.Fatal(err)
	}
	if err := release(lock); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(p.Log())
	if err != nil || !strings.Contains(string(b), "daemon is ready") || !strings.Contains(string(b), "SIGQUIT: quit") {
		t.Errorf("new log: %v\n%s", err, b)
	}
}

// A daemon that says nothing more, or an older one, leaves a large log behind.
func TestALargeLogIsPutAsideAtTheStart(t *testing.T) {
	p := testPaths(t)
	useEnv(t, p)
	if err := p.MakeData(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p.Log(), make([]byte, maxLog+1), logPerm); err != nil {
		t.Fatal(err)
	}
	t.Setenv(envBehaviour, "crash")
	if _, _, err := Ensure(t.Context(), p); err == nil || !strings.Contains(err.Error(), "segmentation fault, so to speak") {
		t.Errorf("Ensure = %v", err)
	}
	if fi, err := os.Stat(p.Log()); err != nil || fi.Size() > 100 {
		t.Errorf("new log: %v, %v", fi, err)
	}
	if fi, err := os.Stat(p.Log() + ".1"); err != nil || fi.Size() != maxLog+1 {
		t.Errorf("old log: %v, %v", fi, err)
	}
}
