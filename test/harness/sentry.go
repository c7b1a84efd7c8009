package harness

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
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

// tellFreezes logs what the goroutines of sentries that are in a freeze wait for, after a test has failed: a freeze
// that does not end says nothing by itself. It ends all sentries.
func (n *Node) tellFreezes() {
	n.T.Helper()
	var logs []*os.File
	var asked []int
	for _, pid := range n.Sentries() {
		log, err := os.Open(filepath.Join("/proc", strconv.Itoa(pid), "fd", "1"))
		if err != nil {
			continue // of another user
		}
		defer log.Close()
		if syscall.Kill(pid, syscall.SIGQUIT) == nil { // has the Go runtime say where it is
			logs, asked = append(logs, log), append(asked, pid)
		}
	}
	Eventually(n.T, "the end of the sentries", func() error {
		if asked = slices.DeleteFunc(asked, func(pid int) bool { return sessionOf(pid) == 0 }); len(asked) > 0 {
			return fmt.Errorf("%v have not ended", asked)
		}
		return nil
	})
	for _, log := range logs {
		text, err := io.ReadAll(log)
		if err != nil || !bytes.Contains(text, []byte("guest.(*Guest).Freeze(")) {
			continue
		}
		for goroutine := range strings.SplitSeq(string(text), "\n\n") {
			runs := strings.Contains(goroutine, "kernel.(*Task).run(") && !strings.Contains(goroutine, "kernel.(*Task).doStop(")
			if runs || strings.Contains(goroutine, "guest.(*") {
				n.T.Logf("in a freeze: %s", goroutine)
			}
		}
	}
}
