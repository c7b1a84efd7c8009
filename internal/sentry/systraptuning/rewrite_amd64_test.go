package systraptuning

import (
	"testing"
	_ "unsafe" // for go:linkname

	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/platform/systrap/usertrap"
)

//go:linkname trapTableAddrRange gvisor.dev/gvisor/pkg/sentry/platform/systrap/usertrap.trapTableAddrRange
var trapTableAddrRange hostarch.AddrRange

// TestCanaryRewriting checks that systrap keeps what it rewrote where it is looked for, and
// touches nothing of a process whose task is withheld: there is nothing here to touch. That
// the name is right, TestBriefPrograms shows.
func TestCanaryRewriting(t *testing.T) {
	if tableRange != trapTableAddrRange {
		t.Errorf("systrap keeps what it rewrote in %v, not in %v", trapTableAddrRange, tableRange)
	}
	c := &cold{&taskContext{}, &tableMemory{}, &addressSpace{}}
	if err := usertrap.New().PatchSyscall(c, nil, nil); err == nil {
		t.Error("a call was rewritten")
	}
	if err := usertrap.New().HandleFault(c, nil, nil); err == nil {
		t.Error("an instruction was looked at")
	}
}
