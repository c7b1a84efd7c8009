package systraptuning

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"

	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/platform"
)

// taskContext has a task, and notes what is warned of.
type taskContext struct {
	context.Context
	warned atomic.Int32
}

func (*taskContext) Value(key any) any {
	if key == kernel.CtxTask {
		return "the task"
	}
	return fmt.Sprint("value of ", key)
}

func (c *taskContext) Warningf(string, ...any) { c.warned.Add(1) }

// tableMemory is the memory of a process that may have rewritten calls.
type tableMemory struct {
	platform.MemoryManager
	hasTable bool
	looks    atomic.Int32
}

func (m *tableMemory) FindVMAByName(ar hostarch.AddrRange, name string) (hostarch.Addr, uint64, error) {
	m.looks.Add(1)
	if m.hasTable && name == tableName && ar.Start == 0 && ar.End == tableRange.End {
		return 0x6f000, 0, nil
	}
	return 0, 0, errors.New("there is none")
}

// TestRewriting checks which of a process's calls may be rewritten.
func TestRewriting(t *testing.T) {
	mm := &tableMemory{}
	c := &cold{&taskContext{}, mm, &addressSpace{}}
	for n := 1; n <= rewriteAfter; n++ {
		if got := c.Value(kernel.CtxTask); got != nil {
			t.Fatalf("call %d may be rewritten: it got %v", n, got)
		}
	}
	if got := c.Value("x"); got != "value of x" {
		t.Errorf("another value is %v", got)
	}
	for range 2 {
		if got := c.Value(kernel.CtxTask); got != "the task" {
			t.Errorf("a later call got %v", got)
		}
	}
	if n := mm.looks.Load(); n != 1 {
		t.Errorf("it looked %d times for rewritten calls", n)
	}
}

// TestRewrittenBefore checks that nothing is withheld from a process that has rewritten
// calls when it begins: one of its threads may have stopped in the middle of one.
func TestRewrittenBefore(t *testing.T) {
	mm, as := &tableMemory{hasTable: true}, &addressSpace{}
	var threads sync.WaitGroup
	for range 8 {
		threads.Go(func() {
			if (&cold{&taskContext{}, mm, as}).Value(kernel.CtxTask) == nil {
				t.Error("a thread got no task")
			}
		})
	}
	threads.Wait()
	as.traps.Store(math.MaxInt32)
	if (&cold{&taskContext{}, mm, as}).Value(kernel.CtxTask) == nil {
		t.Error("the task is withheld when calls cannot be counted any more")
	}
}

// TestWarnings checks that systrap's complaint of a task that it did not get is dropped,
// and nothing else.
func TestWarnings(t *testing.T) {
	ctx, as := &taskContext{}, &addressSpace{}
	c := &cold{ctx, &tableMemory{}, as}
	c.Value(kernel.CtxTask)
	c.Warningf("usertrap.HandleFault failed: %v", "no task found")
	if ctx.warned.Load() != 0 {
		t.Error("it is told on")
	}
	as.traps.Store(rewriteAfter + 1)
	c.Warningf("no space in the trap table")
	if ctx.warned.Load() != 1 {
		t.Error("what comes later is not told on")
	}
}
