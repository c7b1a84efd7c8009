package guest

import (
	gocontext "context"

	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/state"

	"ramet.dev/ramet/internal/sentry/reseed"
)

// randomnessKey names what is known of random generators in the kernel's saved state.
const randomnessKey = "ramet.randomness"

// randomness is what is known of random generators. A sandbox that was never loaded has
// none, nor has a state that was saved before there was any.
type randomness struct {
	// loads is how often the kernel was loaded, and those that it was saved from.
	loads uint32
}

// beginGeneration has generators in k, which was just loaded, draw new seeds.
func beginGeneration(k *kernel.Kernel) {
	r, ok := k.PopCheckpointState(randomnessKey).(*randomness)
	if !ok {
		r = &randomness{}
	}
	r.loads++
	k.AddStateToCheckpoint(randomnessKey, r)
	reseed.Begin(r.loads)
}

func (*randomness) StateTypeName() string {
	return "ramet.dev/ramet/internal/sentry/guest.randomness"
}
func (*randomness) StateFields() []string                             { return []string{"loads"} }
func (r *randomness) StateSave(sink state.Sink)                       { sink.Save(0, &r.loads) }
func (r *randomness) StateLoad(_ gocontext.Context, src state.Source) { src.Load(0, &r.loads) }

func init() { state.Register((*randomness)(nil)) }
