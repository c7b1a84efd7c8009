package snapshot

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
	"ramet.dev/ramet/test/harness"
)

// note is the file that the users of a mixed load write, beside what the holder has.
const note = "/srv/note"

// mixed is what several users of a daemon were told. It is all that they know: the
// daemon is a process that may be killed at any time.
type mixed struct {
	node   *harness.Node
	client *client.Client
	killed atomic.Bool

	mu    sync.Mutex
	next  int // number of the next name
	boxes map[string]*told
	shots map[string]*shot
	begun map[int]*making // calls that make sandboxes and were not answered
	done  map[string]int  // operations that were acknowledged
	torn  map[string]int  // and that were not
}

// told is what is known of a sandbox. What was not acknowledged leaves several
// possibilities.
type told struct {
	// Operations that change the sandbox hold mu for writing, others for reading.
	// Everything else is protected by mixed.mu.
	mu     sync.RWMutex
	name   string
	states []api.State
	values []string // of the holder; "" if there is none
	notes  []string // the file's contents; "" if there is none
	dying  bool     // to destroy it was asked for
}

// shot is what is known of a snapshot.
type shot struct {
	mu          sync.RWMutex // held for writing by what deletes it
	name, of    string
	value, note string
	disk        bool
	ready       bool // that was said
	there       bool // the call was answered
	dying       bool
}

// making is a call that makes sandboxes: all of them, or none.
type making struct {
	names       []string
	value, note string
}

func newMixed(n *harness.Node) *mixed {
	return &mixed{node: n, boxes: map[string]*told{}, shots: map[string]*shot{}, begun: map[int]*making{}, done: map[string]int{}, torn: map[string]int{}}
}

// name returns a name that was never used before. The caller holds mu.
func (x *mixed) name(kind string) string {
	x.next++
	return fmt.Sprintf("%s%d", kind, x.next)
}

// use does random things until the daemon is gone.
func (x *mixed) use(ctx context.Context, rng *rand.Rand) {
	for {
		op, run := x.choose(ctx, rng)
		if run == nil {
			continue // what it needs is busy
		}
		err := run()
		x.mu.Lock()
		switch {
		case err == nil:
			x.done[op]++
		case api.CodeOf(err) == api.CodeUnavailable && x.killed.Load():
			x.torn[op]++
			x.mu.Unlock()
			return
		default:
			x.node.T.Errorf("%s: %v", op, err)
			x.mu.Unlock()
			return
		}
		x.mu.Unlock()
	}
}

// mixedOp is something that a user does. A nil run means that it cannot be done now.
type mixedOp struct {
	name   string
	weight int
	run    func(ctx context.Context, rng *rand.Rand, b *told, s *shot) func() error
}

func (x *mixed) ops() []mixedOp {
	return []mixedOp{
		{"create", 1, x.create}, {"fork", 5, x.fork}, {"restore", 2, x.restore}, {"snapshot to disk", 2, x.snapshot(true, true)},
		{"snapshot in the background", 1, x.snapshot(true, false)}, {"snapshot to memory", 1, x.snapshot(false, true)}, {"delete a snapshot", 2, x.deleteSnapshot},
		{"exec", 2, x.look}, {"exec that changes memory", 3, x.change}, {"write a file", 3, x.write}, {"pause", 1, x.pause},
		{"hibernate", 2, x.rest}, {"rollback", 2, x.rollback}, {"destroy", 4, x.destroy},
	}
}

// choose returns something to do with a random sandbox and snapshot. run gives back
// what it has locked.
func (x *mixed) choose(ctx context.Context, rng *rand.Rand) (string, func() error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	b, s := pick(rng, x.boxes), pick(rng, x.shots)
	all := 0
	for _, o := range x.ops() {
		all += o.weight
	}
	at := rng.IntN(all)
	for _, o := range x.ops() {
		if at -= o.weight; at < 0 {
			return o.name, o.run(ctx, rng, b, s)
		}
	}
	panic("unreachable")
}

// pick returns a random one of all, or the zero value if there is none.
func pick[V any](rng *rand.Rand, all map[string]V) (v V) {
	if len(all) == 0 {
		return v
	}
	names := make([]string, 0, len(all))
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names) // so that the seed decides
	return all[names[rng.IntN(len(names))]]
}

const (
	// mostBoxes and mostShots are how many there are at most, about.
	mostBoxes = 12
	mostShots = 7
)

// makes has call make sandboxes, names of them. The caller holds mu.
func (x *mixed) makes(value, note string, names []string, call func() error) func() error {
	m, number := &making{names: names, value: value, note: note}, x.next
	x.begun[number] = m
	return func() error {
		if err := call(); err != nil {
			return err
		}
		x.mu.Lock()
		defer x.mu.Unlock()
		delete(x.begun, number)
		x.add(m)
		return nil
	}
}

// add enters sandboxes that were made. The caller holds mu.
func (x *mixed) add(m *making) {
	for _, name := range m.names {
		x.boxes[name] = &told{name: name, states: []api.State{api.StateRunning}, values: []string{m.value}, notes: []string{m.note}}
	}
}

func (x *mixed) create(ctx context.Context, rng *rand.Rand, _ *told, _ *shot) func() error {
	if len(x.boxes) >= mostBoxes {
		return nil
	}
	name := x.name("new")
	return x.makes("", "", []string{name}, func() error {
		_, err := x.client.Sandboxes.Create(ctx, api.CreateRequest{Image: "box", Name: name})
		return err
	})
}

// born returns an error unless r has so many children.
func born(r *api.ForkResult, err error, count int) error {
	if err != nil {
		return err
	}
	for _, c := range r.Children {
		if c.Error != nil {
			return c.Error
		}
	}
	if len(r.Children) != count {
		return fmt.Errorf("%d children, not %d", len(r.Children), count)
	}
	return nil
}

func (x *mixed) fork(ctx context.Context, rng *rand.Rand, b *told, _ *shot) func() error {
	if len(x.boxes) >= mostBoxes || !b.mu.TryRLock() {
		return nil
	}
	var names []string
	for range 1 + rng.IntN(3) {
		names = append(names, x.name("kid"))
	}
	made := x.makes(b.values[0], b.notes[0], names, func() error {
		r, err := x.client.Sandboxes.Fork(ctx, b.name, api.ForkRequest{Count: len(names), Names: names})
		return born(r, err, len(names))
	})
	return func() error {
		defer b.mu.RUnlock()
		return made()
	}
}

func (x *mixed) restore(ctx context.Context, rng *rand.Rand, _ *told, s *shot) func() error {
	if len(x.boxes) >= mostBoxes || s == nil || !s.there || !s.mu.TryRLock() {
		return nil
	}
	names := []string{x.name("back")}
	made := x.makes(s.value, s.note, names, func() error {
		r, err := x.client.Snapshots.Restore(ctx, s.name, api.RestoreRequest{Names: names})
		return born(r, err, len(names))
	})
	return func() error {
		defer s.mu.RUnlock()
		return made()
	}
}

func (x *mixed) snapshot(disk, wait bool) func(context.Context, *rand.Rand, *told, *shot) func() error {
	return func(ctx context.Context, rng *rand.Rand, b *told, _ *shot) func() error {
		if len(x.shots) >= mostShots || !b.mu.TryRLock() {
			return nil
		}
		s := &shot{name: x.name("shot"), of: b.name, value: b.values[0], note: b.notes[0], disk: disk}
		x.shots[s.name] = s
		x.mayWake(b)
		return func() error {
			defer b.mu.RUnlock()
			got, err := x.client.Snapshots.Create(ctx, b.name, api.SnapshotRequest{Name: s.name, Memory: !disk, Wait: &wait})
			if err != nil {
				return err
			}
			if wait && got.State != api.SnapshotReady {
				return fmt.Errorf("it is %s", got.State)
			}
			x.mu.Lock()
			defer x.mu.Unlock()
			s.there, s.ready = true, wait
			return nil
		}
	}
}

func (x *mixed) deleteSnapshot(ctx context.Context, rng *rand.Rand, _ *told, s *shot) func() error {
	if s == nil || !s.there || !s.mu.TryLock() {
		return nil
	}
	s.dying = true
	return func() error {
		defer s.mu.Unlock()
		err := x.client.Snapshots.Delete(ctx, s.name, api.SnapshotDeletion{Flatten: rng.IntN(2) == 0})
		x.mu.Lock()
		defer x.mu.Unlock()
		switch {
		case api.CodeOf(err) == api.CodeWrongState || api.CodeOf(err) == api.CodeConflict:
			s.dying = false // others depend on it
			return nil
		case err == nil:
			delete(x.shots, s.name)
		}
		return err
	}
}

// mayWake notes that b runs if it has slept. The caller holds mu.
func (x *mixed) mayWake(b *told) {
	if !slices.Contains(b.states, api.StateRunning) {
		b.states = append(b.states, api.StateRunning)
	}
}

// changes locks b for an operation that changes it, or returns nil. The caller holds
// mu.
func (x *mixed) changes(b *told, call func() error, begun, ended func()) func() error {
	if !b.mu.TryLock() {
		return nil
	}
	begun()
	return func() error {
		defer b.mu.Unlock()
		if err := call(); err != nil {
			return err
		}
		x.mu.Lock()
		defer x.mu.Unlock()
		ended()
		return nil
	}
}

func (x *mixed) look(ctx context.Context, _ *rand.Rand, b *told, _ *shot) func() error {
	return x.changes(b, func() error { return x.exec(ctx, b.name, "guest", "true") }, func() { x.mayWake(b) }, b.runs)
}

// runs notes that a command in b has succeeded.
func (b *told) runs() { b.states = []api.State{api.StateRunning} }

func (x *mixed) exec(ctx context.Context, ref string, argv ...string) error {
	r, err := x.client.Processes.Exec(ctx, ref, api.ExecRequest{Argv: argv})
	if err == nil && r.ExitCode != 0 {
		err = fmt.Errorf("%v: exit code %d: %s%s", argv, r.ExitCode, r.Stdout, r.Stderr)
	}
	return err
}

func (x *mixed) change(ctx context.Context, rng *rand.Rand, b *told, _ *shot) func() error {
	if b.values[0] == "" {
		return nil
	}
	value := x.name("value")
	return x.changes(b, func() error { return x.exec(ctx, b.name, "guest", "ask", "="+value) },
		func() { b.values = append(b.values, value); x.mayWake(b) }, func() { b.values = []string{value}; b.runs() })
}

func (x *mixed) write(ctx context.Context, rng *rand.Rand, b *told, _ *shot) func() error {
	text := x.name("text")
	return x.changes(b, func() error {
		_, err := x.client.Files.Write(ctx, b.name, api.WriteRequest{FileRef: api.FileRef{Path: note}, Atomic: true}, strings.NewReader(text))
		return err
	}, func() { b.notes = append(b.notes, text); x.mayWake(b) }, func() { b.notes = []string{text}; b.runs() })
}

func (x *mixed) pause(ctx context.Context, _ *rand.Rand, b *told, _ *shot) func() error {
	if !slices.Equal(b.states, []api.State{api.StateRunning}) {
		return nil
	}
	return x.changes(b, func() error {
		if _, err := x.client.Sandboxes.Pause(ctx, b.name); err != nil {
			return err
		}
		x.mu.Lock()
		b.states = []api.State{api.StatePaused}
		x.mu.Unlock()
		x.mu.Lock()
		b.states = append(b.states, api.StateRunning)
		x.mu.Unlock()
		_, err := x.client.Sandboxes.Resume(ctx, b.name)
		return err
	}, func() { b.states = append(b.states, api.StatePaused) }, b.runs)
}

// rest puts b to disk, or wakes it.
func (x *mixed) rest(ctx context.Context, _ *rand.Rand, b *told, _ *shot) func() error {
	switch {
	case len(b.states) != 1:
		return nil
	case b.states[0] == api.StateHibernated:
		return x.changes(b, func() error { _, err := x.client.Sandboxes.Wake(ctx, b.name); return err }, func() { x.mayWake(b) }, b.runs)
	}
	return x.changes(b, func() error { _, err := x.client.Sandboxes.Hibernate(ctx, b.name); return err },
		func() { b.states = append(b.states, api.StateHibernated) }, func() { b.states = []api.State{api.StateHibernated} })
}

func (x *mixed) rollback(ctx context.Context, _ *rand.Rand, _ *told, s *shot) func() error {
	if s == nil || !s.ready || x.boxes[s.of] == nil || !s.mu.TryRLock() {
		return nil
	}
	b := x.boxes[s.of]
	run := x.changes(b, func() error { _, err := x.client.Sandboxes.Rollback(ctx, b.name, s.name); return err },
		func() {
			b.values, b.notes = append(b.values, s.value), append(b.notes, s.note)
			x.mayWake(b)
		},
		func() { b.values, b.notes = []string{s.value}, []string{s.note}; b.runs() })
	if run == nil {
		s.mu.RUnlock()
		return nil
	}
	return func() error {
		defer s.mu.RUnlock()
		return run()
	}
}

func (x *mixed) destroy(ctx context.Context, _ *rand.Rand, b *told, _ *shot) func() error {
	if b.name == "base" {
		return nil
	}
	return x.changes(b, func() error { return x.client.Sandboxes.Destroy(ctx, b.name) }, func() { b.dying = true }, func() { delete(x.boxes, b.name) })
}

// settle compares what there is with what the users were told, and takes what
// actually happened for what was not acknowledged. It returns what is wrong.
func (x *mixed) settle(list []api.Sandbox, snaps []api.Snapshot) error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	there := map[string]*api.Sandbox{}
	for i := range list {
		there[list[i].Name] = &list[i]
	}
	for number, m := range x.begun {
		delete(x.begun, number)
		found := 0
		for _, name := range m.names {
			if there[name] != nil {
				found++
			}
		}
		if found != 0 && found != len(m.names) {
			wrong("of the sandboxes %v, which come together or not at all, %d are there", m.names, found)
		}
		if found != 0 {
			x.add(m)
		}
	}
	for name, b := range x.boxes {
		s := there[name]
		delete(there, name)
		switch {
		case s == nil && !b.dying:
			wrong("sandbox %s is lost", name)
			fallthrough
		case s == nil:
			delete(x.boxes, name)
		case !slices.Contains(b.states, s.State):
			wrong("sandbox %s is %s (%s), not one of %v", name, s.State, s.Reason, b.states)
		default:
			b.states, b.dying = []api.State{s.State}, false
		}
	}
	for name, s := range there {
		wrong("nobody knows of sandbox %q, which is %s", name, s.State)
	}
	return errors.Join(append(errs, x.settleSnapshots(snaps))...)
}

// settleSnapshots is settle for snapshots.
func (x *mixed) settleSnapshots(snaps []api.Snapshot) error {
	var errs []error
	for _, found := range snaps {
		s := x.shots[found.Name]
		switch {
		case s == nil && found.State == api.SnapshotDeleted: // kept for those that have part of it
		case s == nil:
			errs = append(errs, fmt.Errorf("nobody knows of snapshot %q, which is %s", found.Name, found.State))
		case found.State == api.SnapshotReady && found.OnDisk && s.disk:
			s.there, s.ready, s.dying = true, true, false
			continue
		case found.State == api.SnapshotDeleted && s.dying:
		case found.State != api.SnapshotFailed || s.disk && s.ready:
			errs = append(errs, fmt.Errorf("snapshot %s, of which was said that it is ready: %v, is %s: %s", found.Name, s.ready, found.State, found.Reason))
		}
		delete(x.shots, found.Name)
	}
	for name, s := range x.shots {
		listed := slices.ContainsFunc(snaps, func(f api.Snapshot) bool { return f.Name == name })
		if !listed && s.there && !s.dying {
			errs = append(errs, fmt.Errorf("snapshot %s is lost", name))
		}
		if !listed {
			delete(x.shots, name)
		}
	}
	return errors.Join(errs...)
}
