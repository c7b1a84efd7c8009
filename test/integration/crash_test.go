package integration

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/image"
)

// crashRounds is how often each kind of process is killed.
func crashRounds(t testing.TB) int { return kills(t, 30, 10) }

// envSeed is the seed of tests that do random things, or "random".
const envSeed = "RAMET_TEST_SEED"

// seeded returns a random source. Its seed is that of the test and the user, so that a run
// judges the change and not its luck, unless envSeed says another or the test is to look
// for something new (see envFuzz and envKills). It is printed.
func seeded(t testing.TB) *rand.Rand {
	t.Helper()
	own := fnv.New64a()
	fmt.Fprintf(own, "%s as %d", t.Name(), os.Geteuid())
	seed := own.Sum64()
	switch s := os.Getenv(envSeed); {
	case s == "random" || s == "" && os.Getenv(envFuzz)+os.Getenv(envKills) != "":
		seed = uint64(time.Now().UnixNano())
	case s != "":
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%s=%d", envSeed, seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// moment waits for a random time up to most. It is not to synchronise with
// anything: the point is not to.
func moment(rng *rand.Rand, most time.Duration) { time.Sleep(time.Duration(rng.Int64N(int64(most)))) }

// TestDaemonDies kills a daemon at random moments of its work. The next one must
// find the parent intact, every sandbox whole, and nothing else.
func TestDaemonDies(t *testing.T) {
	rng := seeded(t)
	n := newNode(t)
	n.create("base")
	n.hold("base", "-value", "zero", "-only", "heap,bulk,files,child,tcp,pipe,memfd")
	n.close()
	n.pool = 0
	killedAt := map[string]int{}
	for range crashRounds(t) {
		p := startVictim(t, victim{Runtime: n.paths.RuntimeDir(), Data: n.paths.DataDir(), Engine: n.build, Seed: rng.Uint64()})
		at := p.next()
		for range rng.IntN(4) {
			at = p.next()
		}
		moment(rng, 80*time.Millisecond)
		p.kill()
		killedAt[at]++

		n.open()
		n.checkWhole("base", "zero")
		n.checkImages()
		n.fork("base", 1)
		if rng.IntN(2) == 0 {
			n.destroyAllBut("base")
		}
		n.close()
	}
	t.Logf("killed after: %v", killedAt)
	n.open()
}

// TestClientDies kills a client at random moments of a fork.
func TestClientDies(t *testing.T) {
	rng := seeded(t)
	n := newNode(t)
	n.create("base")
	n.hold("base", "-value", "zero", "-only", "heap,files,child")
	socket := n.serve()
	for range crashRounds(t) {
		p := startVictim(t, victim{Socket: socket, Seed: rng.Uint64()})
		p.next()
		moment(rng, 80*time.Millisecond)
		p.kill()
		n.checkWhole("base", "zero")
		n.destroyAllBut("base")
	}
}

// checkWhole checks that base and every other sandbox hold value, and that there
// are no processes and files but theirs.
func (n *testNode) checkWhole(base, value string) {
	n.t.Helper()
	ctx := asOwner
	n.mustHold(base, value)
	list, err := n.m.List(ctx, api.ListFilter{})
	if err != nil {
		n.t.Fatal(err)
	}
	for _, s := range list {
		if s.State != api.StateRunning {
			n.t.Errorf("%s is %s: %s", s.ID, s.State, s.Reason)
		}
		if s.Name == base {
			continue
		}
		if err := n.holds(s.ID, value); err != nil {
			n.t.Error(err)
		}
		if got, err := n.exec(s.ID, "say", "env:RAMET_SANDBOX_ID"); err == nil && strings.TrimSpace(got.stdout.String()) != s.ID {
			n.t.Errorf("%s believes that it is %s", s.ID, got.stdout.String())
		}
	}
	eventually(n.t, "processes and files", func() error {
		// A client that was killed may have left a fork that is still under way.
		list, err := n.m.List(ctx, api.ListFilter{})
		if err != nil {
			return err
		}
		if s := n.sentries(); len(s) > len(list)+n.pool {
			return fmt.Errorf("%d sentries for %d sandboxes", len(s), len(list))
		}
		if f := filesBelow(n.t, n.paths.Sandboxes()); len(f) > 2*(len(list)+n.pool)+1 { // a socket and a log each, and the zygote's log
			return fmt.Errorf("%d sandboxes have files %v", len(list), f)
		}
		return nil
	})
	n.checkSnapshots()
}

// checkSnapshots checks that every snapshot on disk has a record and is ready.
func (n *testNode) checkSnapshots() {
	n.t.Helper()
	snaps, err := n.m.Snapshots(asOwner)
	if err != nil {
		n.t.Fatal(err)
	}
	known := map[string]bool{}
	for _, s := range snaps {
		if s.State != api.SnapshotReady && s.OnDisk {
			n.t.Errorf("snapshot %s is %s", s.ID, s.State)
		}
		known[s.ID] = true
	}
	entries, err := os.ReadDir(n.paths.Snapshots())
	if err != nil {
		n.t.Fatal(err)
	}
	for _, e := range entries {
		if !known[e.Name()] {
			n.t.Errorf("%s is no snapshot", e.Name())
		}
	}
}

// checkImages checks that every image is what its digest says, and that there is
// nothing else among them.
func (n *testNode) checkImages() {
	n.t.Helper()
	ctx := asOwner
	images, err := n.m.Images(ctx)
	if err != nil {
		n.t.Fatal(err)
	}
	store, err := image.Open(n.paths.Images())
	if err != nil {
		n.t.Fatal(err)
	}
	for _, i := range images {
		if err := store.Verify(ctx, i.ID); err != nil {
			n.t.Error(err)
		}
	}
	if blobs := filesBelow(n.t, filepath.Join(n.paths.Images(), "blobs")); len(blobs) != len(images) {
		n.t.Errorf("%d images have files %v", len(images), blobs)
	}
}

func (n *testNode) destroyAllBut(base string) {
	n.t.Helper()
	ctx := asOwner
	list, err := n.m.List(ctx, api.ListFilter{})
	if err != nil {
		n.t.Fatal(err)
	}
	for _, s := range list {
		if s.Name != base {
			n.destroy(s.ID)
		}
	}
	snaps, err := n.m.Snapshots(ctx)
	if err != nil {
		n.t.Fatal(err)
	}
	n.deleteAll(snaps)
}

// sentries returns this node's sentry processes, without those that guest code
// runs in: a sentry leads its session. So does the first process of its platform while
// it is being made.
func (n *testNode) sentries() []int {
	return slices.DeleteFunc(n.processes(), func(pid int) bool { return sessionOf(pid) != pid || isZygote(pid) })
}

// isZygote reports whether pid is the process that sentries are forks of.
func isZygote(pid int) bool {
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

// TestChildSentryDies kills sentries of children, and the first processes of their
// platforms, while they are being made. The others must not notice.
func TestChildSentryDies(t *testing.T) {
	rng := seeded(t)
	n := newNode(t)
	n.create("base")
	n.hold("base", "-value", "zero", "-only", "heap,files,child")
	base := n.sentryOf("base")
	failed := 0
	for range crashRounds(t) {
		killed := make(chan bool)
		go func() {
			defer close(killed)
			moment(rng, 40*time.Millisecond)
			for _, pid := range n.sentries() {
				if pid != base && rng.IntN(2) == 0 {
					_ = syscall.Kill(pid, syscall.SIGKILL) // it may be gone
				}
			}
		}()
		r, err := n.m.Fork(asOwner, "base", api.ForkRequest{Count: 3})
		<-killed
		// One that is being killed has no more processes for a moment, and may still
		// say so.
		died := func(err error) {
			if c := api.CodeOf(err); c != api.CodeSandboxDied && c != api.CodeLimit {
				t.Errorf("error has code %q: %v", c, err)
			}
			failed++
		}
		if err != nil {
			died(err) // all or nothing: one that dies at the very end takes all with it
		} else {
			for _, c := range r.Children {
				if c.Error != nil {
					died(c.Error)
				}
			}
		}
		n.mustHold("base", "zero")
		n.destroyAllBut("base")
	}
	if failed == 0 {
		t.Error("no child was hit: the test proves nothing")
	}
}

// TestZygoteDies kills the process that sentries are forks of while they are being
// made. Those that there are must not notice, and the next ones are of another.
func TestZygoteDies(t *testing.T) {
	rng := seeded(t)
	n := newNode(t)
	n.create("base")
	n.hold("base", "-value", "zero", "-only", "heap,files,child")
	zygotes := map[int]bool{}
	for range crashRounds(t) {
		killed := make(chan bool)
		go func() {
			defer close(killed)
			moment(rng, 60*time.Millisecond)
			for _, pid := range n.processes() {
				if isZygote(pid) {
					_ = syscall.Kill(pid, syscall.SIGKILL) // it may be gone
					zygotes[pid] = true
				}
			}
		}()
		r, err := n.m.Fork(asOwner, "base", api.ForkRequest{Count: 4})
		<-killed
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range r.Children {
			if c.Error != nil {
				t.Errorf("a child failed: %v", c.Error)
			} else if err := n.holds(c.Sandbox.ID, "zero"); err != nil {
				t.Error(err)
			}
		}
		n.mustHold("base", "zero")
		n.destroyAllBut("base")
	}
	if len(zygotes) < 2 {
		t.Errorf("%d zygotes were killed: the test proves nothing", len(zygotes))
	}
}

// sentryOf returns the process id of a sandbox's sentry.
func (n *testNode) sentryOf(ref string) int {
	n.t.Helper()
	pid, _ := n.processOf(ref)
	return pid
}

// processOf returns the process id and the key of a sandbox's sentry, from its
// record, which only the node may open otherwise.
func (n *testNode) processOf(ref string) (pid int, key string) {
	n.t.Helper()
	s, err := n.m.Get(asOwner, ref)
	if err != nil {
		n.t.Fatal(err)
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
	if err != nil || !slices.Contains(n.sentries(), rec.PID) {
		n.t.Fatalf("record of %s names process %d (%v), the sentries are %v", ref, rec.PID, err, n.sentries())
	}
	return rec.PID, rec.Key
}

// records opens the node's records for reading.
func (n *testNode) records() *sql.DB {
	n.t.Helper()
	db, err := sql.Open("sqlite", "file:"+n.paths.Registry()+"?mode=ro") // the node's driver
	if err != nil {
		n.t.Fatal(err)
	}
	return db
}

// count returns how many records are in a table.
func (n *testNode) count(table string) (count int) {
	n.t.Helper()
	db := n.records()
	defer db.Close()
	if err := db.QueryRow("SELECT COUNT(*) FROM " + table).Scan(&count); err != nil {
		n.t.Fatal(err)
	}
	return count
}

// TestSourceSentryDies kills the sentry of a sandbox while it is being forked.
// Either there are children, and they are whole, or there are none.
func TestSourceSentryDies(t *testing.T) {
	rng := seeded(t)
	n := newNode(t)
	n.create("origin")
	n.hold("origin", "-value", "zero", "-only", "heap,files,child")
	for range crashRounds(t) / 2 {
		source := n.fork("origin", 1)[0].ID
		pid := n.sentryOf(source)
		done := make(chan struct{})
		go func() {
			defer close(done)
			moment(rng, 50*time.Millisecond)
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}()
		r, err := n.m.Fork(asOwner, source, api.ForkRequest{Count: 2})
		<-done
		if err != nil {
			wantCode(t, err, api.CodeSandboxDied)
		} else {
			for _, c := range n.children(r) {
				n.mustHold(c.ID, "zero")
				n.mustHold(n.fork(c.ID, 1)[0].ID, "zero")
			}
		}
		n.mustFail(source)
		n.mustHold("origin", "zero")
		n.destroyAllBut("origin")
	}
}

// mustFail waits until ref has failed because its sentry was killed.
func (n *testNode) mustFail(ref string) {
	n.t.Helper()
	n.mustFailWith(ref, "killed")
}

// mustFailWith waits until ref has failed and says why.
func (n *testNode) mustFailWith(ref, why string) {
	n.t.Helper()
	eventually(n.t, "state of "+ref, func() error {
		s, err := n.m.Get(asOwner, ref)
		if err != nil {
			return err
		}
		if s.State != api.StateFailed || !strings.Contains(s.Reason, why) {
			return fmt.Errorf("it is %s with the reason %q", s.State, s.Reason)
		}
		return nil
	})
}

// killSentry kills a process and waits until it is gone.
func (n *testNode) killSentry(pid int) {
	n.t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		n.t.Fatal(err)
	}
	eventually(n.t, "end of a sentry", func() error {
		if slices.Contains(n.sentries(), pid) {
			return fmt.Errorf("process %d lives", pid)
		}
		return nil
	})
}
