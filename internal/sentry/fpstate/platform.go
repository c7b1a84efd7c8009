package fpstate

import (
	"errors"
	"fmt"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/platform"
)

// Platform is a systrap platform that restores these registers after every interrupt.
type Platform struct {
	platform.Platform
}

// NewPlatform wraps inner, which must be the systrap platform.
func NewPlatform(inner platform.Platform) *Platform { return &Platform{inner} }

// NewContext implements platform.Platform.
func (p *Platform) NewContext(ctx context.Context) platform.Context {
	return &task{p.Platform.NewContext(ctx)}
}

type task struct {
	platform.Context
}

// Switch implements platform.Context. What systrap saved is right in all cases, so it is
// taken and given back as if it had been changed.
func (t *task) Switch(ctx context.Context, mm platform.MemoryManager, ac *arch.Context64, cpu int32) (*linux.SignalInfo, hostarch.AccessType, error) {
	info, access, err := t.Context.Switch(ctx, mm, ac, cpu)
	if !errors.Is(err, platform.ErrContextSignal) || linux.Signal(info.Signo) != platform.SignalInterrupt {
		return info, access, err
	}
	if err := t.PullFullState(mm.AddressSpace(), ac); err != nil {
		return nil, hostarch.NoAccess, fmt.Errorf("take registers of an interrupted thread: %w", err)
	}
	t.FullStateChanged()
	return info, access, err
}
