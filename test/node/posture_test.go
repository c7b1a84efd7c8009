package node

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/test/harness"
)

// posture is how a process is confined, as the host sees it.
type posture struct {
	Name         string
	User, Groups string
	Caps         string // all but the bounding set, of all threads
	NoNewPrivs   string
	Seccomp      string
	Shared       []string // namespaces that are this process's too
	Root         []string // what is in the root directory
	RootReadOnly bool
	Mounts       int
	Files        []string // kinds of open descriptors
	Limits       map[string]string
	Environment  string
}

// sentryFiles are the descriptors that a sentry may have, by what they are and
// how they are open.
var sentryFiles = []struct{ target, kind string }{
	{`^/dev/null r$`, "null"},
	{`^.*/sandboxes/OWN\.log w$`, "own log"},
	{`^/memfd:ramet:OWN rw$`, "own memory"},
	{`^/memfd:ramet:pool_[0-9a-f]{16} r$`, "memory of an ancestor"},
	{`^.*/files/#[0-9]+ rw$`, "own files"},
	{`^.*/files/#[0-9]+ r$`, "files of an ancestor"},
	{`^.*/snapshots/snap_[a-z2-7]{16}/files r$`, "files of a snapshot"},
	{`^/memfd:systrap-memory rw$`, "gVisor: shared with stubs"},
	{`^.*/images/blobs/[0-9a-f]{64}\.erofs r$`, "image"},
	{`^.*/snapshots/snap_[a-z2-7]{16}/memory r$`, "memory of a snapshot"},
	{`^socket:\[[0-9]+\] rw$`, "control socket"},
	{`^anon_inode:\[event(poll|fd)\] rw$`, "events"},
	{`^anon_inode:seccomp notify rw$`, "gVisor: system calls of stubs"},
}

// fileKinds returns the kinds of descriptors of a process, each once, and what
// cannot be classified in full.
func fileKinds(t *testing.T, pid int) []string {
	t.Helper()
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	entries, err := os.ReadDir(filepath.Join(dir, "fd"))
	if err != nil {
		t.Fatal(err)
	}
	own := ownKey(t, pid)
	var kinds []string
	for _, e := range entries {
		target, err := os.Readlink(filepath.Join(dir, "fd", e.Name()))
		if err != nil {
			continue // closed meanwhile
		}
		info, err := os.ReadFile(filepath.Join(dir, "fdinfo", e.Name()))
		if err != nil {
			continue
		}
		what := strings.TrimSuffix(target, " (deleted)")
		if own != "" {
			what = strings.Replace(what, own, "OWN", 1)
		}
		what += " " + access(t, info)
		kind := what
		for _, f := range sentryFiles {
			if regexp.MustCompile(f.target).MatchString(what) {
				kind = f.kind
				break
			}
		}
		kinds = append(kinds, kind)
	}
	slices.Sort(kinds)
	return slices.Compact(kinds)
}

// ownKey returns the key of a sentry, which is the name of its log.
func ownKey(t *testing.T, pid int) string {
	t.Helper()
	log, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/1", pid))
	if err != nil {
		return "" // a stub
	}
	return strings.TrimSuffix(filepath.Base(log), ".log")
}

// access returns r, w or rw for what proc_pid_fdinfo(5) says.
func access(t *testing.T, info []byte) string {
	t.Helper()
	for line := range strings.Lines(string(info)) {
		if rest, ok := strings.CutPrefix(line, "flags:"); ok {
			flags, err := strconv.ParseUint(strings.TrimSpace(rest), 8, 64)
			if err != nil {
				t.Fatal(err)
			}
			return []string{"r", "w", "rw", "none"}[flags&unix.O_ACCMODE]
		}
	}
	return "unknown"
}

// statusOf returns fields of proc_pid_status(5).
func statusOf(t testing.TB, path string) map[string]string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	fields := map[string]string{}
	for line := range strings.Lines(string(b)) {
		k, v, _ := strings.Cut(line, ":")
		fields[k] = strings.Join(strings.Fields(v), " ")
	}
	return fields
}

// capsOf returns the capability sets of all threads of a process that are not
// empty. The bounding set is left out: without execve, which the filter refuses,
// it gives nothing to anybody.
func capsOf(t *testing.T, dir string) string {
	t.Helper()
	tasks, err := filepath.Glob(filepath.Join(dir, "task", "*", "status"))
	if err != nil || len(tasks) == 0 {
		t.Fatalf("%s has no threads (%v)", dir, err)
	}
	var found []string
	for _, task := range tasks {
		st := statusOf(t, task)
		for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapAmb"} {
			if strings.Trim(st[set], "0") != "" || st[set] == "" {
				found = append(found, task+" "+set+"="+st[set])
			}
		}
		// One is of the zygote, and is none that confines.
		filters, err := strconv.Atoi(st["Seccomp_filters"])
		if st["NoNewPrivs"] != "1" || st["Seccomp"] != "2" || err == nil && filters < 2 { // hosts before 5.9 do not count them
			found = append(found, task+" without filter")
		}
	}
	return strings.Join(found, ", ")
}

var limitLine = regexp.MustCompile(`^(Max .*?)\s{2,}(\S+)\s+(\S+)`)

func postureOf(t *testing.T, pid int) posture {
	t.Helper()
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	st := statusOf(t, filepath.Join(dir, "status"))
	p := posture{
		Name: st["Name"], User: st["Uid"], Groups: st["Groups"], Caps: capsOf(t, dir), NoNewPrivs: st["NoNewPrivs"], Seccomp: st["Seccomp"],
		Files: fileKinds(t, pid), Limits: map[string]string{},
	}
	for _, ns := range []string{"user", "mnt", "pid", "ipc", "uts", "net"} {
		theirs, err := os.Readlink(filepath.Join(dir, "ns", ns))
		if err != nil {
			t.Fatal(err)
		}
		ours, err := os.Readlink("/proc/self/ns/" + ns)
		if err != nil {
			t.Fatal(err)
		}
		if theirs == ours {
			p.Shared = append(p.Shared, ns)
		}
	}
	entries, err := os.ReadDir(filepath.Join(dir, "root"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		p.Root = append(p.Root, e.Name())
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(filepath.Join(dir, "root"), &fs); err != nil {
		t.Fatal(err)
	}
	p.RootReadOnly = fs.Flags&unix.ST_RDONLY != 0
	p.Mounts = bytes.Count(read(t, dir, "mountinfo"), []byte("\n"))
	for line := range strings.Lines(string(read(t, dir, "limits"))) {
		if m := limitLine.FindStringSubmatch(line); m != nil {
			p.Limits[m[1]] = m[2] + "/" + m[3]
		}
	}
	for _, kv := range strings.Split(string(read(t, dir, "environ")), "\x00") {
		// The Go runtime is told how to behave; nothing of ours may be there.
		if k, _, _ := strings.Cut(kv, "="); k != "" && k != "GOMAXPROCS" && k != "GODEBUG" {
			p.Environment += kv + " "
		}
	}
	p.Limits = map[string]string{
		"core": p.Limits["Max core file size"], "locked memory": p.Limits["Max locked memory"], "queues": p.Limits["Max msgqueue size"],
	}
	return p
}

func read(t *testing.T, dir, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// childrenOf returns the processes that a sentry started: those that guest code
// runs in.
func childrenOf(t *testing.T, pid int) []int {
	t.Helper()
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, l := range lists {
		b, err := os.ReadFile(l)
		if errors.Is(err, os.ErrNotExist) {
			continue // the thread has ended
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range strings.Fields(string(b)) {
			child, err := strconv.Atoi(f)
			if err != nil {
				t.Fatal(err)
			}
			pids = append(pids, child)
		}
	}
	return pids
}

// TestPosture looks at sentries of every origin, and at the processes that run
// guest code, from the outside.
func TestPosture(t *testing.T) {
	// A descriptor that is not closed on exec, as whoever starts a daemon may
	// leave to it.
	leak, err := unix.Open("/etc/passwd", unix.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(leak)
	t.Setenv("RAMET_TEST_SECRET", "must not be passed on")
	ctx := harness.AsOwner
	n := harness.NewNode(t)
	created := n.Create("created")
	n.Hold("created")
	n.Fork("created", 1)
	r, err := n.Machine.Fork(ctx, "created", api.ForkRequest{Names: []string{"forked"}})
	if err != nil {
		t.Fatal(err)
	}
	n.Children(r)
	many := n.Fork("created", 16)
	oneOfMany := many[7].ID
	for _, c := range many {
		if c.ID != oneOfMany { // all of them together have no time for anything else
			n.Destroy(c.ID)
		}
	}
	if _, err := n.Machine.Snapshot(ctx, "forked", api.SnapshotRequest{Name: "disk"}); err != nil {
		t.Fatal(err)
	}
	if r, err = n.Machine.Restore(ctx, "disk", api.RestoreRequest{Names: []string{"restored"}}); err != nil {
		t.Fatal(err)
	}
	n.Children(r)
	if created.Isolation.UserNS != api.LayerOn {
		t.Skip("this user cannot make user namespaces: ramet says so, and confines with the rest")
	}
	root := os.Getuid() == 0
	common := posture{
		Name: "ramet-sentry", NoNewPrivs: "1", Seccomp: "2", RootReadOnly: true, Mounts: 1,
		Limits: map[string]string{"core": "0/0", "locked memory": "0/0", "queues": "0/0"},
	}
	if !root {
		common.Groups = statusOf(t, "/proc/self/status")["Groups"] // only root can give them up
	}
	all := []string{"null", "own log", "own memory", "own files", "gVisor: shared with stubs", "control socket", "events"}
	used := append(slices.Clone(all), "image", "gVisor: system calls of stubs")
	for name, want := range map[string]struct {
		pid   int
		files []string
	}{
		"created":  {sentryOf(n, "created"), used},
		"forked":   {sentryOf(n, "forked"), append(slices.Clone(used), "memory of an ancestor", "files of an ancestor")},
		oneOfMany:  {sentryOf(n, oneOfMany), append(slices.Clone(used), "memory of an ancestor", "files of an ancestor")},
		"restored": {sentryOf(n, "restored"), append(slices.Clone(used), "memory of a snapshot", "files of a snapshot")},
	} {
		t.Run(name, func(t *testing.T) {
			n.MustHold(name, "start")
			p := common
			uid := os.Getuid()
			if root {
				uid = ownUserOf(t, want.pid)
			}
			p.User = fourTimes(uid)
			p.Files = slices.Sorted(slices.Values(want.files))
			if diff := cmp.Diff(p, postureOf(t, want.pid)); diff != "" {
				t.Errorf("sentry (-want +got):\n%s", diff)
			}
			stubs := childrenOf(t, want.pid)
			if len(stubs) == 0 {
				t.Error("no process runs guest code")
			}
			for _, stub := range stubs {
				got := postureOf(t, stub)
				for _, f := range got.Files {
					if !slices.Contains(p.Files, f) {
						t.Errorf("stub %d has %s open", stub, f)
					}
				}
				got.Files, got.Environment = p.Files, ""
				if diff := cmp.Diff(p, got); diff != "" {
					t.Errorf("stub %d (-want +got):\n%s", stub, diff)
				}
			}
		})
	}
	t.Run("reported", func(t *testing.T) {
		on := api.LayerOn
		want := api.Isolation{
			Sentry: on, Systrap: on, Seccomp: on, NoNewPrivs: on, Caps: on, UserNS: on, Namespaces: on, EmptyRoot: on, Landlock: on, Rlimits: on,
			OwnUser: api.LayerOff, Cgroup: created.Isolation.Cgroup, CgroupKind: created.Isolation.CgroupKind,
		}
		if root {
			want.OwnUser = on
		}
		if diff := cmp.Diff(want, created.Isolation); diff != "" {
			t.Errorf("isolation (-want +got):\n%s", diff)
		}
		if inGroup := len(n.Groups()) > 0; inGroup != (want.Cgroup == on) {
			t.Errorf("cgroup is reported %s, but there are groups: %v", want.Cgroup, inGroup)
		}
	})
}

// fourTimes is how the status of a process shows a user or group that it is in every respect.
func fourTimes(id int) string {
	return strings.TrimSpace(strings.Repeat(strconv.Itoa(id)+" ", 4))
}

// ownUserOf returns the user of a sentry, which must be its group as well, and a user that
// nothing else of the host is but its stubs.
func ownUserOf(t *testing.T, sentry int) int {
	t.Helper()
	status := statusOf(t, fmt.Sprintf("/proc/%d/status", sentry))
	uid, err := strconv.Atoi(strings.Fields(status["Uid"])[0])
	if err != nil || uid < 0x70000000 || status["Uid"] != fourTimes(uid) || status["Gid"] != fourTimes(uid) {
		t.Fatalf("sentry %d runs as the users %s and groups %s: not one of its own", sentry, status["Uid"], status["Gid"])
	}
	namespace := func(pid string) (string, error) { return os.Readlink(filepath.Join("/proc", pid, "ns/pid")) }
	own, err := namespace(strconv.Itoa(sentry)) // which its stubs are in, too
	if err != nil {
		t.Fatal(err)
	}
	paths, err := filepath.Glob("/proc/[0-9]*/status")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		pid := filepath.Base(filepath.Dir(path))
		its, nerr := namespace(pid)
		text, err := os.ReadFile(path)
		if its == own || err != nil || nerr != nil {
			continue // what ended is no other
		}
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); (f[0] == "Uid:" || f[0] == "Gid:") && slices.Contains(f, strconv.Itoa(uid)) {
				t.Errorf("process %s runs as sentry %d does: %s", pid, sentry, strings.TrimSpace(line))
			}
		}
	}
	return uid
}

// TestOwnUsers has sandboxes of every origin and of two daemons, one after the other. Each
// must be a user of its own, and whoever is another one must not be able to end it.
func TestOwnUsers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("the sandboxes of an ordinary user are that user")
	}
	n := harness.NewNode(t)
	n.Create("a")
	n.Create("b")
	n.ForkNamed("a", "child")
	users := map[int]string{}
	check := func(ref string) {
		t.Helper()
		sentry := sentryOf(n, ref)
		uid := ownUserOf(t, sentry)
		if other := users[uid]; other != "" && other != ref {
			t.Errorf("%s and %s are the same user %d", ref, other, uid)
		}
		users[uid] = ref
		for _, other := range []int{65534, userOf(n, "a") + 1000, uid &^ 0xffff} {
			for _, pid := range append(childrenOf(t, sentry), sentry) {
				kill := exec.CommandContext(t.Context(), "/bin/sh", "-c", fmt.Sprintf("kill -0 %d", pid))
				kill.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(other), Gid: uint32(other)}}
				if out, err := kill.CombinedOutput(); err == nil || !strings.Contains(string(out), "not permitted") {
					t.Errorf("user %d can signal process %d of %s: %v %s", other, pid, ref, err, out)
				}
			}
		}
	}
	many := n.Fork("a", 16)
	for _, ref := range []string{"a", "b", "child", many[0].ID, many[15].ID} {
		check(ref)
	}
	before := userOf(n, "a")
	n.Reopen()
	n.Create("c")
	n.ForkNamed("a", "grandchild")
	n.ForkNamed("child", "cousin")
	for _, ref := range []string{"a", "b", "child", "c", "grandchild", "cousin"} {
		check(ref)
	}
	if got := userOf(n, "a"); got != before {
		t.Errorf("a sandbox that was adopted is user %d, and was %d", got, before)
	}
}

// userOf returns the user that a sandbox's sentry is.
func userOf(n *harness.Node, ref string) int {
	n.T.Helper()
	status := statusOf(n.T, fmt.Sprintf("/proc/%d/status", sentryOf(n, ref)))
	uid, err := strconv.Atoi(strings.Fields(status["Uid"])[0])
	if err != nil {
		n.T.Fatal(err)
	}
	return uid
}

// TestCPUIDIsTheCPUs has a guest ask what gVisor would not answer if it were asked: that
// costs a switch to the sentry each time, and a program that starts asks some seventy times.
func TestCPUIDIsTheCPUs(t *testing.T) {
	want, err := exec.CommandContext(t.Context(), filepath.Join(harness.Assets, "guest"), "cpuid").Output()
	if err != nil {
		t.Fatal(err)
	}
	if len(want) == 0 {
		t.Skip("this processor says nothing that gVisor would not")
	}
	n := harness.NewNode(t)
	n.Create("base")
	n.ForkNamed("base", "child")
	for _, ref := range []string{"base", "child"} {
		if got := n.Guest(ref, "cpuid"); got != string(want) {
			t.Errorf("%s: CPUID says\n%son the host\n%s", ref, got, want)
		}
	}
}

// TestPointersAreNotSigned has a guest of arm64 sign pointers: what is signed with the keys of one daemon's processes
// would be of no use in a sandbox that another one restores.
func TestPointersAreNotSigned(t *testing.T) {
	n := harness.NewNode(t)
	n.Create("base")
	n.ForkNamed("base", "child")
	for _, ref := range []string{"base", "child"} {
		if got := n.Guest(ref, "pointers"); got != "not signed\n" {
			t.Errorf("%s: pointers are %s", ref, got)
		}
	}
}

// TestTimersAreExact checks that a sandbox that runs for a while has timers as exact as
// Linux has them: while it starts they are late, as those of the daemon may be always.
func TestTimersAreExact(t *testing.T) {
	n := harness.NewNode(t)
	n.Create("box")
	pid := sentryOf(n, "box")
	harness.Eventually(t, "timer slack", func() error {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
		if err != nil || len(threads) == 0 {
			return fmt.Errorf("it has no threads: %v", err)
		}
		for _, thread := range threads {
			slack, err := os.ReadFile(filepath.Join("/proc", filepath.Base(thread), "timerslack_ns"))
			if err != nil {
				return err
			}
			if got := string(slack); got != "50000\n" {
				return fmt.Errorf("thread %s: %q ns", filepath.Base(thread), got)
			}
		}
		return nil
	})
}
