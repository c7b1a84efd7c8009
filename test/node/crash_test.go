package node

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/machine"
	"ramet.dev/ramet/test/harness"
)

// useOnce makes children of "base" and of one of them, and uses and destroys
// some.
func useOnce(ctx context.Context, m *machine.Machine, rng *rand.Rand) error {
	fmt.Println("fork")
	r, err := m.Fork(ctx, "base", api.ForkRequest{Count: 1 + rng.IntN(3)})
	if err != nil {
		return err
	}
	for _, c := range r.Children {
		if c.Error != nil {
			return c.Error
		}
	}
	first := r.Children[0].Sandbox.ID
	switch rng.IntN(5) {
	case 0:
		fmt.Println("fork a child")
		if _, err := m.Fork(ctx, first, api.ForkRequest{}); err != nil {
			return err
		}
	case 1:
		fmt.Println("snapshot")
		s, err := m.Snapshot(ctx, first, api.SnapshotRequest{Memory: rng.IntN(2) == 0})
		if err != nil {
			return err
		}
		fmt.Println("rollback")
		if _, err := m.Rollback(ctx, first, s.ID); err != nil {
			return err
		}
	case 3:
		fmt.Println("commit")
		if _, err := m.Commit(ctx, first, api.CommitRequest{Name: "committed", Replace: true}, func(api.Progress) {}); err != nil {
			return err
		}
		fmt.Println("export")
		if err := m.Export(ctx, first, api.ExportRequest{Format: api.ExportOCI}, io.Discard); err != nil {
			return err
		}
	case 2:
		fmt.Println("promote")
		if _, err := m.Promote(ctx, first); err != nil {
			return err
		}
		return nil // first is gone
	}
	if rng.IntN(2) == 0 {
		fmt.Println("destroy")
		return m.Destroy(ctx, first)
	}
	return nil
}

// TestDaemonDies kills a daemon at random moments of its work. The next one must
// find the parent intact, every sandbox whole, and nothing else. It takes 40 s, as each of its kills is followed by a
// recovery and a check of all sandboxes.
func TestDaemonDies(t *testing.T) {
	rng := harness.Seeded(t)
	n := harness.NewNode(t)
	n.Create("base")
	n.Hold("base", "-value", "zero", "-only", "heap,bulk,files,child,tcp,pipe,memfd")
	n.Close()
	n.Pool = 0
	killedAt := map[string]int{}
	for range harness.CrashRounds(t) {
		p := harness.StartVictim(t, harness.Victim{Runtime: n.Paths.RuntimeDir(), Data: n.Paths.DataDir(), Engine: n.Build, Seed: rng.Uint64(), Work: "use"})
		at := p.Next()
		for range rng.IntN(4) {
			at = p.Next()
		}
		harness.RandomPause(rng, 80*time.Millisecond)
		p.Kill()
		killedAt[at]++

		n.Open()
		n.CheckWhole("base", "zero")
		n.CheckImages()
		n.Fork("base", 1)
		if rng.IntN(2) == 0 {
			n.DestroyAllBut("base")
		}
		n.Close()
	}
	t.Logf("killed after: %v", killedAt)
	n.Open()
}

// TestClientDies kills a client at random moments of a fork.
func TestClientDies(t *testing.T) {
	rng := harness.Seeded(t)
	n := harness.NewNode(t)
	n.Create("base")
	n.Hold("base", "-value", "zero", "-only", "heap,files,child")
	socket := n.Serve()
	for range harness.CrashRounds(t) {
		p := harness.StartVictim(t, harness.Victim{Socket: socket, Seed: rng.Uint64()})
		p.Next()
		harness.RandomPause(rng, 80*time.Millisecond)
		p.Kill()
		n.CheckWhole("base", "zero")
		n.DestroyAllBut("base")
	}
}

// TestChildSentryDies kills sentries of children, and the first processes of their
// platforms, while they are being made. The others must not notice.
func TestChildSentryDies(t *testing.T) {
	rng := harness.Seeded(t)
	n := harness.NewNode(t)
	n.Create("base")
	n.Hold("base", "-value", "zero", "-only", "heap,files,child")
	base := sentryOf(n, "base")
	failed, within := 0, 40*time.Millisecond // how long a fork takes, from the first one on that succeeds
	rounds := harness.CrashRounds(t)
	for i := 0; i < rounds || failed == 0 && i < 50*rounds; i++ { // a busy machine hits one late
		killed, begin, before := make(chan bool), time.Now(), failed
		go func() {
			defer close(killed)
			harness.RandomPause(rng, within)
			for _, pid := range n.Sentries() {
				if pid != base && rng.IntN(2) == 0 {
					_ = syscall.Kill(pid, syscall.SIGKILL) // it may be gone
				}
			}
		}()
		r, err := n.Machine.Fork(harness.AsOwner, "base", api.ForkRequest{Count: 3})
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
		if failed == before {
			within = time.Since(begin)
		}
		n.MustHold("base", "zero")
		n.DestroyAllBut("base")
	}
	if failed == 0 {
		t.Error("no child was hit: the test proves nothing")
	}
}

// TestCopyDies kills the copy of a sentry that saves the state of many objects. The fork is made all the
// same, by the sentry itself.
func TestCopyDies(t *testing.T) {
	n := harness.NewNode(t)
	n.Create("base")
	n.Hold("base", "-value", "zero", "-only", "crowd,twins,heap")
	base := sentryOf(n, "base")
	killed := 0
	rounds := harness.CrashRounds(t)
	for i := 0; i < rounds || killed == 0 && i < 20*rounds; i++ { // a copy lives for milliseconds
		done, hit := make(chan struct{}), make(chan int)
		go func() {
			for {
				select {
				case <-done:
					hit <- 0
					return
				default:
				}
				if pid := copyOf(base); pid > 0 && syscall.Kill(pid, syscall.SIGKILL) == nil {
					hit <- 1
					return
				}
			}
		}()
		child := n.Fork("base", 1)[0]
		close(done)
		killed += <-hit
		n.MustHold(child.ID, "zero")
		n.MustHold("base", "zero")
		n.DestroyAllBut("base")
	}
	if killed == 0 {
		t.Error("no copy was found: the test proves nothing")
	}
}

// copyOf returns the process that is a copy of a sentry, or 0: of its children, the others of which are
// its platform's, the one that has the stack that a program begins with.
func copyOf(sentry int) int {
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", sentry, sentry))
	tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", sentry))
	for _, task := range tasks {
		more, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", sentry, task.Name()))
		children = append(append(children, ' '), more...)
	}
	if err != nil {
		return 0
	}
	for _, name := range strings.Fields(string(children)) {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if maps, _ := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid)); strings.Contains(string(maps), "[stack]") {
			return pid
		}
	}
	return 0
}

// TestZygoteDies kills the process that sentries are forks of while they are being
// made. Those that there are must not notice, and the next ones are of another.
func TestZygoteDies(t *testing.T) {
	rng := harness.Seeded(t)
	n := harness.NewNode(t)
	n.Create("base")
	n.Hold("base", "-value", "zero", "-only", "heap,files,child")
	zygotes := map[int]bool{}
	for range harness.CrashRounds(t) {
		killed := make(chan bool)
		go func() {
			defer close(killed)
			harness.RandomPause(rng, 60*time.Millisecond)
			for _, pid := range n.Processes() {
				if harness.IsZygote(pid) {
					_ = syscall.Kill(pid, syscall.SIGKILL) // it may be gone
					zygotes[pid] = true
				}
			}
		}()
		r, err := n.Machine.Fork(harness.AsOwner, "base", api.ForkRequest{Count: 4})
		<-killed
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range r.Children {
			if c.Error != nil {
				t.Errorf("a child failed: %v", c.Error)
			} else if err := n.Holds(c.Sandbox.ID, "zero"); err != nil {
				t.Error(err)
			}
		}
		n.MustHold("base", "zero")
		n.DestroyAllBut("base")
	}
	if len(zygotes) < 2 {
		t.Errorf("%d zygotes were killed: the test proves nothing", len(zygotes))
	}
}

// sentryOf returns the process id of a sandbox's sentry.
func sentryOf(n *harness.Node, ref string) int {
	n.T.Helper()
	pid, _ := n.ProcessOf(ref)
	return pid
}

// TestSourceSentryDies kills the sentry of a sandbox while it is being forked.
// Either there are children, and they are whole, or there are none.
func TestSourceSentryDies(t *testing.T) {
	rng := harness.Seeded(t)
	n := harness.NewNode(t)
	n.Create("origin")
	n.Hold("origin", "-value", "zero", "-only", "heap,files,child")
	for range harness.CrashRounds(t) / 2 {
		source := n.Fork("origin", 1)[0].ID
		pid := sentryOf(n, source)
		done := make(chan struct{})
		go func() {
			defer close(done)
			harness.RandomPause(rng, 50*time.Millisecond)
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}()
		r, err := n.Machine.Fork(harness.AsOwner, source, api.ForkRequest{Count: 2})
		<-done
		if err != nil {
			harness.WantCode(t, err, api.CodeSandboxDied)
		} else {
			for _, c := range n.Children(r) {
				n.MustHold(c.ID, "zero")
				n.MustHold(n.Fork(c.ID, 1)[0].ID, "zero")
			}
		}
		mustFail(n, source)
		n.MustHold("origin", "zero")
		n.DestroyAllBut("origin")
	}
}

// mustFail waits until ref has failed because its sentry was killed.
func mustFail(n *harness.Node, ref string) {
	n.T.Helper()
	n.MustFailWith(ref, "killed")
}

// killSentry kills a process and waits until it is gone.
func killSentry(n *harness.Node, pid int) {
	n.T.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		n.T.Fatal(err)
	}
	harness.Eventually(n.T, "end of a sentry", func() error {
		if slices.Contains(n.Sentries(), pid) {
			return fmt.Errorf("process %d lives", pid)
		}
		return nil
	})
}
