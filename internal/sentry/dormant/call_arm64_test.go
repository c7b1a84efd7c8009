package dormant

import (
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/arch"
)

var (
	nop      = []byte{0x1f, 0x20, 0x03, 0xd5}
	readCall = []byte{0x01, 0x00, 0x00, 0xd4}
)

var codes = map[string]code{
	"a call":                         {append(nop[:4:4], readCall...), 4, true},
	"a call with a constant":         {[]byte{0xe1, 0xff, 0x1f, 0xd4}, 0, true},
	"before a call":                  {append(nop[:4:4], readCall...), 0, false},
	"a call that is not aligned":     {append(nop[:2:2], readCall...), 2, false},
	"a hypervisor call":              {[]byte{0x02, 0x00, 0x00, 0xd4}, 0, false},
	"a breakpoint":                   {[]byte{0x00, 0x00, 0x20, 0xd4}, 0, false},
	"half of a call, then no memory": {readCall[:2], 0, false},
	"no memory":                      {nop, 100, false},
}

// beforeRead sets the registers of a thread that is about to call read(2) at an address.
func beforeRead(ac *arch.Context64, at uint64) {
	ac.Regs.Pc, ac.Regs.Regs[8], ac.Regs.Regs[0], ac.Regs.Regs[30], ac.Regs.Pstate = at, unix.SYS_READ, 3, 7, 0x6000_0000
}

// behindRead reports whether registers are those of a thread that has called read(2) at an address.
func behindRead(ac *arch.Context64, at uint64) bool {
	r := ac.Regs
	return r.Pc == at+4 && r.Regs[8] == unix.SYS_READ && r.Regs[0] == 3 && r.Regs[30] == 7 && r.Pstate == 0x6000_0000
}
