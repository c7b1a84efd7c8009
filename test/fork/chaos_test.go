package fork

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/test/harness"
)

// chaos is a node that several users do random things to at once.
type chaos struct {
	*harness.Node
	mu   sync.Mutex
	done map[string]int // operations that succeeded
	lost map[string]int // and that came too late
}

// TestManyUsers does everything at once to a handful of sandboxes. Operations
// may come too late, but nothing may fail in a way that is not to be expected,
// and in the end every sandbox must work.
func TestManyUsers(t *testing.T) {
	const users = 6
	duration := time.Duration(harness.Count(4, 4, 60)) * time.Second
	rng := harness.Seeded(t)
	c := &chaos{Node: harness.NewNode(t), done: map[string]int{}, lost: map[string]int{}}
	c.Create("base")
	c.Hold("base", "-value", "zero", "-only", "heap,bulk,files,child,shared-bulk,tcp", "-bulk", "2")
	if _, err := c.Machine.Snapshot(harness.AsOwner, "base", api.SnapshotRequest{Name: "start"}); err != nil {
		t.Fatal(err)
	}
	until, latest := time.Now().Add(duration), time.Now().Add(duration+harness.Timeout) // for a slow machine
	var wg sync.WaitGroup
	for range users {
		rng := rand.New(rand.NewPCG(rng.Uint64(), 0))
		wg.Add(1)
		go func() {
			defer wg.Done()
			for time.Now().Before(until) || !c.hasDoneAll() && time.Now().Before(latest) {
				c.step(rng)
			}
		}()
	}
	wg.Wait()
	t.Logf("done: %v, too late: %v", c.done, c.lost)
	for _, op := range chaosOps {
		if c.done[op] == 0 {
			t.Errorf("%s never succeeded: the test proves nothing about it", op)
		}
	}
	for _, s := range c.list() {
		if s.State == api.StatePaused {
			if _, err := c.Machine.Resume(harness.AsOwner, s.ID); err != nil {
				t.Error(err)
			}
		}
		c.MustHold(s.ID, "zero")
	}
}

// chaosOps are those that must succeed once.
var chaosOps = []string{"fork", "exec", "destroy", "promote", "rollback", "snapshot", "restore", "diff", "pause"}

func (c *chaos) hasDoneAll() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !slices.ContainsFunc(chaosOps, func(op string) bool { return c.done[op] == 0 })
}

func (c *chaos) list() []api.Sandbox {
	list, err := c.Machine.List(harness.AsOwner, api.ListFilter{})
	if err != nil {
		c.T.Error(err)
	}
	return list
}

// step does one random thing.
func (c *chaos) step(rng *rand.Rand) {
	ctx := harness.AsOwner
	list := c.list()
	if len(list) == 0 {
		return
	}
	some := list[rng.IntN(len(list))]
	other := list[rng.IntN(len(list))]
	ops := []chaosOp{
		{"exec", func() error { return c.Holds(some.ID, "zero", "heap", "child") }},
		{"exec", func() error { _, err := c.Exec(some.ID, "true"); return err }},
		{"diff", func() error { _, err := c.Machine.Diff(ctx, some.ID, other.ID, api.DiffRequest{}); return err }},
		{"look", func() error {
			if _, err := c.Machine.Tree(ctx, ""); err != nil {
				return err
			}
			_, err := c.Machine.Get(ctx, some.ID)
			return err
		}},
		{"snapshot", func() error {
			s, err := c.Machine.Snapshot(ctx, some.ID, api.SnapshotRequest{Memory: rng.IntN(2) == 0})
			if err != nil {
				return err
			}
			err = c.Machine.DeleteSnapshot(ctx, s.ID, api.SnapshotDeletion{Flatten: true})
			if api.CodeOf(err) == api.CodeWrongState {
				return nil // another one that depends on it is being written
			}
			return err
		}},
		{"pause", func() error {
			if _, err := c.Machine.Pause(ctx, some.ID); err != nil {
				return err
			}
			_, err := c.Machine.Resume(ctx, some.ID)
			return err
		}},
		{"rollback", func() error { _, err := c.Machine.Rollback(ctx, some.ID, "start"); return err }},
	}
	const enough = 12
	if len(list) < enough {
		ops = append(ops,
			chaosOp{"fork", func() error {
				_, err := c.Machine.Fork(ctx, some.ID, api.ForkRequest{Count: 1 + rng.IntN(2)})
				return err
			}},
			chaosOp{"restore", func() error { _, err := c.Machine.Restore(ctx, "start", api.RestoreRequest{}); return err }},
		)
	}
	if some.Name != "base" {
		ops = append(ops,
			chaosOp{"destroy", func() error { return c.Machine.Destroy(ctx, some.ID) }},
			chaosOp{"promote", func() error { _, err := c.Machine.Promote(ctx, some.ID); return err }},
		)
	}
	c.try(ops[rng.IntN(len(ops))])
}

// chaosOp is something that a user does.
type chaosOp struct {
	name string
	run  func() error
}

// tooLate are the errors of an operation on something that another user
// destroyed, paused or changed meanwhile.
var tooLate = []api.Code{api.CodeNotFound, api.CodeWrongState, api.CodeConflict, api.CodeSandboxDied}

func (c *chaos) try(op chaosOp) {
	began := time.Now()
	err := op.run()
	c.mu.Lock()
	defer c.mu.Unlock()
	if d := time.Since(began); d > harness.Timeout { // that of the node, when a sentry hangs
		c.T.Errorf("%s took %v and ended with %v", op.name, d, err)
	}
	switch {
	case err == nil:
		c.done[op.name]++
	case slices.Contains(tooLate, api.CodeOf(err)):
		c.lost[op.name]++
	default:
		c.T.Errorf("%s: %v", op.name, err)
	}
}
