package fork

import (
	"testing"

	"ramet.dev/ramet/test/harness"
)

// TestRandomForks forks a sandbox with one of each kind of state but the one that never waits, and descendants of it,
// at random into few or many, until there were so many children: in each all of the state must be right.
func TestRandomForks(t *testing.T) {
	harness.OnlyOnce(t, "what is copied does not depend on who starts sandboxes")
	rng := harness.Seeded(t)
	n := harness.NewNode(t)
	n.Create("base")
	n.Hold("base", "-value", "zero", "-still")
	parents := []string{"base"}
	for made := 0; made < harness.Count(12, 4, 10_000) && !t.Failed(); {
		counts := []int{1, 2, 3, 5, manyChildren, manyChildren + 9}
		children := n.Fork(parents[rng.IntN(len(parents))], counts[rng.IntN(len(counts))])
		next := rng.IntN(len(children))
		for i, c := range children {
			if n.MustHold(c.ID, "zero"); i != next {
				n.Destroy(c.ID)
			}
		}
		made += len(children)
		if parents = append(parents, children[next].ID); len(parents) > 4 {
			n.DestroyAllBut("base")
			parents = parents[:1]
			n.Change("base", "zero", "zero") // the state of timers is how much time they have left, within ten minutes
		}
	}
}
