package dormant

import (
	"testing"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/platform"
)

var (
	nop      = []byte{0x90, 0x90, 0x90}
	readCall = []byte{0x0f, 0x05}
)

// rewritten is a jump in the place of a system call, with what may be around it.
var rewritten = []byte{0x90, 0xff, 0x24, 0x25, 0x10, 0x20, 0x06, 0x00, 0x90}

var codes = map[string]code{
	"a call":                         {[]byte{0x90, 0x0f, 0x05}, 1, true},
	"a call that was rewritten":      {rewritten, 6, true},
	"the beginning of such":          {rewritten, 1, false},
	"other code":                     {nop, 0, false},
	"half of a call, then no memory": {[]byte{0x90, 0x0f}, 1, false},
	"no memory":                      {nop, 100, false},
	"another jump":                   {[]byte{0xff, 0x25, 0x25, 0x10, 0x20, 0x06, 0x00}, 5, false},
	"what looks like the end of one": {[]byte{0x06, 0x00}, 0, false},
}

// beforeRead sets the registers of a thread that is about to call read(2) at an address.
func beforeRead(ac *arch.Context64, at uint64) {
	ac.Regs.Rip, ac.Regs.Rax, ac.Regs.Orig_rax, ac.Regs.Rcx, ac.Regs.Eflags = at, unix.SYS_READ, 99, 7, 0x246
}

// behindRead reports whether registers are those of a thread that has called read(2) at an address.
func behindRead(ac *arch.Context64, at uint64) bool {
	r, end := ac.Regs, at+2
	return r.Orig_rax == unix.SYS_READ && r.Rax == unix.SYS_READ && r.Rip == end && r.Rcx == end && r.R11 == 0x246
}

func TestSingleStepsAreTheHosts(t *testing.T) {
	h := &host{}
	m, thread, ac := load(t, NewPlatform(h), readCall, 0)
	ac.SetSingleStep()
	if _, _, err := thread.Switch(context.Background(), m, ac, -1); err != platform.ErrContextInterrupt {
		t.Error(err)
	}
	h.expect(t, "space", "run")
}
