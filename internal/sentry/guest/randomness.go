package guest

import (
	"cmp"
	gocontext "context"
	"maps"
	"slices"
	"strings"

	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/mm"
	"gvisor.dev/gvisor/pkg/state"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/sentry/cow"
	"ramet.dev/ramet/internal/sentry/reseed"
)

// randomnessKey names the count of loads in the kernel's saved state.
const randomnessKey = "ramet.randomness"

// randomness counts loads for random generators. A sandbox that was never loaded has none.
type randomness struct {
	// loads is how often the kernel was loaded, and the kernels that it was saved from.
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

// mostPIDs is how many processes of a program are named.
const mostPIDs = 32

// renewDrawn replaces random numbers that programs have drawn ahead, and returns the
// programs with generators that have no new seed. Nothing runs yet.
func renewDrawn(k *kernel.Kernel) []api.Reseed {
	ctx, programs := k.SupervisorContext(), map[string]*api.Reseed{}
	root, seen := k.TaskSet().Root, map[*mm.MemoryManager]bool{nil: true} // that of a task that is exiting
	for _, t := range root.Tasks() {
		var m *mm.MemoryManager
		t.WithMuLocked(func(t *kernel.Task) { m = t.MemoryManager() })
		if seen[m] {
			continue
		}
		seen[m] = true
		program, failed := executableOf(ctx, m), reseed.Unaware(ctx, m)
		if reseed.IsNode(program) {
			if err := reseed.RenewNode(ctx, m, cow.InUse(m)); err != nil {
				failed = append(failed, "crypto.randomUUID and crypto.randomInt: "+err.Error())
			}
		}
		if len(failed) == 0 {
			continue
		}
		r := programs[program]
		if r == nil {
			r = &api.Reseed{Program: program, Generators: []string{}}
			programs[program] = r
		}
		if len(r.PIDs) < mostPIDs {
			r.PIDs = append(r.PIDs, int(root.IDOfThreadGroup(t.ThreadGroup())))
		}
		for _, f := range failed {
			if !slices.Contains(r.Failed, f) {
				r.Failed = append(r.Failed, f)
			}
		}
	}
	var all []api.Reseed
	for _, program := range slices.Sorted(maps.Keys(programs)) {
		slices.Sort(programs[program].PIDs)
		all = append(all, *programs[program])
	}
	return all
}

// requireFresh returns an error if a generator has no new seed, or not yet.
func requireFresh(all []api.Reseed) error {
	for _, r := range all {
		name := cmp.Or(r.Program, "context "+r.Context)
		switch {
		case len(r.Failed) > 0:
			return api.Errorf(api.CodeUnsupported, "fresh randomness was required and cannot be had: %s: %s", name, strings.Join(r.Failed, "; "))
		case r.Pending:
			return api.Errorf(api.CodeUnsupported, "fresh randomness was required and cannot be had: %s takes its new seed when its cell has ended", name)
		}
	}
	return nil
}

// executableOf returns the path of the program that a process executes, or "".
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
