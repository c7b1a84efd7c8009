package snapshot

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/machine"
	"ramet.dev/ramet/test/harness"
)

func timeline(n *harness.Node, ref string) []api.Step {
	n.T.Helper()
	steps, err := n.Machine.Timeline(harness.AsOwner, ref)
	if err != nil {
		n.T.Fatal(err)
	}
	return steps
}

// TestWritesFromOutsideAreSteps writes files between commands: a burst is one step, which bisect finds.
func TestWritesFromOutsideAreSteps(t *testing.T) {
	ctx := harness.AsOwner
	n := harness.NewNode(t)
	if _, err := n.Machine.Create(ctx, api.CreateRequest{Image: "box", Name: "box", AutoCheckpoint: &api.AutoCheckpoint{Keep: 20}}); err != nil {
		t.Fatal(err)
	}
	write := func(path string) {
		t.Helper()
		if _, err := n.Machine.WriteFile(ctx, "box", api.WriteRequest{FileRef: api.FileRef{Path: path}}, strings.NewReader("x")); err != nil {
			t.Fatal(err)
		}
	}
	write("/first")        // 1, after the start
	n.Guest("box", "true") // 2
	write("/good")         // 3
	write("/better")       // 3
	n.Guest("box", "true") // 4
	remove := api.FileChange{Action: api.FileRemove, FileRef: api.FileRef{Path: "/first"}}
	if _, err := n.Machine.ChangeFile(ctx, "box", remove); err != nil { // 5
		t.Fatal(err)
	}
	var got []string
	for _, s := range timeline(n, "box") {
		got = append(got, fmt.Sprintf("%d %s %s", s.Step, s.Kind, s.Command))
	}
	want := []string{"0 start ", "1 files /first", "2 exec guest true", "3 files /good and 1 more", "4 exec guest true", "5 files /first"}
	if !slices.Equal(got, want) {
		t.Errorf("the steps are %q", got)
	}
	write("/last") // 6, which bisect takes itself, also with another daemon
	n.Reopen()
	if r, err := n.Machine.Bisect(ctx, "box", api.BisectRequest{Argv: []string{"guest", "say", "file:/first"}}); err != nil || r.First == nil || r.First.Step != 5 {
		t.Errorf("it was removed at %+v, %v", r, err)
	}
	if steps := timeline(n, "box"); len(steps) != 7 {
		t.Errorf("at the end there are %+v", steps)
	}
}

// TestTimeline runs commands in a sandbox that is checkpointed by itself, returns to
// steps, and finds the one at which something broke.
func TestTimeline(t *testing.T) {
	ctx := harness.AsOwner
	n := harness.NewNode(t)
	box, err := n.Machine.Create(ctx, api.CreateRequest{Image: "box", Name: "box", AutoCheckpoint: &api.AutoCheckpoint{Keep: 6}})
	if err != nil {
		t.Fatal(err)
	}
	if steps := timeline(n, "box"); len(steps) != 0 {
		t.Errorf("steps of a sandbox that has run nothing: %+v", steps)
	}
	n.Hold("box", "-value", "one", "-only", held)  // 1, after the start
	n.Guest("box", "edit", "put /precious x")      // 2
	n.Change("box", "one", "two")                  // 3
	n.Guest("box", "edit", "rm /precious")         // 4
	n.Change("box", "two", "three")                // 5
	n.Guest("box", "edit", "put /other it's here") // 6
	steps := timeline(n, "box")
	var numbers []int
	for _, s := range steps {
		numbers = append(numbers, s.Step)
	}
	if !slices.Equal(numbers, []int{1, 2, 3, 4, 5, 6}) || !steps[5].Current || steps[3].Kind != api.StepExec || steps[3].Command != "guest edit 'rm /precious'" ||
		steps[5].Command != `guest edit 'put /other it'\''s here'` {
		t.Fatalf("the steps are %+v", steps)
	}
	if list, err := n.Machine.Snapshots(ctx); err != nil || len(list) != 0 {
		t.Errorf("the snapshots are %v, %v", list, err)
	}
	_, err = n.Machine.GetSnapshot(ctx, steps[0].Snapshot)
	harness.WantCode(t, err, api.CodeNotFound)

	// The first command that breaks it is found, and nothing is left of the search.
	for range 2 {
		r, err := n.Machine.Bisect(ctx, "box", api.BisectRequest{Argv: []string{"guest", "say", "file:/precious"}})
		if err != nil {
			t.Fatal(err)
		}
		// At step 1 it is not there yet: what is asked for fails, holds and fails.
		if r.First == nil || r.First.Step != 4 || r.ExitCode == 0 || !strings.Contains(r.Stderr, "/precious") || len(r.Tried) > 4 {
			t.Errorf("found %+v, exit code %d, %q after %v", r.First, r.ExitCode, r.Stderr, r.Tried)
		}
		n.Reopen() // steps are there after a restart
	}
	if r, err := n.Machine.Bisect(ctx, "box", api.BisectRequest{Argv: []string{"guest", "true"}}); err != nil || r.First != nil || len(r.Tried) != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	_, err = n.Machine.Bisect(ctx, "box", api.BisectRequest{})
	harness.WantCode(t, err, api.CodeInvalid)
	if list, err := n.Machine.List(ctx, api.ListFilter{}); err != nil || len(list) != 1 {
		t.Errorf("the sandboxes are %v, %v", list, err)
	}

	// Back, and forth again, and on from there.
	for _, c := range []struct {
		step int
		want string
	}{{3, "two"}, {6, "three"}, {2, "one"}} {
		s, err := n.Machine.Rewind(ctx, "box", c.step)
		if err != nil || s.ID != box.ID {
			t.Fatalf("rewind to %d: %+v, %v", c.step, s, err)
		}
		for _, s := range timeline(n, "box") {
			if s.Current != (s.Step == c.step) {
				t.Errorf("after a rewind to %d the step is %+v", c.step, s)
			}
		}
		kid := n.Fork("box", 1)[0].ID // looks without a step in the parent
		n.MustHold(kid, c.want)
		if steps := timeline(n, kid); len(steps) != 2 || steps[0].Kind != api.StepStart {
			t.Errorf("a child has the steps %+v", steps)
		}
		n.Destroy(kid)
	}
	n.Guest("box", "say", "file:/precious")
	steps = timeline(n, "box")
	if last := steps[len(steps)-1]; len(steps) != 3 || last.Step != 7 || !last.Current || steps[1].Step != 2 {
		t.Errorf("after going on from step 2 the steps are %+v", steps)
	}
	_, err = n.Machine.Rewind(ctx, "box", 5)
	harness.WantCode(t, err, api.CodeNotFound)
	if err == nil || !strings.Contains(err.Error(), "it has 1 to 2, 7") {
		t.Errorf("an unknown step: %v", err)
	}
	n.Create("plain")
	_, err = n.Machine.Bisect(ctx, "plain", api.BisectRequest{Argv: []string{"guest", "true"}})
	harness.WantCode(t, err, api.CodeWrongState)
	n.Destroy("plain", "box")
	harness.Eventually(t, "checkpoints are collected", func() error {
		if files := harness.FilesBelow(t, n.Paths.Snapshots()); len(files) != 0 {
			return fmt.Errorf("left over: %v", files)
		}
		return nil
	})
}

// stepOnce runs a command in "base", and sometimes returns to an earlier step.
func stepOnce(ctx context.Context, m *machine.Machine, rng *rand.Rand) error {
	fmt.Println("exec")
	_, err := m.Exec(ctx, "base", api.ExecRequest{Argv: []string{"guest", "edit", fmt.Sprintf("put /file%d x", rng.IntN(9))}}, api.ExecIO{Stdout: io.Discard, Stderr: io.Discard})
	if err != nil || rng.IntN(4) > 0 {
		return err
	}
	fmt.Println("rewind")
	steps, err := m.Timeline(ctx, "base")
	if err != nil {
		return err
	}
	_, err = m.Rewind(ctx, "base", steps[rng.IntN(len(steps))].Step)
	if api.CodeOf(err) == api.CodeWrongState {
		return nil // an earlier daemon was killed before it was on disk
	}
	return err
}

// TestStepsSurviveKills kills a daemon that makes steps. Those whose state was kept can
// be returned to, and nothing else is left.
func TestStepsSurviveKills(t *testing.T) {
	ctx := harness.AsOwner
	rng := harness.Seeded(t)
	n := harness.NewNode(t)
	if _, err := n.Machine.Create(ctx, api.CreateRequest{Image: "box", Name: "base", AutoCheckpoint: &api.AutoCheckpoint{Keep: 5}}); err != nil {
		t.Fatal(err)
	}
	n.Hold("base", "-value", "zero", "-only", held)
	for range 5 { // so that no step is from before that
		n.Guest("base", "true")
	}
	n.Close()
	rounds := harness.Kills(t, 5, 2)
	states := map[api.SnapshotState]int{}
	for range rounds {
		p := harness.StartVictim(t, harness.Victim{Runtime: n.Paths.RuntimeDir(), Data: n.Paths.DataDir(), Engine: n.Build, Seed: rng.Uint64(), Work: "step"})
		for range 2 + rng.IntN(5) {
			p.Next()
		}
		harness.RandomPause(rng, 60*time.Millisecond)
		p.Kill()
		n.Open()
		for _, s := range timeline(n, "base") {
			if states[s.State]++; s.State == api.SnapshotReady {
				if _, err := n.Machine.Rewind(ctx, "base", s.Step); err != nil {
					t.Errorf("step %d: %v", s.Step, err)
				}
				kid := n.Fork("base", 1)[0].ID
				n.MustHold(kid, "zero")
				n.Destroy(kid)
			} else if s.State != api.SnapshotFailed {
				t.Errorf("a step is %+v", s)
			}
		}
		n.Close()
	}
	t.Logf("found: %v", states)
	n.Open()
	n.Destroy("base")
	if files := harness.FilesBelow(t, n.Paths.Snapshots()); len(files) != 0 {
		t.Errorf("left over: %v", files)
	}
}
