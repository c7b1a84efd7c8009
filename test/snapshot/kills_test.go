package snapshot

import (
	"context"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
	"ramet.dev/ramet/test/harness"
)

// TestMixedLoadSurvivesKills kills a daemon at random moments in which several users
// create, fork, snapshot, restore, roll back, use, pause, hibernate, wake and destroy
// sandboxes over its interface. The next one must have everything that it
// acknowledged, whole, and nothing else: no sandbox that nobody asked for, no
// process, file, control group or record without a sandbox. Each snapshot that is
// ready must load, with the contents that it was taken of.
//
// The environment variable RAMET_TEST_KILLS says how often; 100 takes some minutes.
// A run is repeated by its RAMET_TEST_SEED, as far as the moments can be.
func TestMixedLoadSurvivesKills(t *testing.T) {
	rng := harness.Seeded(t)
	n := harness.NewNode(t)
	n.Create("base")
	n.Hold("base", "-value", "zero", "-only", "heap,bulk,files,child,pipe", "-bulk", "1")
	x := newMixed(n)
	x.add(&making{names: []string{"base"}, value: "zero"})
	rounds, loaded := harness.Kills(t, 8, 4), 0
	for round := range rounds {
		n.Close()
		x.load(rng)
		n.Open()
		loaded += checkMixed(n, x)
		if round == rounds-1 || round%10 == 9 {
			checkEmptied(n, x)
		}
		if t.Failed() {
			t.Fatalf("in round %d", round)
		}
	}
	t.Logf("%d kills; %d times a snapshot was loaded; acknowledged: %v, cut off: %v", rounds, loaded, x.done, x.torn)
	if len(x.torn) == 0 {
		t.Error("nothing was under way when the daemon was killed: the test proves nothing")
	}
}

// load has several users use a daemon until that is killed.
func (x *mixed) load(rng *rand.Rand) {
	x.node.T.Helper()
	const users = 4
	n := x.node
	p := harness.StartVictim(n.T, harness.Victim{Runtime: n.Paths.RuntimeDir(), Data: n.Paths.DataDir(), Engine: n.Build, Seed: rng.Uint64(), Work: harness.Serves})
	if rng.IntN(8) == 0 { // while it takes over what the last one left
		harness.RandomPause(rng, 100*time.Millisecond)
		p.Kill()
		return
	}
	if line := p.Next(); line != "serving" {
		n.T.Fatalf("the daemon says %q", line)
	}
	c, err := client.New("unix:" + n.Paths.Socket())
	if err != nil {
		n.T.Fatal(err)
	}
	defer c.Close()
	x.client = c
	x.killed.Store(false)
	ctx, cancel := context.WithTimeout(harness.AsOwner, harness.Timeout)
	defer cancel()
	var wg sync.WaitGroup
	for range users {
		rng := rand.New(rand.NewPCG(rng.Uint64(), 0))
		wg.Add(1)
		go func() {
			defer wg.Done()
			x.use(ctx, rng)
		}()
	}
	harness.RandomPause(rng, 1500*time.Millisecond)
	x.killed.Store(true)
	p.Kill()
	wg.Wait()
}

// checkMixed checks that everything is there that the users of x were told of, and
// nothing else. It returns how many snapshots it has loaded.
func checkMixed(n *harness.Node, x *mixed) (loaded int) {
	n.T.Helper()
	ctx := harness.AsOwner
	list, err := n.Machine.List(ctx, api.ListFilter{})
	if err != nil {
		n.T.Fatal(err)
	}
	snaps, err := n.Machine.Snapshots(ctx)
	if err != nil {
		n.T.Fatal(err)
	}
	if err := x.settle(list, snaps); err != nil {
		n.T.Fatal(err)
	}
	if _, _, stray := n.Recorded(); len(stray) > 0 {
		n.T.Errorf("recorded for nobody: %v", stray)
	}
	n.CheckOwned()
	for _, b := range x.boxes {
		if b.states[0] == api.StatePaused {
			if _, err := n.Machine.Resume(ctx, b.name); err != nil {
				n.T.Error(err)
			}
		}
		b.values, b.notes = mustBeOneOf(n, b.name, b.values, b.notes)
		b.runs()
	}
	for _, s := range snaps {
		if s.State != api.SnapshotReady {
			if files := harness.FilesBelow(n.T, filepath.Join(n.Paths.Snapshots(), s.ID)); s.State == api.SnapshotFailed && len(files) != 0 {
				n.T.Errorf("a failed snapshot has files %v", files)
			}
			continue
		}
		r, err := n.Machine.Restore(ctx, s.ID, api.RestoreRequest{})
		if err != nil {
			n.T.Errorf("snapshot %s is ready: %v", s.Name, err)
			continue
		}
		loaded++
		child, is := n.Children(r)[0].ID, x.shots[s.Name]
		mustBeOneOf(n, child, []string{is.value}, []string{is.note})
		n.Destroy(child)
		if _, err := n.Machine.VerifySnapshot(ctx, s.ID); err != nil {
			n.T.Error(err)
		}
	}
	for _, s := range slices.Backward(snaps) {
		if s.State == api.SnapshotFailed {
			if err := n.Machine.DeleteSnapshot(ctx, s.ID, api.SnapshotDeletion{}); err != nil {
				n.T.Error(err)
			}
		}
	}
	n.CheckOwned()
	return loaded
}

// mustBeOneOf checks that the holder and the file in ref are among what is possible,
// and returns what they are.
func mustBeOneOf(n *harness.Node, ref string, values, notes []string) (value, text []string) {
	n.T.Helper()
	value, text = []string{""}, []string{""}
	if values[0] != "" {
		r, err := n.Ask(ref)
		if err != nil {
			n.T.Fatal(err)
		}
		for _, v := range values {
			if r.Check(ref, "", v) == nil {
				value[0] = v
			}
		}
	}
	if out, err := n.Exec(ref, "cat", note); err != nil {
		n.T.Fatal(err)
	} else if out.ExitCode == 0 {
		text[0] = out.Stdout.String()
	}
	if !slices.Contains(values, value[0]) || !slices.Contains(notes, text[0]) {
		n.T.Errorf("%s holds %q and has the file %q, and should have one of %q and %q", ref, value, text, values, notes)
	}
	return value, text
}

// checkEmptied removes all but the base, and checks that nothing is kept in memory or
// recorded for anything else.
func checkEmptied(n *harness.Node, x *mixed) {
	n.T.Helper()
	n.DestroyAllBut("base")
	base := x.boxes["base"]
	x.boxes, x.shots = map[string]*told{"base": base}, map[string]*shot{}
	n.CheckOwned()
	if u := n.Machine.Usage(); u.Pins != 0 {
		n.T.Errorf("%d moments are kept in memory for nobody", u.Pins)
	}
	for table, most := range map[string]int{"sandboxes": 1, "activity": 1, "grants": 0, "timelines": 0} {
		if got := n.Count(table); got > most {
			n.T.Errorf("there are %d records of %s for one sandbox", got, table)
		}
	}
}
