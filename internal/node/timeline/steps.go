package timeline

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"ramet.dev/ramet/api"
)

// Config is what Timelines need of the node.
type Config struct {
	Sandboxes Sandboxes
	// Save stores the timeline of a sandbox.
	Save func(ctx context.Context, id string, doc any) error
	// Timeout bounds how long a sandbox is frozen for a step.
	Timeout time.Duration
	Log     *slog.Logger
}

// Sandboxes is the sandboxes and snapshots of the node.
type Sandboxes interface {
	// Find returns the sandbox that the caller calls ref.
	Find(ctx context.Context, ref string) (Sandbox, error)
	// Snapshot returns the snapshot of a step; ok is false if it is gone.
	Snapshot(id string) (s api.Snapshot, ok bool)
	// RestoreStep makes sandboxes of the snapshot of a step, which are not checkpointed.
	RestoreStep(ctx context.Context, snapshot string, req api.RestoreRequest) (*api.ForkResult, error)
	// Destroy ends the sandbox with an id. It is a CodeNotFound error if there is none.
	Destroy(id, reason string) error
	// Run runs a command, and returns at most the last output bytes of each stream.
	Run(ctx context.Context, ref string, req api.ExecRequest, output int) (*api.ExecResult, error)
	// Collect removes the snapshots that no step has any more.
	Collect()
}

// Sandbox is a sandbox that may have a timeline.
type Sandbox interface {
	ID() string
	View() api.Sandbox
	Steps() *Log
	// Checkpoint freezes the sandbox and returns the snapshot of its state, and what
	// begins to write that in the background.
	Checkpoint(ctx context.Context) (snapshot string, write func(context.Context), err error)
	// Rollback returns the sandbox to a snapshot of it.
	Rollback(ctx context.Context, snapshot string) (*api.Sandbox, error)
}

// Timelines is the service of timelines. It is safe for concurrent use.
type Timelines struct{ cfg Config }

// New returns the service of timelines.
func New(cfg Config) *Timelines { return &Timelines{cfg} }

// maxCommand bounds what is kept of a command, in bytes.
const maxCommand = 1 << 10

func shortCommand(text string) string {
	if len(text) <= maxCommand {
		return text
	}
	return strings.ToValidUTF8(text[:maxCommand], "") + "…"
}

// BeginStep takes the first step of b, if it is to be checkpointed and has none, and the step of writes from
// outside before. The result is called with what was done then, and is never nil.
func (t *Timelines) BeginStep(ctx context.Context, b Sandbox) func(api.Step) {
	if b.View().AutoCheckpoint == nil {
		return func(api.Step) {}
	}
	t.begin(ctx, b)
	t.catchUp(ctx, b)
	l := b.Steps()
	return func(s api.Step) {
		l.adding.Lock()
		defer l.adding.Unlock()
		l.takeWrites() // they came while the command ran, and belong to its step
		t.checkpoint(ctx, b, s)
	}
}

// BeginWrite takes the first step of b, if it is to be checkpointed and has none. The result is called with
// the path that was written from outside, and is never nil. All writes until the next command, or until
// somebody asks for the timeline, are one step.
func (t *Timelines) BeginWrite(ctx context.Context, b Sandbox) func(path string) {
	if b.View().AutoCheckpoint == nil {
		return func(string) {}
	}
	t.begin(ctx, b)
	return func(path string) {
		l := b.Steps()
		l.adding.Lock()
		defer l.adding.Unlock()
		if doc, first := l.wrote(path); first {
			t.save(ctx, b, doc)
		}
	}
}

// begin takes the first step of b, if there is none.
func (t *Timelines) begin(ctx context.Context, b Sandbox) {
	l := b.Steps()
	if len(l.read().Steps) > 0 {
		return
	}
	l.adding.Lock()
	defer l.adding.Unlock()
	if len(l.read().Steps) == 0 {
		t.checkpoint(ctx, b, api.Step{Kind: api.StepStart})
	}
}

// catchUp takes a step of the writes from outside that no step has yet, if b runs.
func (t *Timelines) catchUp(ctx context.Context, b Sandbox) {
	if v := b.View(); v.AutoCheckpoint == nil || v.State != api.StateRunning && v.State != api.StatePaused {
		return
	}
	l := b.Steps()
	l.adding.Lock()
	defer l.adding.Unlock()
	if written := l.takeWrites(); written != "" {
		t.checkpoint(ctx, b, api.Step{Kind: api.StepFiles, Command: written})
	}
}

// checkpoint adds a step with the present state of b. A step whose state could not be
// kept is there, and has failed: the command was run. The caller holds the log's adding.
func (t *Timelines) checkpoint(ctx context.Context, b Sandbox, s api.Step) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.cfg.Timeout) // what was done is a step, even if its caller has gone
	defer cancel()
	s.At, s.Command, s.State = time.Now().UTC(), shortCommand(s.Command), api.SnapshotFailed
	snapshot, write, err := b.Checkpoint(ctx)
	if err != nil {
		t.cfg.Log.Warn("keep the state after a command", "id", b.ID(), "error", err)
	} else {
		s.Snapshot, s.State = snapshot, api.SnapshotUploading
	}
	t.save(ctx, b, b.Steps().add(s, b.View().AutoCheckpoint))
	if write != nil {
		write(ctx)
	}
	t.cfg.Sandboxes.Collect()
}

// save stores the timeline of b, unless b is destroyed.
func (t *Timelines) save(ctx context.Context, b Sandbox, doc record) {
	if b.View().State == api.StateDestroyed {
		return
	}
	if err := t.cfg.Save(context.WithoutCancel(ctx), b.ID(), doc); err != nil {
		t.cfg.Log.Warn("record a step", "id", b.ID(), "error", err)
	}
}

// Timeline returns the steps of a sandbox, the first one first.
func (t *Timelines) Timeline(ctx context.Context, ref string) ([]api.Step, error) {
	b, err := t.cfg.Sandboxes.Find(ctx, ref)
	if err != nil {
		return nil, err
	}
	t.catchUp(ctx, b)
	return t.steps(b), nil
}

// steps returns the steps of b with the states of their snapshots.
func (t *Timelines) steps(b Sandbox) []api.Step {
	rec := b.Steps().read()
	list := slices.Clone(rec.Steps)
	for i := range list {
		s := &list[i]
		s.Current = s.Step == rec.At
		if v, ok := t.cfg.Sandboxes.Snapshot(s.Snapshot); ok {
			s.State, s.SizeBytes = v.State, v.SizeBytes
		} else {
			s.State = api.SnapshotFailed
		}
	}
	if list == nil {
		list = []api.Step{}
	}
	return list
}

// Rewind returns a sandbox to a step of its timeline. Later steps stay until it goes
// on.
func (t *Timelines) Rewind(ctx context.Context, ref string, number int) (*api.Sandbox, error) {
	b, err := t.cfg.Sandboxes.Find(ctx, ref)
	if err != nil {
		return nil, err
	}
	t.catchUp(ctx, b)
	list := t.steps(b)
	i := slices.IndexFunc(list, func(s api.Step) bool { return s.Step == number })
	if i < 0 {
		return nil, api.Errorf(api.CodeNotFound, "sandbox %s has no step %d%s", b.ID(), number, whyNot(list, number))
	}
	if _, ok := t.cfg.Sandboxes.Snapshot(list[i].Snapshot); !ok {
		return nil, api.Errorf(api.CodeWrongState, "the state of step %d was not kept", number)
	}
	v, err := b.Rollback(ctx, list[i].Snapshot)
	if err != nil {
		return nil, err
	}
	l := b.Steps()
	l.adding.Lock()
	defer l.adding.Unlock()
	return v, t.cfg.Save(ctx, b.ID(), l.moveTo(number))
}

// whyNot lists the steps that there are, and explains why number is not among them.
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
