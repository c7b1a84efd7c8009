package systraptuning

import (
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/platform"
)

// rewriteAfter is how many calls a process makes that could be rewritten before one is. To
// rewrite one takes as long as forty to a hundred calls that are not.
const rewriteAfter = 100

// Where systrap keeps what it rewrote calls to, and the name under which it finds that
// again in a process that was forked or restored (usertrap_amd64.go: trapTableAddrRange,
// tableVMAName).
const tableName = "[usertrap]"

var tableRange = hostarch.AddrRange{Start: 0x60000, End: 0x70000}

// tableSearch is where to look for it: a search ends at the first mapping that does not
// begin in it, and one may begin below the table's range and reach into it.
var tableSearch = hostarch.AddrRange{End: tableRange.End}

// cold is the context of a Switch of a process that has made few calls. Systrap asks it
// for the task before it rewrites a call, and leaves the call as it is if there is none.
// It also asks when an instruction is not valid, which may be half a rewritten call: as
// soon as one of the process may have been rewritten, nothing is withheld any more.
type cold struct {
	context.Context
	mm platform.MemoryManager
	as *addressSpace
}

// Value implements context.Context.
func (c *cold) Value(key any) any {
	if key == kernel.CtxTask && c.withhold() {
		return nil
	}
	return c.Context.Value(key)
}

func (c *cold) withhold() bool {
	c.as.inherited.Do(func() {
		// Its parent's, or from before it was saved.
		if _, _, err := c.mm.FindVMAByName(tableSearch, tableName); err == nil {
			c.as.traps.Store(rewriteAfter)
		}
	})
	return c.as.traps.Load() <= rewriteAfter && c.as.traps.Add(1) <= rewriteAfter
}

// Warningf implements context.Context. What systrap would warn of is that it got no task.
func (c *cold) Warningf(format string, v ...any) {
	if c.as.traps.Load() > rewriteAfter {
		c.Context.Warningf(format, v...)
	}
}
