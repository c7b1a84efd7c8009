package harness

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Processes returns the host processes of this node's sentries, blank ones
// included: their command lines have the build id. What runs guest code was
// forked from them and has it too.
func (n *Node) Processes() []int {
	var pids []int
	entries, err := os.ReadDir("/proc")
	if err != nil {
		n.T.Fatal(err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		line, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err == nil && bytes.Contains(line, []byte(n.Build)) && bytes.HasPrefix(line, []byte("ramet-sentry")) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// Sentries returns this node's sentry processes, without those that guest code
// runs in: a sentry leads its session. So does the first process of its platform while
// it is being made.
func (n *Node) Sentries() []int {
	return slices.DeleteFunc(n.Processes(), func(pid int) bool { return sessionOf(pid) != pid || IsZygote(pid) })
}

// Starved lists the threads of sentries and of their processes that have waited for a processor, while they could run,
// for longer than least.
func (n *Node) Starved(least time.Duration) (list []string) {
	for _, pid := range n.Processes() {
		threads, _ := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "task", "*", "schedstat"))
		for _, file := range threads {
			text, err := os.ReadFile(file)
			if err != nil {
				continue // it has ended
			}
			var ran, waited int64 // nanoseconds, the first two numbers as proc(5) says
			if _, err := fmt.Sscan(string(text), &ran, &waited); err == nil && time.Duration(waited) > least {
				list = append(list, fmt.Sprintf("%s: it ran for %v and waited for %v", filepath.Dir(file), time.Duration(ran), time.Duration(waited)))
			}
		}
	}
	return list
}

// IsZygote reports whether pid is the process that sentries are forks of.
func IsZygote(pid int) bool {
	log, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "fd", "1"))
	return err == nil && filepath.Base(log) == "zygote.log"
}

// sessionOf returns the session of a process, or 0 if it has ended.
func sessionOf(pid int) int {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0
	}
	// proc_pid_stat(5), behind the name in parentheses: state, parent, process
	// group, session.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	session, err := strconv.Atoi(fields[3])
	if err != nil || fields[0] == "Z" {
		return 0
	}
	return session
}

// ProcessOf returns the process id and the key of a sandbox's sentry, from its
// record, which only the node may open otherwise.
func (n *Node) ProcessOf(ref string) (pid int, key string) {
	n.T.Helper()
	s, err := n.Machine.Get(AsOwner, ref)
	if err != nil {
		n.T.Fatal(err)
	}
	db := n.records()
	defer db.Close()
	var doc []byte
	var rec struct {
		PID int
		Key string
	}
	if err = db.QueryRow("SELECT doc FROM sandboxes WHERE id = ?", s.ID).Scan(&doc); err == nil {
		err = json.Unmarshal(doc, &rec)
	}
	if err != nil || !slices.Contains(n.Sentries(), rec.PID) {
		n.T.Fatalf("record of %s names process %d (%v), the sentries are %v", ref, rec.PID, err, n.Sentries())
	}
	return rec.PID, rec.Key
}

// records opens the node's records for reading.
func (n *Node) records() *sql.DB {
	n.T.Helper()
	db, err := sql.Open("sqlite", "file:"+n.Paths.Registry()+"?mode=ro") // the node's driver
	if err != nil {
		n.T.Fatal(err)
	}
	return db
}

// Count returns how many records are in a table.
func (n *Node) Count(table string) (count int) {
	n.T.Helper()
	db := n.records()
	defer db.Close()
	if err := db.QueryRow("SELECT COUNT(*) FROM " + table).Scan(&count); err != nil {
		n.T.Fatal(err)
	}
	return count
}

// tellStuck logs what goroutines of sentries do, after a test has failed, that run, wait for guest code or a process
// that runs it, or freeze: what does not end says nothing by itself. It ends all sentries.
func (n *Node) tellStuck() {
	n.T.Helper()
	logs := map[int]*os.File{}
	var asked []int
	for _, pid := range n.Sentries() {
		log, err := os.Open(filepath.Join("/proc", strconv.Itoa(pid), "fd", "1"))
		if err != nil {
			continue // of another user
		}
		defer log.Close()
		if syscall.Kill(pid, syscall.SIGQUIT) == nil { // has the Go runtime say where it is
			logs[pid], asked = log, append(asked, pid)
		}
	}
	Eventually(n.T, "the end of the sentries", func() error {
		if asked = slices.DeleteFunc(asked, func(pid int) bool { return sessionOf(pid) == 0 }); len(asked) > 0 {
			return fmt.Errorf("%v have not ended", asked)
		}
		return nil
	})
	for pid, log := range logs {
		text, err := io.ReadAll(log)
		if err != nil {
			n.T.Log(err)
			continue
		}
		count := map[string]int{}
		for goroutine := range strings.SplitSeq(string(text), "\n\n") {
			if strings.HasPrefix(goroutine, "goroutine ") && telling.MatchString(goroutine) {
				count[shortened(goroutine)]++
			}
		}
		for goroutine, times := range count {
			n.T.Logf("sentry %d: %d times %s", pid, times, goroutine)
		}
	}
}

// telling matches goroutines that tellStuck logs.
var telling = regexp.MustCompile(`^goroutine [^\n]*\[(running|runnable|syscall)|kernel\.\(\*Task\)\.run\(|systrap\.\(\*|proc\.\(\*|guest\.\(\*Guest\)\.(Freeze|Release)`)

// shortened returns how a goroutine is, and the functions that it is in, from the last one on.
func shortened(goroutine string) string {
	const most = 12
	head, rest, _ := strings.Cut(goroutine, "\n")
	_, state, _ := strings.Cut(head, "[")
	functions := []string{"[" + state}
	for line := range strings.Lines(rest) {
		name, _, isCall := strings.Cut(strings.TrimSpace(line), "(0x")
		name = name[strings.LastIndexByte(name, '/')+1:]
		if !isCall {
			name, _, isCall = strings.Cut(name, "(...)")
		}
		if isCall && !strings.HasPrefix(line, "\t") && !strings.HasPrefix(name, "runtime.") && len(functions) <= most {
			functions = append(functions, name)
		}
	}
	return strings.Join(functions, " ")
}
