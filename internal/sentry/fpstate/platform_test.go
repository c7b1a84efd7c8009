package fpstate

import (
	"errors"
	"slices"
	"testing"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/platform"
)

// fake is a platform whose only context returns from Switch as it is told.
type fake struct {
	platform.Platform
	platform.Context
	signal  linux.Signal
	err     error
	pullErr error
	calls   []string
}

func (f *fake) NewContext(context.Context) platform.Context { return f }

func (f *fake) Switch(context.Context, platform.MemoryManager, *arch.Context64, int32) (*linux.SignalInfo, hostarch.AccessType, error) {
	f.calls = append(f.calls, "switch")
	if f.err != platform.ErrContextSignal {
		return nil, hostarch.NoAccess, f.err
	}
	return &linux.SignalInfo{Signo: int32(f.signal)}, hostarch.Write, f.err
}

func (f *fake) PullFullState(platform.AddressSpace, *arch.Context64) error {
	f.calls = append(f.calls, "pull")
	return f.pullErr
}

func (f *fake) FullStateChanged() { f.calls = append(f.calls, "changed") }

type noMemory struct{ platform.MemoryManager }

func (noMemory) AddressSpace() platform.AddressSpace { return nil }

// TestOnlyInterrupts has registers restored after interrupts only: of a fault and a system
// call, of which there are many more, systrap knows where they are.
func TestOnlyInterrupts(t *testing.T) {
	lost := errors.New("lost")
	for _, c := range []struct {
		name  string
		fake  fake
		calls []string
		err   error
	}{
		{"system call", fake{}, []string{"switch"}, nil},
		{"fault", fake{signal: linux.SIGSEGV, err: platform.ErrContextSignal}, []string{"switch"}, platform.ErrContextSignal},
		{"interrupt", fake{signal: platform.SignalInterrupt, err: platform.ErrContextSignal}, []string{"switch", "pull", "changed"}, platform.ErrContextSignal},
		{"gone", fake{signal: platform.SignalInterrupt, err: platform.ErrContextSignal, pullErr: lost}, []string{"switch", "pull"}, lost},
		{"failed", fake{err: lost}, []string{"switch"}, lost},
	} {
		info, access, err := NewPlatform(&c.fake).NewContext(nil).Switch(nil, noMemory{}, nil, 0)
		if !slices.Equal(c.fake.calls, c.calls) || !errors.Is(err, c.err) {
			t.Errorf("%s: the calls were %q, and %v was returned", c.name, c.fake.calls, err)
		}
		if errors.Is(err, platform.ErrContextSignal) && (info.Signo != int32(c.fake.signal) || access != hostarch.Write) {
			t.Errorf("%s: signal %d with access %v", c.name, info.Signo, access)
		}
	}
}
