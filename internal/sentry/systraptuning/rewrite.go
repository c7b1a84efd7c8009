package systraptuning

import (
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/platform"
)

// rewriteAfter is how many system calls a process makes before one is rewritten. To rewrite a
// call takes as long as forty to a hundred calls that are not rewritten.
const rewriteAfter = 100

// tableName is the name of systrap's table of rewritten calls, by which it finds the table
// again in a process that was forked or restored, and tableRange is where the table is
// (usertrap_amd64.go: tableVMAName, trapTableAddrRange). On arm64 systrap rewrites nothing.
const tableName = "[usertrap]"

var tableRange = hostarch.AddrRange{Start: 0x60000, End: 0x70000}

// tableSearch is where to look for the table: a search ends at the first mapping that does not
// begin in the range, and a mapping may begin below the table's range and reach into it.
var tableSearch = hostarch.AddrRange{End: tableRange.End}

// cold is the context of a Switch of a process that has made few calls. Systrap asks it
// for the task before it rewrites a call, and leaves the call as it is if there is none.
// It also asks when an instruction is not valid, which may be half a rewritten call: as
// soon as a call of the process may have been rewritten, the task is not withheld any more.
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
		// The table is from before it was saved, or its parent's, of whom nothing is known.
		if _, _, err := c.mm.FindVMAByName(tableSearch, tableName); err == nil {
			c.as.traps.Store(rewriteAfter)
		}
	})
	return c.as.traps.Load() <= rewriteAfter && c.as.traps.Add(1) <= rewriteAfter
}

// Warningf implements context.Context. It drops systrap's warnings that there is no task.
func (c *cold) Warningf(format string, v ...any) {
	if c.as.traps.Load() > rewriteAfter {
		c.Context.Warningf(format, v...)
	}
}
