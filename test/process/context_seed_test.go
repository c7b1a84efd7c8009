package process

import (
	"slices"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/test/harness"
)

// TestContextForkAsleep forks an interpreter in which nothing runs between cells: it
// is not woken for its new seed, which is as good as given.
func TestContextForkAsleep(t *testing.T) {
	x := newContextTest(t)
	x.value("box", "import random\nrandom.seed(1)")
	child := x.Fork("box", 1)[0].ID
	before := x.PrivateMiB(child)
	r, err := x.Machine.Fork(harness.AsOwner, child, api.ForkRequest{Count: 2})
	if err != nil {
		t.Fatal(err)
	}
	drawn := map[string]string{}
	for _, ref := range []string{"box", child, x.Children(r)[0].ID, x.Children(r)[1].ID} {
		drawn[x.value(ref, "random.random()")] = ref
	}
	if told := r.Children[0].Identity.Reseeded; len(drawn) != 4 || len(told) != 1 || told[0].Pending || !slices.Contains(told[0].Generators, "random") {
		t.Errorf("numbers %v, and identity says %+v", drawn, told)
	}
	// An interpreter that does anything writes to all over its heap.
	if grown := x.PrivateMiB(child) - before; grown < 1.5 {
		t.Errorf("the first cell took %.1f MiB: the interpreter was awake", grown)
	}
}

// TestContextThreadsAreSeeded forks an interpreter one of whose threads draws numbers
// later, and was started at the very end of a cell.
func TestContextThreadsAreSeeded(t *testing.T) {
	x := newContextTest(t)
	x.value("box", "import random, _thread, os, time\nrandom.seed(1)\ndrawn = []\ndef draw():\n    while not os.path.exists('/tmp/go'): time.sleep(0.01)\n    drawn.append(random.random())")
	x.value("box", "_thread.start_new_thread(draw, ()); None")
	numbers := map[string]bool{}
	for _, c := range append(x.Fork("box", 2), &api.Sandbox{ID: "box"}) {
		if out, err := x.Run(c.ID, api.ExecRequest{Shell: "touch /tmp/go"}, ""); err != nil || out.ExitCode != 0 {
			t.Fatal(err)
		}
		numbers[x.value(c.ID, "while not drawn: time.sleep(0.01)\ndrawn[0]")] = true
	}
	if len(numbers) != 3 {
		t.Errorf("three sandboxes drew %v", numbers)
	}
}

// TestContextSeedFails has a generator that takes no seed: whoever uses it in a child
// is told.
func TestContextSeedFails(t *testing.T) {
	x := newContextTest(t)
	x.value("box", "import random\ndef refuse(*_): raise ValueError('no')\nrandom.seed = refuse")
	child := x.Fork("box", 1)[0].ID
	first, second := x.cell(child, "1"), x.cell(child, "2")
	if said := first.stderr.String(); !first.OK || !strings.Contains(said, "no new random seed: random: ") || second.stderr.Len() > 0 {
		t.Errorf("the first cell says %q, the second %q", said, second.stderr.String())
	}
}
