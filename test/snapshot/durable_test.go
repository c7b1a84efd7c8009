package snapshot

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
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

// withoutChurn are features of the fuzzer that would make files the program that
// sums them up cannot read.
const withoutChurn = "samegroup"

// snapshotOnce changes files of "base", says what they are, and takes a snapshot. A
// line "ready" means that the call has returned.
func snapshotOnce(ctx context.Context, m *machine.Machine, rng *rand.Rand) error {
	run := func(args ...string) (string, error) {
		var out, stderr bytes.Buffer
		r, err := m.Exec(ctx, "base", api.ExecRequest{Argv: append([]string{"guest", "fs"}, args...)}, api.ExecIO{Stdout: &out, Stderr: &stderr})
		if err == nil && r.ExitCode != 0 {
			err = fmt.Errorf("%v: %s", args, stderr.String())
		}
		return out.String(), err
	}
	fmt.Println("churn")
	if _, err := run("churn", "/var/churn", fmt.Sprint(rng.IntN(1e9)), "150", withoutChurn); err != nil {
		return err
	}
	sum, err := run("sum", "/var/churn")
	if err != nil {
		return err
	}
	name := fmt.Sprintf("s%d", rng.IntN(1e9))
	fmt.Println("snapshot", name, sum)
	if _, err := m.Snapshot(ctx, "base", api.SnapshotRequest{Name: name}); err != nil {
		return err
	}
	fmt.Println("ready", name)
	return nil
}

// taken are the snapshots that a victim took, by name, and what it said about them.
type taken map[string]*takenSnapshot

type takenSnapshot struct {
	sum   string
	ready bool // the call had returned
}

func (s taken) note(line string) {
	switch f := strings.Fields(line); f[0] {
	case "snapshot":
		s[f[1]] = &takenSnapshot{sum: f[2]}
	case "ready":
		s[f[1]].ready = true
	}
}

// TestSnapshotsSurviveKills kills a daemon and sentries at random moments in which
// snapshots are taken and files written. Whatever was said to be ready is there, and
// has exactly the files that it had.
func TestSnapshotsSurviveKills(t *testing.T) {
	rounds := harness.Kills(t, 8, 3)
	rng := harness.Seeded(t)
	n := harness.NewFSNode(t)
	n.CreateFS("base", 0)
	n.Long("base", "fs", "journal", "start", "/var/journal")
	n.Long("base", "fs", "churn", "/var/churn", "1", "200", withoutChurn)
	kills, verified, unsaid := map[string]int{}, 0, 0
	for range rounds {
		n.Close()
		p := harness.StartVictim(t, harness.Victim{Runtime: n.Paths.RuntimeDir(), Data: n.Paths.DataDir(), Engine: n.Build, Seed: rng.Uint64(), Work: "snapshot"})
		seen := taken{}
		for more := 2 + rng.IntN(7); more > 0; more-- {
			seen.note(p.Next())
		}
		harness.RandomPause(rng, 40*time.Millisecond)
		how := []string{"daemon", "sentry and daemon", "all"}[rng.IntN(3)]
		kills[how]++
		if sentries := n.Sentries(); how == "all" {
			for _, pid := range sentries {
				_ = syscall.Kill(pid, syscall.SIGKILL) // it may be gone
			}
		} else if how != "daemon" {
			_ = syscall.Kill(sentries[rng.IntN(len(sentries))], syscall.SIGKILL)
			harness.RandomPause(rng, 20*time.Millisecond)
		}
		for _, line := range p.Kill() {
			seen.note(line)
		}
		n.Open()
		v, u := verifySnapshots(n, seen)
		verified, unsaid = verified+v, unsaid+u
	}
	t.Logf("killed: %v; %d snapshots are as they were, %d more were there", kills, verified, unsaid)
	if verified < rounds/2 {
		t.Errorf("only %d snapshots: the test proves little", verified)
	}
}

// verifySnapshots restores what was taken, and removes it. If "base" was killed, one
// of the restored takes its place. It returns how many were said to be ready, and how
// many were not and are there.
func verifySnapshots(n *harness.Node, seen taken) (said, unsaid int) {
	n.T.Helper()
	ctx := harness.AsOwner
	base, err := n.Machine.Get(ctx, "base")
	if err != nil {
		n.T.Fatal(err)
	}
	failed := base.State != api.StateRunning
	if failed {
		n.Destroy("base")
	}
	snaps, err := n.Machine.Snapshots(ctx)
	if err != nil {
		n.T.Fatal(err)
	}
	there := map[string]api.Snapshot{}
	for _, s := range snaps {
		there[s.Name] = s
	}
	for name, s := range seen {
		found, ok := there[name]
		if !ok || found.State != api.SnapshotReady {
			if s.ready {
				n.T.Errorf("snapshot %s was ready and is %+v", name, found)
			}
			continue
		}
		if said++; !s.ready {
			said, unsaid = said-1, unsaid+1
		}
		req := api.RestoreRequest{}
		if failed {
			req.Names = []string{"base"}
		}
		r, err := n.Machine.Restore(ctx, name, req)
		if err != nil {
			n.T.Errorf("restore %s, of which was said that it is ready: %v: %v", name, s.ready, err)
			continue
		}
		child := n.Children(r)[0].ID
		if sum := n.Long(child, "fs", "sum", "/var/churn"); sum != s.sum {
			n.T.Errorf("snapshot %s has other files than when it was taken", name)
		}
		wrote := journalIn(n, child)
		harness.Eventually(n.T, "the program that writes", func() error {
			if now := journalIn(n, child); now <= wrote {
				return fmt.Errorf("it is at %d, and was at %d", now, wrote)
			}
			return nil
		})
		if !failed {
			n.Destroy(child)
		}
		failed = false
	}
	if failed { // before the first snapshot
		n.CreateFS("base", 0)
		n.Long("base", "fs", "journal", "start", "/var/journal")
	}
	n.CheckSnapshots()
	for _, s := range slices.Backward(snaps) {
		if err := n.Machine.DeleteSnapshot(ctx, s.ID, api.SnapshotDeletion{}); err != nil {
			n.T.Error(err)
		}
	}
	return said, unsaid
}

// journalIn checks the journal in a sandbox and returns how far it is.
func journalIn(n *harness.Node, ref string) int {
	n.T.Helper()
	at, err := strconv.Atoi(n.Long(ref, "fs", "journal", "check", "/var/journal"))
	if err != nil {
		n.T.Fatal(err)
	}
	return at
}
