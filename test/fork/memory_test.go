package fork

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/image"
	"ramet.dev/ramet/test/harness"
)

// TestCreateTellsMemory checks that the answer to create has what inspect has.
func TestCreateTellsMemory(t *testing.T) {
	n := harness.NewNode(t)
	n.Create("box")
	snap := n.Snapshot("box", api.SnapshotRequest{Memory: true})
	img, err := n.Machine.Get(harness.AsOwner, "box")
	if err != nil {
		t.Fatal(err)
	}
	for _, from := range []string{img.Image, snap.ID} {
		sb, err := n.Machine.Create(harness.AsOwner, api.CreateRequest{Image: from})
		if err != nil {
			t.Fatal(err)
		}
		if sb.Memory == nil || sb.Disk == nil || sb.Memory.PrivateMiB <= 0 {
			t.Errorf("created from %s: memory %+v, disk %+v", from, sb.Memory, sb.Disk)
		}
	}
}

// TestMemoryGoesBack checks that pages that a child shares cost nothing, that
// both sides pay for what they change, and that what was frozen for a child is
// given back when it is gone.
func TestMemoryGoesBack(t *testing.T) {
	harness.OnlyOnce(t, "memory of sandboxes does not depend on who starts them")
	const size, slack = 200, 40 // MiB
	n := harness.NewNode(t)
	n.Create("parent")
	n.Hold("parent", "-value", "zero", "-bulk", fmt.Sprint(size), "-only", "heap,bulk")
	before := n.PrivateMiB("parent")
	if before < size {
		t.Fatalf("parent has %v MiB with %d MiB written", before, size)
	}
	child := n.Fork("parent", 1)[0].ID
	n.MustHold(child, "zero")
	if p := n.PrivateMiB(child); p > slack {
		t.Errorf("a child that only read has %v MiB of its own", p)
	}
	n.Change("parent", "zero", "one")
	if p := n.PrivateMiB("parent"); p < 2*size {
		t.Errorf("parent has %v MiB after it changed %d that are frozen", p, size)
	}
	n.MustHold(child, "zero")
	n.Destroy(child)
	harness.Eventually(t, "frozen memory of the parent", func() error {
		if p := n.PrivateMiB("parent"); p > before+slack {
			return fmt.Errorf("it has %v MiB, had %v before the fork", p, before)
		}
		return nil
	})
	n.MustHold("parent", "one")

	child = n.Fork("parent", 1)[0].ID
	n.Change(child, "one", "two")
	if p := n.PrivateMiB(child); p < size {
		t.Errorf("child has %v MiB after it changed %d", p, size)
	}
	if p := n.PrivateMiB("parent"); p > before+slack {
		t.Errorf("parent has %v MiB because its child changed some", p)
	}
	n.Destroy(child)
	n.MustHold("parent", "one")
}

// TestSnapshotPinsMemory checks that a snapshot in memory keeps what was frozen,
// and one on disk does not.
func TestSnapshotPinsMemory(t *testing.T) {
	const size, slack = 64, 24 // MiB
	ctx := harness.AsOwner
	n := harness.NewNode(t)
	n.Create("box")
	n.Hold("box", "-value", "zero", "-bulk", fmt.Sprint(size), "-only", "heap,bulk")
	before := n.PrivateMiB("box")
	if _, err := n.Machine.Snapshot(ctx, "box", api.SnapshotRequest{Name: "memory", Memory: true}); err != nil {
		t.Fatal(err)
	}
	n.Change("box", "zero", "one")
	if p := n.PrivateMiB("box"); p < before+size-slack {
		t.Errorf("box has %v MiB: the snapshot in memory does not count", p)
	}
	r, err := n.Machine.Restore(ctx, "memory", api.RestoreRequest{})
	if err != nil {
		t.Fatal(err)
	}
	restored := n.Children(r)[0].ID
	if err := n.Machine.DeleteSnapshot(ctx, "memory", api.SnapshotDeletion{}); err != nil {
		t.Fatal(err)
	}
	n.MustHold(restored, "zero")
	n.Destroy(restored)
	gone := func() error {
		if p := n.PrivateMiB("box"); p > before+slack {
			return fmt.Errorf("it has %v MiB, had %v", p, before)
		}
		return nil
	}
	harness.Eventually(t, "memory of the deleted snapshot", gone)
	disk, err := n.Machine.Snapshot(ctx, "box", api.SnapshotRequest{Name: "disk"})
	if err != nil {
		t.Fatal(err)
	}
	if disk.SizeBytes < size<<20 {
		t.Errorf("snapshot on disk has %d bytes", disk.SizeBytes)
	}
	n.Change("box", "one", "two")
	harness.Eventually(t, "memory of the snapshot on disk", gone)
}

// TestParentsGoFirst destroys the middle generation and then the first, and
// checks that those that came of them live on and can be forked.
func TestParentsGoFirst(t *testing.T) {
	n := harness.NewNode(t)
	n.Create("parent")
	n.Hold("parent", "-value", "zero")
	child := n.Fork("parent", 1)[0].ID
	n.Change(child, "zero", "one")
	grandchild := n.Fork(child, 1)[0].ID
	n.Destroy(child)
	n.Change(grandchild, "one", "two")
	n.Change("parent", "zero", "three")
	sibling := n.Fork("parent", 1)[0].ID
	n.Destroy("parent")
	n.MustHold(sibling, "three")
	n.MustHold(grandchild, "two")
	last := n.Fork(grandchild, 1)[0].ID
	n.Destroy(grandchild)
	n.MustHold(last, "two")
}

// engine is a launcher with an image, without a node, for what only the
// protocol of the sentry shows.
type engine struct {
	t     testing.TB
	l     *launch.Launcher
	image *os.File
	files map[string]*os.File // memory files by name
}

func newEngine(t testing.TB) *engine {
	t.Helper()
	n := harness.NewClosedNode(t, harness.NewDir(t))
	images, err := image.Open(n.Paths.Images())
	if err != nil {
		t.Fatal(err)
	}
	box, err := images.Resolve("box")
	if err != nil {
		t.Fatal(err)
	}
	path, err := images.Path(box.ID)
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	l, err := launch.New(harness.AsOwner, launch.Config{Executable: "/proc/self/exe", Dir: n.Paths.Sandboxes(), FilesDir: t.TempDir(), BuildID: n.Build})
	if err != nil {
		t.Fatal(err)
	}
	// Cleanups run in reverse: this one after those of the sentries.
	t.Cleanup(func() {
		file.Close()
		l.Close()
		n.CheckNothingLeft()
	})
	return &engine{t: t, l: l, image: file, files: map[string]*os.File{}}
}

func (e *engine) start() *launch.Sentry {
	e.t.Helper()
	s, err := e.l.Start(harness.AsOwner)
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(s.Kill)
	e.files[s.Key()], e.files[s.FilesName()] = s.Memory(), s.Files()
	return s
}

func (e *engine) call(s *launch.Sentry, call *wire.Call, out any, files ...*os.File) {
	e.t.Helper()
	if _, err := s.Call(harness.AsOwner, call, out, files...); err != nil {
		e.t.Fatalf("%s: %v", call.Op, err)
	}
}

func (e *engine) boot() *launch.Sentry {
	e.t.Helper()
	s := e.start()
	e.call(s, &wire.Call{Op: wire.OpBoot, Boot: &wire.Boot{Common: wire.Common{ID: "sbx_box", Hostname: "box"}}}, nil, e.image)
	return s
}

// freeze freezes s under the name id. The caller closes the file.
func (e *engine) freeze(s *launch.Sentry, id string) (*os.File, *wire.Frozen) {
	e.t.Helper()
	file, err := launch.NewFile("snapshot")
	if err != nil {
		e.t.Fatal(err)
	}
	frozen := &wire.Frozen{}
	e.call(s, &wire.Call{Op: wire.OpFreeze, Freeze: &wire.Freeze{ID: id, Self: s.Key(), SelfFiles: s.FilesName()}}, frozen, file)
	return file, frozen
}

func (e *engine) load(file *os.File, frozen *wire.Frozen) *launch.Sentry {
	e.t.Helper()
	s := e.start()
	files := []*os.File{file, e.image}
	for _, g := range frozen.Generations {
		files = append(files, e.files[g])
	}
	e.call(s, &wire.Call{Op: wire.OpLoad, Load: &wire.Load{Common: wire.Common{ID: "sbx_child", Hostname: "child"}, Generations: frozen.Generations}}, nil, files...)
	return s
}

func (e *engine) exec(s *launch.Sentry, args ...string) {
	e.t.Helper()
	out := &limitedLog{}
	r, err := s.Exec(harness.AsOwner, &wire.Exec{Argv: append([]string{"guest"}, args...)}, api.ExecIO{Stdout: out, Stderr: out})
	if err != nil || r.Code != 0 {
		e.t.Fatalf("%v: %+v %v: %s", args, r, err, out.text)
	}
}

// limitedLog is a writer that two streams may share.
type limitedLog struct{ text []byte }

func (l *limitedLog) Write(b []byte) (int, error) {
	l.text = append(l.text, b[:min(len(b), 4096-len(l.text))]...)
	return len(b), nil
}

// flat are the costs of a freeze that must not grow with the number or depth of
// those before.
type flat struct{ copied, state, pinned int64 }

func flatOf(f *wire.Frozen) flat { return flat{f.CopiedBytes, f.StateBytes, f.PinnedBytes} }

func (f flat) check(first flat) error {
	const slack = 4 // what a busy guest's own memory use may vary by
	for name, v := range map[string][2]int64{
		"copied": {f.copied, first.copied}, "state": {f.state, first.state}, "pinned": {f.pinned, first.pinned},
	} {
		if v[0] > v[1]+v[1]/4+slack<<20 {
			return fmt.Errorf("%d bytes %s, were %d", v[0], name, v[1])
		}
	}
	return nil
}

// TestForksInARowCostTheSame forks one sandbox 30 times, each time changing it,
// and destroys each child.
func TestForksInARowCostTheSame(t *testing.T) {
	harness.OnlyOnce(t, "what is copied does not depend on who starts sandboxes")
	e := newEngine(t)
	source := e.boot()
	e.exec(source, "start", "-bulk", "16", "-only", "heap,bulk,child,files", "-value", "0")
	var first flat
	var memory int64
	const rounds = 30
	for i := range rounds {
		id := fmt.Sprintf("freeze-%d", i)
		file, frozen := e.freeze(source, id)
		if i == 1 { // the first one found nothing copied
			first, memory = flatOf(frozen), blocks(t, source.Memory())
		}
		if i > 1 {
			if err := flatOf(frozen).check(first); err != nil {
				t.Fatalf("fork %d: %v", i, err)
			}
		}
		if i%5 == 0 {
			child := e.load(file, frozen)
			e.exec(child, "ask", "=child")
			child.Kill()
		}
		e.exec(source, "ask", fmt.Sprintf("=%d", i))
		e.call(source, &wire.Call{Op: wire.OpRelease, Release: &wire.Release{ID: id}}, nil)
		file.Close()
	}
	harness.Eventually(t, "memory after 30 forks", func() error {
		if now := blocks(t, source.Memory()); now > memory+memory/4 {
			return fmt.Errorf("%d bytes, were %d after the first", now, memory)
		}
		return nil
	})
}

// TestForksOfForksCostTheSame makes a line of descendants, each of which changes
// all that it inherited.
func TestForksOfForksCostTheSame(t *testing.T) {
	e := newEngine(t)
	s := e.boot()
	e.exec(s, "start", "-bulk", "8", "-only", "heap,bulk,child,files", "-value", "0")
	var first flat
	var own int64
	const depth = 10
	for i := range depth {
		file, frozen := e.freeze(s, "freeze")
		s = e.load(file, frozen)
		file.Close()
		e.exec(s, "ask", fmt.Sprintf("=%d", i))
		if i == 1 {
			first, own = flatOf(frozen), blocks(t, s.Memory())
		}
		if i > 1 {
			if err := flatOf(frozen).check(first); err != nil {
				t.Fatalf("generation %d: %v", i, err)
			}
			// Memory that nobody needs any more goes back a moment later.
			harness.Eventually(t, fmt.Sprintf("memory of generation %d", i), func() error {
				if now := blocks(t, s.Memory()); now > own+own/4 {
					return fmt.Errorf("%d bytes of its own, the second had %d", now, own)
				}
				return nil
			})
		}
	}
}

// blocks returns how many bytes of a memory file are allocated.
func blocks(t testing.TB, f *os.File) int64 {
	t.Helper()
	st, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	return allocatedBytes(st)
}

// TestInheritedCommandsLeaveNothing has a child inherit commands with open
// standard streams and end them. How they ended is remembered until they are
// removed; then nothing of them may be in its next state.
func TestInheritedCommandsLeaveNothing(t *testing.T) {
	const commands = 40
	e := newEngine(t)
	source := e.boot()
	ctx, cancel := context.WithCancel(harness.AsOwner)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	for range commands {
		in, end := io.Pipe()
		running.Go(func() {
			defer end.Close()
			xio := api.ExecIO{Stdin: in, Stdout: io.Discard, Stderr: io.Discard}
			_, err := source.Exec(ctx, &wire.Exec{Argv: []string{"guest", "cat"}}, xio)
			harness.WantCode(t, err, api.CodeCanceled)
		})
	}
	count := func(s *launch.Sentry, want int) []api.Process {
		var list []api.Process
		harness.Eventually(t, "commands", func() error {
			var reply wire.Processes
			e.call(s, &wire.Call{Op: wire.OpPS, Page: &wire.Page{}}, &reply)
			if list = reply.List; len(list) != want || reply.More {
				return fmt.Errorf("%d run, not %d", len(list), want)
			}
			return nil
		})
		return list
	}
	count(source, commands)
	child := e.child(source)
	with := e.stateOf(child)
	kill := []string{"kill", "9"}
	inherited := count(child, commands)
	for _, p := range inherited {
		kill = append(kill, strconv.Itoa(p.PID))
	}
	e.exec(child, kill...)
	count(child, 0)

	cancel()
	running.Wait()
	count(source, 0)
	// The source closed all that was theirs.
	without := e.stateOf(e.child(source))
	leaves := func(perCommand int64) {
		t.Helper()
		harness.Eventually(t, "state", func() error {
			now := e.stateOf(child)
			if now > without+commands*perCommand {
				return fmt.Errorf("%d bytes, %d with the commands, %d without", now, with, without)
			}
			return nil
		})
	}
	leaves(300)
	for _, p := range inherited {
		e.call(child, &wire.Call{Op: wire.OpForget, Process: &wire.Process{PID: p.PID}}, nil)
	}
	leaves(100)
}

// child freezes s and loads what that gives.
func (e *engine) child(s *launch.Sentry) *launch.Sentry {
	e.t.Helper()
	file, frozen := e.freeze(s, "freeze-"+harness.RandomHex())
	defer file.Close()
	return e.load(file, frozen)
}

// stateOf returns the size of the state of s.
func (e *engine) stateOf(s *launch.Sentry) int64 {
	e.t.Helper()
	file, frozen := e.freeze(s, "freeze-"+harness.RandomHex())
	file.Close()
	return frozen.StateBytes
}

// A program's first steps jump about in its files, mostly to what lies before the
// place of the last fault: each fault maps all of the piece that it is in.
func TestFaultsMapFilesBothWays(t *testing.T) {
	n := harness.NewNode(t)
	n.Create("box")
	for _, c := range []struct {
		what, file string
		least      int // KiB
	}{
		{"a file of the image", "/bin/guest", 2 << 10},
		{"a file that was written", "/root/written", 3 << 10},
	} {
		if c.file == "/root/written" {
			n.Guest("box", "fill", c.file, "3")
		}
		got, err := strconv.Atoi(strings.TrimSpace(n.Guest("box", "mapped", c.file)))
		if err != nil || got < c.least {
			t.Errorf("%s: a read of its last byte mapped %d KiB, not %d (%v)", c.what, got, c.least, err)
		}
	}
}

// allocatedBytes returns how many bytes of a sparse file take up space.
func allocatedBytes(st os.FileInfo) int64 { return st.Sys().(*syscall.Stat_t).Blocks * 512 }
