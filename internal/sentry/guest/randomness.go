package guest

import (
	gocontext "context"

	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/mm"
	"gvisor.dev/gvisor/pkg/state"

	"ramet.dev/ramet/internal/sentry/cow"
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

// renewDrawn replaces what programs have drawn ahead of random numbers. Nothing runs yet.
func (g *Guest) renewDrawn() {
	ctx := g.k.SupervisorContext()
	for _, m := range cow.Memories(g.k) {
		program := executableOf(ctx, m)
		if !reseed.IsNode(program) {
			continue
		}
		if err := reseed.RenewNode(ctx, m, cow.InUse(m)); err != nil {
			log.Warningf("Random numbers that %s has drawn ahead: %v", program, err)
		}
	}
}

// executableOf returns the path of what a process executes, or "".
func executableOf(ctx context.Context, m *mm.MemoryManager) string {
	file := m.Executable()
	if file == nil {
		return ""
	}
	defer file.DecRef(ctx)
	return file.MappedName(ctx)
}

func (*randomness) StateTypeName() string {
	return "ramet.dev/ramet/internal/sentry/guest.randomness"
}
func (*randomness) StateFields() []string                             { return []string{"loads"} }
func (r *randomness) StateSave(sink state.Sink)                       { sink.Save(0, &r.loads) }
func (r *randomness) StateLoad(_ gocontext.Context, src state.Source) { src.Load(0, &r.loads) }

func init() { state.Register((*randomness)(nil)) }
