package fork

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/test/harness"
)

// treeItems are where each sandbox of the tree keeps a value of its own: in
// memory, in files and in another running process.
const treeItems = "heap,bulk,shared-map,files,child"

const (
	// treeAlive bounds how many sandboxes of the tree live at once.
	treeAlive = 40
	// treeFan is the most children of one fork.
	treeFan = 5
)

// tree is a tree of sandboxes that grows and is pruned at random.
type tree struct {
	*harness.Node
	rng    *rand.Rand
	alive  []string
	values map[string]string // what each must hold
	depth  map[string]int
	forks  int
}

// TestTree makes 100 forks in a tree of random shape and depth. Every sandbox is
// checked when it is born, with what it inherited, when it got a value of its
// own, and before it is destroyed, which may be before its children are.
func TestTree(t *testing.T) {
	forks := harness.Count(100, 30, 1000)
	x := &tree{Node: harness.NewNode(t), rng: harness.Seeded(t), values: map[string]string{}, depth: map[string]int{}}
	root := x.Create("root")
	x.Hold("root", "-value", "root", "-bulk", "1", "-only", treeItems)
	x.born(root.ID, "root", 0)
	deepest := 0
	for x.forks < forks {
		deepest = max(deepest, x.grow(min(treeFan, forks-x.forks)))
		x.prune(treeAlive - treeFan)
	}
	t.Logf("%d forks, depth %d", x.forks, deepest)
	if deepest < 4 {
		t.Errorf("the tree is only %d deep: the test proves nothing", deepest)
	}
	for _, id := range x.alive {
		x.MustHold(id, x.values[id])
	}
	x.checkLineage()
	// A sandbox that is gone keeps its name in the tree while it has descendants, in the next daemon too.
	if i := slices.Index(x.alive, root.ID); i >= 0 {
		x.Destroy(root.ID)
		x.alive = slices.Delete(x.alive, i, i+1)
	}
	x.Reopen()
	x.checkLineage()
	x.prune(0)
}

func (x *tree) born(id, value string, depth int) {
	x.alive = append(x.alive, id)
	x.values[id], x.depth[id] = value, depth
}

// grow forks a random sandbox, gives the children values of their own and
// returns their depth. Now and then the parent changes too.
func (x *tree) grow(most int) int {
	x.T.Helper()
	parent := x.alive[x.rng.IntN(len(x.alive))]
	if x.rng.IntN(2) == 0 {
		parent = x.alive[len(x.alive)-1] // so that it gets deep
	}
	inherited := x.values[parent]
	children := x.Fork(parent, 1+x.rng.IntN(most))
	if x.rng.IntN(3) == 0 {
		x.values[parent] = fmt.Sprintf("changed-%d", x.forks)
		x.Change(parent, inherited, x.values[parent])
	}
	for _, c := range children {
		x.forks++
		value := fmt.Sprintf("fork-%d", x.forks)
		x.Change(c.ID, inherited, value)
		x.born(c.ID, value, x.depth[parent]+1)
		if c.Depth != x.depth[c.ID] || c.Parent != parent {
			x.T.Errorf("%s has parent %s and depth %d, not %s and %d", c.ID, c.Parent, c.Depth, parent, x.depth[c.ID])
		}
	}
	x.MustHold(parent, x.values[parent])
	return x.depth[parent] + 1
}

// prune checks and destroys random sandboxes until at most that many are alive.
func (x *tree) prune(most int) {
	x.T.Helper()
	for len(x.alive) > most {
		i := x.rng.IntN(len(x.alive))
		id := x.alive[i]
		x.MustHold(id, x.values[id])
		x.Destroy(id)
		x.alive = slices.Delete(x.alive, i, i+1)
	}
}

// checkLineage compares the tree that the node reports with how it grew.
func (x *tree) checkLineage() {
	x.T.Helper()
	roots, err := x.Machine.Tree(harness.AsOwner, "")
	if err != nil {
		x.T.Fatal(err)
	}
	seen := 0
	var visit func(n *api.TreeNode, depth int)
	visit = func(n *api.TreeNode, depth int) {
		if d, ok := x.depth[n.ID]; !ok || d != depth {
			x.T.Errorf("%s is at depth %d of the tree, not %d", n.ID, depth, d)
		}
		if n.State == string(api.StateRunning) {
			seen++
		}
		for _, c := range n.Children {
			visit(c, depth+1)
		}
	}
	for _, r := range roots {
		visit(r, 0)
	}
	if seen != len(x.alive) || len(roots) != 1 {
		x.T.Errorf("tree has %d roots and %d living sandboxes, not 1 and %d", len(roots), seen, len(x.alive))
	}
	for _, r := range roots {
		if r.Name != "root" {
			x.T.Errorf("the root of the tree is named %q", r.Name)
		}
	}
}
