package node

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/test/harness"
)

// lateStart is how long a command may take from its request to its end on a machine with more to do than it can.
const lateStart = 10 * time.Second

// TestCommandsStart makes sandboxes, runs commands in them and in their forks, some at once, and destroys them. Each
// command must end soon. For a soak it goes on for as long as that takes, beside busy processes: a hang of the platform
// was seen once in some 10 000 commands.
func TestCommandsStart(t *testing.T) {
	n := harness.NewNode(t)
	if os.Getenv("RAMET_FS_FUZZ") != "" {
		occupy(t, 4*runtime.NumCPU())
	}
	var commands, slowest atomic.Int64
	run := func(ref string) {
		begin := time.Now()
		out, err := n.Run(ref, api.ExecRequest{Argv: []string{"guest", "true"}, TimeoutMS: 60_000}, "")
		took := time.Since(begin)
		commands.Add(1)
		for was := slowest.Load(); int64(took) > was && !slowest.CompareAndSwap(was, int64(took)); was = slowest.Load() {
		}
		if err == nil && out.OK && took < lateStart {
			return
		}
		trace := "no trace"
		if tr, terr := n.Machine.Trace(harness.AsOwner, ref); terr == nil {
			trace = "when it was late:\n" + working(tr.Missing+tr.Log) + "\nnow:\n" + working(tr.Now)
		}
		t.Errorf("a command in %s took %v: %v\nthreads that waited for a processor:\n%s\n%s", ref, took, err, strings.Join(n.Starved(time.Second), "\n"), trace)
	}
	all := func(refs ...string) {
		var workers sync.WaitGroup
		for _, ref := range refs {
			for range 3 {
				workers.Go(func() {
					for range 5 {
						run(ref)
					}
				})
			}
		}
		workers.Wait()
	}
	round := 0
	harness.Rounds(t, 3, func() {
		round++
		box := n.Create(fmt.Sprintf("box-%d", round))
		all(box.ID)
		children := n.Fork(box.ID, 2)
		all(box.ID, children[0].ID, children[1].ID)
		for _, s := range append(children, box) {
			if err := n.Machine.Destroy(harness.AsOwner, s.ID); err != nil {
				t.Fatal(err)
			}
		}
	})
	t.Logf("%d commands, the slowest took %v", commands.Load(), time.Duration(slowest.Load()))
}

// working returns those parts of a trace that tell of tasks, of their calls, and of what the sentry is asked for.
func working(trace string) string {
	var kept []string
	for part := range strings.SplitSeq(trace, "\n\n") {
		if !strings.HasPrefix(part, "goroutine ") || strings.Contains(part, "kernel.(*Task)") || strings.Contains(part, "ramet.dev/ramet/internal/sentry") {
			kept = append(kept, part)
		}
	}
	return strings.Join(kept, "\n\n")
}

// occupy keeps the processors busy until the test ends.
func occupy(t *testing.T, processes int) {
	t.Helper()
	for range processes {
		cmd := exec.CommandContext(t.Context(), "sh", "-c", "while :; do :; done")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Wait() }) // it was killed
	}
}
