package workload

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"ramet.dev/ramet/api"
)

// Forked is a fork with its times. All but Pause begin at the call, on the clock of the client.
type Forked struct {
	Children []api.Sandbox
	// Pause is the pause of the source, as the daemon measured it.
	Pause time.Duration
	// Return is when the call returned.
	Return time.Duration
	// FirstExec is when the first child answered a command.
	FirstExec time.Duration
	// AllReady is when the last child answered.
	AllReady time.Duration
}

// IDs returns the ids of the children.
func (f *Forked) IDs() []string {
	ids := make([]string, len(f.Children))
	for i := range f.Children {
		ids[i] = f.Children[i].ID
	}
	return ids
}

// probe is the command that a child answers to show that it is ready.
func probe() api.ExecRequest { return api.ExecRequest{Argv: []string{"/bin/true"}} }

// Probe runs the command that shows that a sandbox is ready.
func (s *Session) Probe(ctx context.Context, ref string) error {
	_, err := s.run(ctx, ref, probe())
	return err
}

// Run runs a command in a sandbox, which must succeed.
func (s *Session) Run(ctx context.Context, ref string, argv []string) error {
	_, err := s.run(ctx, ref, api.ExecRequest{Argv: argv})
	return err
}

// ForkAsking makes n children of a sandbox, and runs a command in each: what asks the program that it
// is forked for.
func (s *Session) ForkAsking(ctx context.Context, ref string, n int, argv []string) (*Forked, error) {
	f, began, err := s.fork(ctx, ref, n, "")
	if err != nil {
		return nil, err
	}
	return f, s.answer(ctx, f, began, api.ExecRequest{Argv: argv})
}

// Fork makes n children of a sandbox and runs a command in each. It names them prefix-1, prefix-2,
// …, or not at all if prefix is empty. A failed child is an error.
func (s *Session) Fork(ctx context.Context, ref string, n int, prefix string) (*Forked, error) {
	f, began, err := s.fork(ctx, ref, n, prefix)
	if err != nil {
		return nil, err
	}
	return f, s.answer(ctx, f, began, probe())
}

// ForkUntouched makes n children of a sandbox that run no command yet: FirstExec
// and AllReady are zero.
func (s *Session) ForkUntouched(ctx context.Context, ref string, n int) (*Forked, error) {
	f, _, err := s.fork(ctx, ref, n, "")
	return f, err
}

func (s *Session) fork(ctx context.Context, ref string, n int, prefix string) (*Forked, time.Time, error) {
	began := time.Now()
	res, err := s.c.Sandboxes.Fork(ctx, ref, api.ForkRequest{Count: n, Names: childNames(n, prefix), Metadata: s.label()})
	if err != nil {
		return nil, began, err
	}
	f, err := forked(res, began)
	return f, began, err
}

// Restore makes n sandboxes from a snapshot and runs a command in each.
func (s *Session) Restore(ctx context.Context, ref string, n int) (*Forked, error) {
	began := time.Now()
	res, err := s.c.Snapshots.Restore(ctx, ref, api.RestoreRequest{Count: n, Metadata: s.label()})
	if err != nil {
		return nil, err
	}
	f, err := forked(res, began)
	if err != nil {
		return nil, err
	}
	return f, s.answer(ctx, f, began, probe())
}

// Explore makes n children of a sandbox by one exploration, which runs a command in each and keeps all.
// Return and FirstExec are zero: nothing tells them apart.
func (s *Session) Explore(ctx context.Context, ref string, n int) (*Forked, error) {
	began := time.Now()
	x, err := s.c.Explorations.Begin(ctx, ref, api.ExplorePlan{Width: n, Run: api.ExploreRun{Argv: probe().Argv}, Keep: api.KeepAll, Metadata: s.label()})
	if err != nil {
		return nil, err
	}
	id := x.ID
	if x, err = s.c.Explorations.Wait(ctx, id); err != nil {
		_, failed := s.c.Explorations.Cancel(context.WithoutCancel(ctx), id)
		return nil, errors.Join(err, failed)
	}
	f := &Forked{AllReady: time.Since(began)}
	if x.Error != nil {
		return nil, x.Error
	}
	for i := range x.Children {
		a := &x.Children[i]
		if a.Error != nil {
			return nil, fmt.Errorf("attempt %d of %d: %w", i+1, n, a.Error)
		}
		if a.State != api.AttemptSucceeded {
			return nil, fmt.Errorf("attempt %d of %d %s: %s", i+1, n, a.State, a.Stderr)
		}
		f.Children = append(f.Children, api.Sandbox{ID: a.Sandbox})
	}
	return f, nil
}

func childNames(n int, prefix string) []string {
	if prefix == "" {
		return nil
	}
	names := make([]string, n)
	for i := range names {
		names[i] = prefix + "-" + strconv.Itoa(i+1)
	}
	return names
}

// forked looks at the outcome of a call that has just returned.
func forked(res *api.ForkResult, began time.Time) (*Forked, error) {
	f := &Forked{Return: time.Since(began), Pause: time.Duration(res.PauseMS * float64(time.Millisecond))}
	for i, child := range res.Children {
		if child.Error != nil {
			return nil, fmt.Errorf("child %d of %d: %w", i+1, len(res.Children), child.Error)
		}
		f.Children = append(f.Children, *child.Sandbox)
	}
	return f, nil
}

// answer has each child run a command.
func (s *Session) answer(ctx context.Context, f *Forked, began time.Time, req api.ExecRequest) error {
	var mu sync.Mutex
	return Each(ctx, len(f.Children), func(ctx context.Context, i int) error {
		if _, err := s.run(ctx, f.Children[i].ID, req); err != nil {
			return fmt.Errorf("first command in child %d of %d: %w", i+1, len(f.Children), err)
		}
		mu.Lock()
		defer mu.Unlock()
		f.AllReady = time.Since(began)
		if f.FirstExec == 0 {
			f.FirstExec = f.AllReady
		}
		return nil
	})
}

// PrivateMiB returns the average private memory of the sandboxes, as the daemon measures it.
func (s *Session) PrivateMiB(ctx context.Context, ids []string) (float64, error) {
	each := make([]float64, len(ids))
	err := Each(ctx, len(ids), func(ctx context.Context, i int) error {
		st, err := s.c.Sandboxes.Stats(ctx, ids[i])
		if err != nil {
			return fmt.Errorf("read statistics of %s: %w", ids[i], err)
		}
		each[i] = st.Memory.PrivateMiB
		return nil
	})
	if err != nil {
		return 0, err
	}
	sum := 0.0
	for _, mib := range each {
		sum += mib
	}
	return sum / float64(max(len(each), 1)), nil
}
