package node

import (
	"sync/atomic"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/node/spawn"
)

// A sandbox goes on when the daemon is replaced by another version. That may not be
// able to load what the sandbox's sentry saves, and so asks it for nothing.
func TestOthersSandboxesAreNotFrozen(t *testing.T) {
	var asked atomic.Int32
	m, b := nodeOf(t, func(call *wire.Call) (any, error) {
		if call.Op == wire.OpFreeze {
			asked.Add(1)
		}
		return nil, api.Errorf(api.CodeNoSpace, "no room")
	})
	m.cfg.Engine = "one"
	var err error
	if b.rec.Process, err = spawn.ProcessOf(b.sentry, "", m.engine()); err != nil {
		t.Fatal(err)
	}
	for engine, want := range map[string]api.Code{"one": api.CodeNoSpace, "two": api.CodeUnsupported} {
		m.cfg.Engine = engine
		for _, rest := range []bool{false, true} {
			if _, _, err := m.freezeInstance(asOwner, b, rest); api.CodeOf(err) != want {
				t.Errorf("engine %s: %v", engine, err)
			}
		}
	}
	if n := asked.Load(); n != 2 {
		t.Errorf("the sentry was asked %d times", n)
	}
	b.rec.Engine = "" // of a version that did not keep it
	if _, _, err := m.freezeInstance(asOwner, b, false); api.CodeOf(err) != api.CodeNoSpace {
		t.Error(err)
	}
}
