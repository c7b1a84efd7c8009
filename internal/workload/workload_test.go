package workload_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/workload"
	"ramet.dev/ramet/internal/workload/fakedaemon"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestEach(t *testing.T) {
	for _, n := range []int{0, 1, 3, 100} {
		var mu sync.Mutex
		var seen []int
		running, most := 0, 0
		err := workload.Each(t.Context(), n, func(_ context.Context, i int) error {
			mu.Lock()
			running++
			most = max(most, running)
			seen = append(seen, i)
			mu.Unlock()
			mu.Lock()
			defer mu.Unlock()
			running--
			return nil
		})
		slices.Sort(seen)
		want := []int(nil)
		for i := range n {
			want = append(want, i)
		}
		if d := cmp.Diff(want, seen); err != nil || d != "" {
			t.Errorf("n %d: %v, %s", n, err, d)
		}
		if most > workload.Workers() {
			t.Errorf("n %d: %d at a time, not %d", n, most, workload.Workers())
		}
	}
}

func TestEachStops(t *testing.T) {
	bad := errors.New("bad")
	var mu sync.Mutex
	calls := 0
	err := workload.Each(t.Context(), 1000, func(ctx context.Context, i int) error {
		mu.Lock()
		calls++
		mu.Unlock()
		if i == 3 {
			return bad
		}
		if i > 3 {
			<-ctx.Done() // the failure reaches the others
		}
		return nil
	})
	if err != bad || calls > 4+workload.Workers() {
		t.Errorf("%v after %d calls", err, calls)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := workload.Each(ctx, 1000, func(context.Context, int) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestImage(t *testing.T) {
	d := fakedaemon.New()
	c := d.Connect(t)
	phases := ""
	progress := func(p api.Progress) { phases += p.Phase + " " }
	if img, err := workload.Image(t.Context(), c, "python", progress); err != nil || img.ID != "img_aaaaaaaaaaaaaaaa" || phases != "" {
		t.Errorf("there: %+v, %v, progress %q", img, err, phases)
	}
	if _, err := workload.Image(t.Context(), c, "other", progress); api.CodeOf(err) != api.CodeNotFound {
		t.Errorf("an image that is not ours to build: %v", err)
	}
	d.ImageMissing = true
	img, err := workload.Image(t.Context(), c, "python", progress)
	if err != nil || img.ID != "img_bbbbbbbbbbbbbbbb" || phases != "download unpack unpack seal " {
		t.Errorf("missing: %+v, %v, progress %q", img, err, phases)
	}
	want := api.ImageRequest{Name: "python", Build: &api.ImageBuild{From: "debian", Include: []string{"python3", "python3-numpy", "python3-pip", "python3-venv", "git", "curl", "ca-certificates", "tzdata"}}, IfMissing: true}
	if d := cmp.Diff(want, d.Built); d != "" {
		t.Error(d)
	}
}

func TestForkTimes(t *testing.T) {
	d := fakedaemon.New()
	s := workload.Open(d.Connect(t), "test")
	source, err := s.Create(t.Context(), "python", "")
	if err != nil {
		t.Fatal(err)
	}
	f, err := s.Fork(t.Context(), source.ID, 3, "kid")
	if err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for _, c := range f.Children {
		names = append(names, c.Name)
	}
	if d := cmp.Diff([]string{"kid-1", "kid-2", "kid-3"}, names); d != "" {
		t.Error(d)
	}
	if f.Pause.Microseconds() != 12500 || f.Return <= 0 || f.FirstExec < f.Return || f.AllReady < f.FirstExec {
		t.Errorf("times out of order: %+v", f)
	}
	untouched, err := s.ForkUntouched(t.Context(), source.ID, 2)
	if err != nil || len(untouched.Children) != 2 || untouched.Return <= 0 || untouched.FirstExec != 0 || untouched.AllReady != 0 {
		t.Errorf("untouched: %+v, %v", untouched, err)
	}
	if mib, err := s.PrivateMiB(t.Context(), f.IDs()); mib != 7 || err != nil {
		t.Errorf("private memory %v, %v", mib, err)
	}
	snap, err := s.Snapshot(t.Context(), source.ID)
	if err != nil {
		t.Fatal(err)
	}
	if r, err := s.Restore(t.Context(), snap.ID, 2); err != nil || len(r.Children) != 2 || r.AllReady < r.Return {
		t.Errorf("restore: %+v, %v", r, err)
	}
	if err := s.Close(t.Context()); err != nil || d.Left() != 0 {
		t.Errorf("close: %v, %d left", err, d.Left())
	}
}

func TestForkReportsChild(t *testing.T) {
	d := fakedaemon.New()
	d.FailChild = func(i int) *api.Error {
		if i == 1 {
			return api.Errorf(api.CodeNoMemory, "no memory is left")
		}
		return nil
	}
	s := workload.Open(d.Connect(t), "test")
	source, err := s.Create(t.Context(), "python", "")
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Fork(t.Context(), source.ID, 3, "")
	if api.CodeOf(err) != api.CodeNoMemory || !strings.Contains(err.Error(), "child 2 of 3") {
		t.Errorf("error is %v", err)
	}
	if err := s.Close(t.Context()); err != nil || d.Left() != 0 {
		t.Errorf("close: %v, %d left", err, d.Left())
	}
}

// TestExplore: all attempts are there, and one that fails is an error; what it left ends with the session.
func TestExplore(t *testing.T) {
	d := fakedaemon.New()
	s := workload.Open(d.Connect(t), "test")
	sb, err := s.Create(t.Context(), "python", "")
	if err != nil {
		t.Fatal(err)
	}
	f, err := s.Explore(t.Context(), sb.ID, 3)
	if err != nil || len(f.IDs()) != 3 || f.AllReady <= 0 || f.FirstExec != 0 || d.Left() != 4 {
		t.Errorf("%+v, %v, %d are left", f, err, d.Left())
	}
	d.FailChild = func(i int) *api.Error {
		if i == 1 {
			return api.Errorf(api.CodeNoMemory, "no memory is left")
		}
		return nil
	}
	if _, err := s.Explore(t.Context(), sb.ID, 3); api.CodeOf(err) != api.CodeNoMemory || !strings.Contains(err.Error(), "attempt 2 of 3") {
		t.Errorf("an attempt that failed: %v", err)
	}
	if err := s.Close(t.Context()); err != nil || d.Left() != 0 {
		t.Errorf("%d are left, %v", d.Left(), err)
	}
}

func TestAsk(t *testing.T) {
	d := fakedaemon.New()
	d.Agent = func(_ *fakedaemon.Instance, program string) (string, int) {
		if program == "bad" {
			return "Traceback\n  File\nNameError: name 'bad'\n", 1
		}
		return "answer to " + program + "\n", 0
	}
	s := workload.Open(d.Connect(t), "test")
	sb, err := s.Create(t.Context(), "python", "")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Warm(t.Context(), sb.ID); err != nil {
		t.Error(err)
	}
	if got, err := s.Ask(t.Context(), sb.ID, "one"); got != "answer to one" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := s.Ask(t.Context(), sb.ID, "bad"); err == nil || !strings.HasSuffix(err.Error(), "exit code 1: NameError: name 'bad'") {
		t.Errorf("error is %v", err)
	}
}

// TestCloseFindsLateChildren: a fork whose call was interrupted is over, and its
// children are there, only when the source is destroyed.
func TestCloseFindsLateChildren(t *testing.T) {
	d := fakedaemon.New()
	destroy, late := d.DestroyFunc, false
	d.DestroyFunc = func(ctx context.Context, ref string) error {
		if !late {
			late = true
			if _, err := d.ForkFunc(ctx, ref, api.ForkRequest{Count: 3}); err != nil {
				return err
			}
		}
		return destroy(ctx, ref)
	}
	c := d.Connect(t)
	s, other := workload.Open(c, "test"), workload.Open(c, "test")
	if s.Name() == other.Name() {
		t.Errorf("two sessions are called %s", s.Name())
	}
	for _, session := range []*workload.Session{s, other} {
		if _, err := session.Create(t.Context(), "python", ""); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if left, err := other.Living(t.Context()); err != nil || len(left) != 1 || d.Left() != 1 {
		t.Errorf("%d of the other session are left and %d in all, %v", len(left), d.Left(), err)
	}
}

func TestCloseGoesOn(t *testing.T) {
	d := fakedaemon.New()
	destroy := d.DestroyFunc
	var failed atomic.Bool // calls come at the same time
	d.DestroyFunc = func(ctx context.Context, ref string) error {
		if failed.CompareAndSwap(false, true) {
			return api.Errorf(api.CodeInternal, "a defect")
		}
		return destroy(ctx, ref)
	}
	s := workload.Open(d.Connect(t), "test")
	for range 3 {
		if _, err := s.Create(t.Context(), "python", ""); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(t.Context()); api.CodeOf(err) != api.CodeInternal {
		t.Errorf("error is %v", err)
	}
	// What failed the first time is tried again before the end.
	if d.Left() != 0 {
		t.Errorf("%d sandboxes are left", d.Left())
	}
}
