package node

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/node/freezes"
	"ramet.dev/ramet/internal/node/snapshots"
	"ramet.dev/ramet/internal/storage/store"
)

// A timeline is the list of steps of a sandbox that is checkpointed by itself. Each
// has a snapshot that only the sandbox itself returns to: frozen before the command's
// result is told, and written in the background as what differs from the one before.

// timeline is guarded by box.mu.
type timeline struct {
	Steps []step `json:"steps"`
	// Next is the number of the next step, and At the one that the sandbox is at or
	// came from. Steps behind that are dropped with the next one.
	Next int `json:"next"`
	At   int `json:"at"`
}

// step is what is stored of one.
type step struct {
	api.Step
}

// maxCommand bounds what is kept of a command, in bytes.
const maxCommand = 1 << 10

func shortCommand(text string) string {
	if len(text) <= maxCommand {
		return text
	}
	return strings.ToValidUTF8(text[:maxCommand], "") + "…"
}

// stepping takes the first step of b, if it is to be checkpointed and has none. The
// result is to be called with what was done then, and is never nil.
func (m *Node) stepping(ctx context.Context, b *instance) func(s api.Step) {
	if b.view().AutoCheckpoint == nil {
		return func(api.Step) {}
	}
	b.mu.Lock()
	none := len(b.timeline.Steps) == 0
	b.mu.Unlock()
	if none {
		b.stepping.Lock()
		if m.checkpointed(b) == 0 {
			m.checkpoint(ctx, b, api.Step{Kind: api.StepStart})
		}
		b.stepping.Unlock()
	}
	return func(s api.Step) {
		b.stepping.Lock()
		defer b.stepping.Unlock()
		m.checkpoint(ctx, b, s)
	}
}

func (m *Node) checkpointed(b *instance) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.timeline.Steps)
}

// checkpoint adds a step with the present state of b. A step whose state could not be
// kept is there, and has failed: the command was run. The caller holds b.stepping.
func (m *Node) checkpoint(ctx context.Context, b *instance, s api.Step) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), m.patience) // what was done is a step, even if its caller has gone
	defer cancel()
	s.At, s.Command, s.State = time.Now().UTC(), shortCommand(s.Command), api.SnapshotFailed
	snap, f, err := m.checkpointOf(ctx, b)
	if err != nil {
		m.log.Warn("keep the state after a command", "id", b.id, "error", err)
	} else {
		s.Snapshot, s.State = snap.ID, api.SnapshotUploading
	}
	b.mu.Lock()
	t := b.timeline
	t.Steps = slices.DeleteFunc(slices.Clone(t.Steps), func(old step) bool { return old.Step.Step > t.At })
	s.Step = t.Next
	t.Steps = append(t.Steps, step{s})
	if keep := b.rec.Sandbox.AutoCheckpoint; keep != nil && len(t.Steps) > keep.Keep {
		t.Steps = t.Steps[len(t.Steps)-keep.Keep:]
	}
	t.At, t.Next = t.Next, t.Next+1
	b.timeline = t
	gone := b.rec.Sandbox.State == api.StateDestroyed
	b.mu.Unlock()
	if !gone {
		if err := m.store.Apply(ctx, store.Change{Table: store.Timelines, ID: b.id, Doc: t}); err != nil {
			m.log.Warn("record a step", "id", b.id, "error", err)
		}
	}
	if snap != nil {
		if err := m.upload(ctx, b, snap, f); err != nil {
			snap.Fail(err)
		}
	}
	m.snapshots.Collect()
}

// checkpointOf freezes b for a step.
func (m *Node) checkpointOf(ctx context.Context, b *instance) (*snapshots.Snapshot, *freezes.Freeze, error) {
	f, rec, err := m.capture(ctx, b, api.SnapshotRequest{})
	if err != nil {
		return nil, nil, err
	}
	rec.Private, rec.Snapshot.ExpiresAt = b.id, nil
	s, err := m.snapshots.Add(f, rec)
	if err != nil {
		m.freezes.Drop(f)
		return nil, nil, err
	}
	return s, f, nil
}

// Timeline returns the steps of a sandbox, the first one first.
func (m *Node) Timeline(ctx context.Context, ref string) ([]api.Step, error) {
	b, err := m.resolve(ctx, ref)
	if err != nil {
		return nil, err
	}
	return m.steps(b), nil
}

// steps returns the steps of b with how their snapshots do.
func (m *Node) steps(b *instance) []api.Step {
	b.mu.Lock()
	t := b.timeline
	b.mu.Unlock()
	list := make([]api.Step, len(t.Steps))
	for i, s := range t.Steps {
		list[i] = s.Step
		list[i].Current = s.Step.Step == t.At
		if x := m.snapshots.Get(s.Step.Snapshot); x != nil {
			v := x.View()
			list[i].State, list[i].SizeBytes = v.State, v.SizeBytes
		} else {
			list[i].State = api.SnapshotFailed
		}
	}
	return list
}

// Rewind returns a sandbox to a step of its timeline. Later steps stay until it goes
// on.
func (m *Node) Rewind(ctx context.Context, ref string, number int) (*api.Sandbox, error) {
	b, err := m.resolve(ctx, ref)
	if err != nil {
		return nil, err
	}
	list := m.steps(b)
	i := slices.IndexFunc(list, func(s api.Step) bool { return s.Step == number })
	if i < 0 {
		return nil, api.Errorf(api.CodeNotFound, "sandbox %s has no step %d%s", b.id, number, whyNot(list, number))
	}
	s := m.snapshots.Get(list[i].Snapshot)
	if s == nil {
		return nil, api.Errorf(api.CodeWrongState, "the state of step %d was not kept", number)
	}
	v, err := m.rollback(ctx, b, s)
	if err != nil {
		return nil, err
	}
	b.stepping.Lock()
	defer b.stepping.Unlock()
	b.mu.Lock()
	b.timeline.At = number
	t := b.timeline
	b.mu.Unlock()
	return v, m.store.Apply(ctx, store.Change{Table: store.Timelines, ID: b.id, Doc: t})
}

// whyNot describes which steps there are, and what became of one that is not among
// them.
func whyNot(list []api.Step, number int) string {
	if len(list) == 0 {
		return ": it is not checkpointed by itself, or has run nothing"
	}
	why := ": "
	if list[0].Step < number && number < list[len(list)-1].Step {
		why = ", which was dropped when the sandbox went on from an earlier one: "
	}
	return why + "it has " + rangesOf(list)
}

// rangesOf lists the numbers of steps, those in a row as one range.
func rangesOf(list []api.Step) string {
	var ranges []string
	for first := 0; first < len(list); {
		last := first
		for last+1 < len(list) && list[last+1].Step == list[last].Step+1 {
			last++
		}
		text := strconv.Itoa(list[first].Step)
		if last > first {
			text = fmt.Sprintf("%d to %d", list[first].Step, list[last].Step)
		}
		ranges = append(ranges, text)
		first = last + 1
	}
	return strings.Join(ranges, ", ")
}

// has reports whether a snapshot is that of a step.
func (t *timeline) has(id string) bool {
	return slices.ContainsFunc(t.Steps, func(s step) bool { return s.Snapshot == id })
}
