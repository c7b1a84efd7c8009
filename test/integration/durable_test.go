package integration

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
	rounds := kills(t, 8, 3)
	rng := seeded(t)
	n := newFSNode(t)
	n.createFS("base", 0)
	n.long("base", "fs", "journal", "start", "/var/journal")
	n.long("base", "fs", "churn", "/var/churn", "1", "200", withoutChurn)
	kills, verified, unsaid := map[string]int{}, 0, 0
	for range rounds {
		n.close()
		p := startVictim(t, victim{Runtime: n.paths.RuntimeDir(), Data: n.paths.DataDir(), Engine: n.build, Seed: rng.Uint64(), Snapshots: true})
		seen := taken{}
		for more := 2 + rng.IntN(7); more > 0; more-- {
			seen.note(p.next())
		}
		moment(rng, 40*time.Millisecond)
		how := []string{"daemon", "sentry and daemon", "all"}[rng.IntN(3)]
		kills[how]++
		if sentries := n.sentries(); how == "all" {
			for _, pid := range sentries {
				_ = syscall.Kill(pid, syscall.SIGKILL) // it may be gone
			}
		} else if how != "daemon" {
			_ = syscall.Kill(sentries[rng.IntN(len(sentries))], syscall.SIGKILL)
			moment(rng, 20*time.Millisecond)
		}
		for _, line := range p.kill() {
			seen.note(line)
		}
		n.open()
		v, u := n.verifySnapshots(seen)
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
func (n *testNode) verifySnapshots(seen taken) (said, unsaid int) {
	n.t.Helper()
	ctx := asOwner
	base, err := n.m.Get(ctx, "base")
	if err != nil {
		n.t.Fatal(err)
	}
	failed := base.State != api.StateRunning
	if failed {
		n.destroy("base")
	}
	snaps, err := n.m.Snapshots(ctx)
	if err != nil {
		n.t.Fatal(err)
	}
	there := map[string]api.Snapshot{}
	for _, s := range snaps {
		there[s.Name] = s
	}
	for name, s := range seen {
		found, ok := there[name]
		if !ok || found.State != api.SnapshotReady {
			if s.ready {
				n.t.Errorf("snapshot %s was ready and is %+v", name, found)
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
		r, err := n.m.Restore(ctx, name, req)
		if err != nil {
			n.t.Errorf("restore %s, of which was said that it is ready: %v: %v", name, s.ready, err)
			continue
		}
		child := n.children(r)[0].ID
		if sum := n.long(child, "fs", "sum", "/var/churn"); sum != s.sum {
			n.t.Errorf("snapshot %s has other files than when it was taken", name)
		}
		wrote := n.journalIn(child)
		eventually(n.t, "the program that writes", func() error {
			if now := n.journalIn(child); now <= wrote {
				return fmt.Errorf("it is at %d, and was at %d", now, wrote)
			}
			return nil
		})
		if !failed {
			n.destroy(child)
		}
		failed = false
	}
	if failed { // before the first snapshot
		n.createFS("base", 0)
		n.long("base", "fs", "journal", "start", "/var/journal")
	}
	n.checkSnapshots()
	for _, s := range slices.Backward(snaps) {
		if err := n.m.DeleteSnapshot(ctx, s.ID, api.SnapshotDeletion{}); err != nil {
			n.t.Error(err)
		}
	}
	return said, unsaid
}

// journalIn checks the journal in a sandbox and returns how far it is.
func (n *testNode) journalIn(ref string) int {
	n.t.Helper()
	at, err := strconv.Atoi(n.long(ref, "fs", "journal", "check", "/var/journal"))
	if err != nil {
		n.t.Fatal(err)
	}
	return at
}
