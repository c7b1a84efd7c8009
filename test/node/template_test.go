package node

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/observe/procfs"
	"ramet.dev/ramet/test/harness"
)

// TestTemplateDies kills the process that has loaded a frozen state for many children. Those that there are must not
// notice, and the others are made without it.
func TestTemplateDies(t *testing.T) {
	rng := harness.Seeded(t)
	n := harness.NewNode(t)
	n.Create("base")
	n.Hold("base", "-value", "zero", "-only", "heap,files,child")
	const children = 16
	killed := 0
	for range harness.Kills(t, 8, 3) {
		done, hit := make(chan struct{}), make(chan int)
		go func() {
			for {
				select {
				case <-done:
					hit <- 0
					return
				default:
				}
				for _, pid := range templates(t) {
					harness.RandomPause(rng, 40*time.Millisecond)
					if syscall.Kill(pid, syscall.SIGKILL) == nil {
						hit <- 1
						return
					}
				}
			}
		}()
		made := n.Fork("base", children)
		close(done)
		killed += <-hit
		for _, c := range made {
			n.MustHold(c.ID, "zero")
		}
		n.DestroyAllBut("base")
	}
	if killed == 0 {
		t.Error("no template was found: the test proves nothing")
	}
	if left := templates(t); len(left) > 0 {
		t.Errorf("templates are left: %v", left)
	}
}

// templates returns the templates that this process has started.
func templates(t *testing.T) (pids []int) {
	children, err := procfs.Children(os.Getpid())
	if err != nil {
		t.Error(err)
	}
	for _, pid := range children {
		if name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); string(name) == "ramet-template\n" {
			pids = append(pids, pid)
		}
	}
	return pids
}

// TestPostureOfATemplate stops a template in its work, and looks at it.
func TestPostureOfATemplate(t *testing.T) {
	n := harness.NewNode(t)
	if parent := n.Create("parent"); parent.Isolation.UserNS != api.LayerOn {
		t.Skip("this user cannot make user namespaces: there are no templates")
	}
	root := os.Getuid() == 0
	forked := make(chan error, 1)
	go func() {
		_, err := n.Machine.Fork(harness.AsOwner, "parent", api.ForkRequest{Count: 100})
		forked <- err
	}()
	pid := stopTemplate(t, forked)
	p := postureOf(t, pid)
	uid := os.Getuid()
	caps := ""
	if root {
		uid = ownUserOf(t, pid)
		caps = "00000000000001c0" // to become its sentries' users: CAP_SETGID, CAP_SETUID, CAP_SETPCAP
	}
	want := posture{
		Name: "ramet-template", User: fourTimes(uid), Groups: p.Groups, NoNewPrivs: "1", Seccomp: "2", RootReadOnly: true, Mounts: 1,
		Shared: []string{"pid"}, Limits: map[string]string{"core": "0/0", "locked memory": "0/0", "queues": "0/0"},
	}
	for _, set := range []string{"CapPrm", "CapEff"} {
		if st := statusOf(t, fmt.Sprintf("/proc/%d/status", pid)); strings.Trim(st[set], "0") != strings.Trim(caps, "0") {
			t.Errorf("%s is %s, not %s", set, st[set], caps)
		}
	}
	users := strings.Fields(string(read(t, fmt.Sprintf("/proc/%d", pid), "uid_map")))
	if most := map[bool]int{true: 1 + 100, false: 1}[root]; len(users) != 3 || users[1] != strconv.Itoa(uid) || users[2] != strconv.Itoa(most) {
		t.Errorf("its user namespace has the users %v", users)
	}
	for _, f := range p.Files {
		if strings.HasPrefix(f, "/proc") && !strings.HasSuffix(f, "/task r") {
			t.Errorf("it has %s", f)
		}
	}
	p.Caps, p.Files = "", nil
	if diff := cmp.Diff(want, p); diff != "" {
		t.Errorf("template (-want +got):\n%s", diff)
	}
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Error(err)
	}
	if err := <-forked; err != nil {
		t.Error(err)
	}
}

// stopTemplate returns a template that was stopped once it had its filter.
func stopTemplate(t *testing.T, forked <-chan error) int {
	t.Helper()
	for {
		select {
		case err := <-forked:
			t.Fatalf("no template was seen: %v", err)
		default:
		}
		for _, pid := range templates(t) {
			status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
			if err == nil && strings.Contains(string(status), "\nSeccomp_filters:\t2\n") && syscall.Kill(pid, syscall.SIGSTOP) == nil {
				return pid
			}
		}
	}
}

// TestNothingIsWrittenTogether compares the files, with or without a name, that sentries can write to, by descriptors
// and by memory: a sandbox, its children of one template, and what those are forks of have none in common.
func TestNothingIsWrittenTogether(t *testing.T) {
	n := harness.NewNode(t)
	if parent := n.Create("parent"); parent.Isolation.UserNS != api.LayerOn {
		t.Skip("this user cannot make user namespaces: there are no templates")
	}
	n.Hold("parent", "-only", "heap,files,child,memfd,shm")
	forked := make(chan error, 1)
	var children []*api.Sandbox
	go func() {
		r, err := n.Machine.Fork(harness.AsOwner, "parent", api.ForkRequest{Count: 100})
		if err == nil {
			children = n.Children(r)
		}
		forked <- err
	}()
	template := stopTemplate(t, forked)
	whose := map[string]string{}
	check := func(name string, pid int) {
		t.Helper()
		for file := range writable(t, pid) {
			if other, ok := whose[file]; ok {
				t.Errorf("%s and %s can both write to %s", name, other, file)
			}
			whose[file] = name
		}
	}
	check("the template", template)
	if err := syscall.Kill(template, syscall.SIGCONT); err != nil {
		t.Error(err)
	}
	if err := <-forked; err != nil {
		t.Fatal(err)
	}
	for _, pid := range n.Processes() {
		if harness.IsZygote(pid) {
			check("the zygote", pid)
		}
	}
	for _, ref := range []string{"parent", children[0].ID, children[1].ID, children[99].ID} {
		check(ref, sentryOf(n, ref))
	}
	if len(whose) < 12 { // memory, files and the platform's, of each
		t.Errorf("only %d files were seen: %v", len(whose), whose)
	}
}

// writable returns the regular files, and those in memory, that a process can write to.
func writable(t *testing.T, pid int) map[string]bool {
	t.Helper()
	dir, files := filepath.Join("/proc", strconv.Itoa(pid)), map[string]bool{}
	add := func(path string, st *unix.Stat_t) {
		if st.Mode&unix.S_IFMT == unix.S_IFREG {
			files[fmt.Sprintf("%d:%d %s", st.Dev, st.Ino, path)] = true
		}
	}
	for line := range strings.Lines(string(read(t, dir, "maps"))) {
		f := strings.Fields(line)
		if len(f) < 5 || f[1][1] != 'w' || f[1][3] != 's' {
			continue
		}
		var st unix.Stat_t
		if err := unix.Stat(filepath.Join(dir, "map_files", f[0]), &st); err == nil {
			add(f[len(f)-1], &st)
		} else if os.Getuid() == 0 {
			t.Errorf("%s: %v", line, err)
		}
	}
	entries, err := os.ReadDir(filepath.Join(dir, "fd"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		info, err := os.ReadFile(filepath.Join(dir, "fdinfo", e.Name()))
		path, lerr := os.Readlink(filepath.Join(dir, "fd", e.Name()))
		var st unix.Stat_t
		if err == nil && lerr == nil && strings.Contains(access(t, info), "w") && unix.Stat(filepath.Join(dir, "fd", e.Name()), &st) == nil {
			add(strings.TrimSuffix(path, " (deleted)"), &st)
		}
	}
	return files
}
