package integration

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
)

func (n *testNode) timeline(ref string) []api.Step {
	n.t.Helper()
	steps, err := n.m.Timeline(asOwner, ref)
	if err != nil {
		n.t.Fatal(err)
	}
	return steps
}

// TestTimeline runs commands in a sandbox that is checkpointed by itself, returns to
// steps, and finds the one at which something broke.
func TestTimeline(t *testing.T) {
	ctx := asOwner
	n := newNode(t)
	box, err := n.m.Create(ctx, api.CreateRequest{Image: "box", Name: "box", AutoCheckpoint: &api.AutoCheckpoint{Keep: 6}})
	if err != nil {
		t.Fatal(err)
	}
	if steps := n.timeline("box"); len(steps) != 0 {
		t.Errorf("steps of a sandbox that has run nothing: %+v", steps)
	}
	n.hold("box", "-value", "one", "-only", held)  // 1, after the start
	n.guest("box", "edit", "put /precious x")      // 2
	n.change("box", "one", "two")                  // 3
	n.guest("box", "edit", "rm /precious")         // 4
	n.change("box", "two", "three")                // 5
	n.guest("box", "edit", "put /other it's here") // 6
	steps := n.timeline("box")
	var numbers []int
	for _, s := range steps {
		numbers = append(numbers, s.Step)
	}
	if !slices.Equal(numbers, []int{1, 2, 3, 4, 5, 6}) || !steps[5].Current || steps[3].Kind != api.StepExec || steps[3].Command != "guest edit 'rm /precious'" ||
		steps[5].Command != `guest edit 'put /other it'\''s here'` {
		t.Fatalf("the steps are %+v", steps)
	}
	if list, err := n.m.Snapshots(ctx); err != nil || len(list) != 0 {
		t.Errorf("the snapshots are %v, %v", list, err)
	}
	_, err = n.m.GetSnapshot(ctx, steps[0].Snapshot)
	wantCode(t, err, api.CodeNotFound)

	// The first command that breaks it is found, and nothing is left of the search.
	for range 2 {
		r, err := n.m.Bisect(ctx, "box", api.BisectRequest{Argv: []string{"guest", "say", "file:/precious"}})
		if err != nil {
			t.Fatal(err)
		}
		// At step 1 it is not there yet: what is asked for fails, holds and fails.
		if r.First == nil || r.First.Step != 4 || r.ExitCode == 0 || !strings.Contains(r.Stderr, "/precious") || len(r.Tried) > 4 {
			t.Errorf("found %+v, exit code %d, %q after %v", r.First, r.ExitCode, r.Stderr, r.Tried)
		}
		n.reopen() // steps are there after a restart
	}
	if r, err := n.m.Bisect(ctx, "box", api.BisectRequest{Argv: []string{"guest", "true"}}); err != nil || r.First != nil || len(r.Tried) != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	_, err = n.m.Bisect(ctx, "box", api.BisectRequest{})
	wantCode(t, err, api.CodeInvalid)
	if list, err := n.m.List(ctx, api.ListFilter{}); err != nil || len(list) != 1 {
		t.Errorf("the sandboxes are %v, %v", list, err)
	}

	// Back, and forth again, and on from there.
	for _, c := range []struct {
		step int
		want string
	}{{3, "two"}, {6, "three"}, {2, "one"}} {
		s, err := n.m.Rewind(ctx, "box", c.step)
		if err != nil || s.ID != box.ID {
			t.Fatalf("rewind to %d: %+v, %v", c.step, s, err)
		}
		for _, s := range n.timeline("box") {
			if s.Current != (s.Step == c.step) {
				t.Errorf("after a rewind to %d the step is %+v", c.step, s)
			}
		}
		kid := n.fork("box", 1)[0].ID // looks without a step in the parent
		n.mustHold(kid, c.want)
		if steps := n.timeline(kid); len(steps) != 2 || steps[0].Kind != api.StepStart {
			t.Errorf("a child has the steps %+v", steps)
		}
		n.destroy(kid)
	}
	n.guest("box", "say", "file:/precious")
	steps = n.timeline("box")
	if last := steps[len(steps)-1]; len(steps) != 3 || last.Step != 7 || !last.Current || steps[1].Step != 2 {
		t.Errorf("after going on from step 2 the steps are %+v", steps)
	}
	_, err = n.m.Rewind(ctx, "box", 5)
	wantCode(t, err, api.CodeNotFound)
	if err == nil || !strings.Contains(err.Error(), "it has 1 to 2, 7") {
		t.Errorf("an unknown step: %v", err)
	}
	n.create("plain")
	_, err = n.m.Bisect(ctx, "plain", api.BisectRequest{Argv: []string{"guest", "true"}})
	wantCode(t, err, api.CodeWrongState)
	n.destroy("plain", "box")
	eventually(t, "checkpoints are collected", func() error {
		if files := filesBelow(t, n.paths.Snapshots()); len(files) != 0 {
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
	ctx := asOwner
	rng := seeded(t)
	n := newNode(t)
	if _, err := n.m.Create(ctx, api.CreateRequest{Image: "box", Name: "base", AutoCheckpoint: &api.AutoCheckpoint{Keep: 5}}); err != nil {
		t.Fatal(err)
	}
	n.hold("base", "-value", "zero", "-only", held)
	for range 5 { // so that no step is from before that
		n.guest("base", "true")
	}
	n.close()
	rounds := kills(t, 5, 2)
	states := map[api.SnapshotState]int{}
	for range rounds {
		p := startVictim(t, victim{Runtime: n.paths.RuntimeDir(), Data: n.paths.DataDir(), Engine: n.build, Seed: rng.Uint64(), Steps: true})
		for range 2 + rng.IntN(5) {
			p.next()
		}
		moment(rng, 60*time.Millisecond)
		p.kill()
		n.open()
		for _, s := range n.timeline("base") {
			if states[s.State]++; s.State == api.SnapshotReady {
				if _, err := n.m.Rewind(ctx, "base", s.Step); err != nil {
					t.Errorf("step %d: %v", s.Step, err)
				}
				kid := n.fork("base", 1)[0].ID
				n.mustHold(kid, "zero")
				n.destroy(kid)
			} else if s.State != api.SnapshotFailed {
				t.Errorf("a step is %+v", s)
			}
		}
		n.close()
	}
	t.Logf("found: %v", states)
	n.open()
	n.destroy("base")
	if files := filesBelow(t, n.paths.Snapshots()); len(files) != 0 {
		t.Errorf("left over: %v", files)
	}
}
