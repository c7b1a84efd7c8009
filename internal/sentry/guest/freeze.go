package guest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	gotime "time"

	"gvisor.dev/gvisor/pkg/context"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/snapfile"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/sentry/aside"
	"ramet.dev/ramet/internal/sentry/cow"
	"ramet.dev/ramet/internal/sentry/gate"
	"ramet.dev/ramet/internal/sentry/stages"
)

// Freeze writes a snapshot of the running sandbox to file, an empty memory
// file, and pins the memory it refers to until Release. The guest stands still
// for part of the call, however large its memory is, and from then on if it is to
// rest.
//
// Should gone report that the caller went away, which may have been long before it is
// this call's turn, nothing is done.
func (g *Guest) Freeze(req *wire.Freeze, file *os.File, gone func() bool) (*wire.Frozen, error) {
	g.Gate.Lock()
	defer g.Gate.Unlock()
	if gone() {
		return nil, gate.ErrGone
	}
	if g.Gate.Paused() && !req.Rest {
		return nil, gate.ErrPaused
	}
	f := &freezing{g: g, stages: stages.Begin()}
	defer g.collector.stop()()
	f.stages.Mark("wait")
	if !g.Gate.Paused() {
		g.mem.Loosen(g.k.SupervisorContext(), g.k.Kernel)
		f.stages.Mark("loosen")
	}
	// Not needed for correctness, but it keeps the search for used pages out
	// of the pause.
	if err := g.mem.FindCommitted(); err != nil {
		return nil, fmt.Errorf("find used memory: %w", err)
	}
	f.stages.Mark("find")
	f.state.Grow(stateRoom)
	frozen, err := f.run(req, file)
	if err != nil && f.pinned != nil { // else the pins of that name are another freeze's
		g.release(req.ID)
	}
	return frozen, err
}

// stateRoom is room for the state of a usual sandbox, in bytes, so that the
// buffer is not grown during the pause.
const stateRoom = 512 << 10

// freezing is one freeze under way.
type freezing struct {
	g      *Guest
	stages stages.Stages
	pinned *cow.Pinned
	state  bytes.Buffer
	meta   bytes.Buffer
	writer *cow.Writer
	files  snapfile.Files
	// outputs refers to memory that does not change while the guest runs on.
	outputs []snapfile.Output
}

func (f *freezing) run(req *wire.Freeze, file *os.File) (*wire.Frozen, error) {
	began := gotime.Now()
	if err := f.save(req, file); err != nil {
		return nil, err
	}
	pause := gotime.Since(began)
	s := &snapfile.Snapshot{
		Copied:      f.writer.Copies(),
		Pages:       f.writer.End() - snapfile.PagesOffset,
		State:       f.state.Bytes(),
		Meta:        f.meta.Bytes(),
		Table:       f.pinned.Table,
		Generations: f.pinned.Generations,
		Held:        f.pinned.Held(),
		Files:       f.files,
		Outputs:     f.outputs,
	}
	if _, err := s.WriteTo(file); err != nil {
		return nil, err
	}
	f.stages.Mark("write")
	return &wire.Frozen{
		PauseMS:     stages.Millis(pause),
		Generations: s.Generations,
		StateBytes:  int64(len(s.State)),
		CopiedBytes: s.Pages,
		PinnedBytes: f.g.mem.PinnedBytes(req.ID),
		Files:       s.Files,
		Seq:         f.g.freezes,
		Timed:       f.stages.Timed(),
	}, nil
}

// save is the part during which the guest stands still.
func (f *freezing) save(req *wire.Freeze, file *os.File) (err error) {
	g := f.g
	g.Gate.LockIO()
	defer g.Gate.UnlockIO()
	ran := !g.Gate.Paused()
	if ran {
		g.k.Pause()
		defer func() {
			if err != nil || !req.Rest {
				g.k.Unpause()
			} else {
				g.Gate.KeepPaused()
			}
		}()
	}
	g.k.ReceiveTaskStates()
	f.stages.Mark("pause")
	ctx := g.k.SupervisorContext()
	pinned, err := g.mem.Pin(g.k.Kernel, req.ID, req.Self)
	if err != nil {
		return err
	}
	f.pinned = pinned
	g.freezes++
	if f.files, pinned.Generations, err = g.disk.pin(req.ID, req.SelfFiles, pinned.Generations); err != nil {
		return err
	}
	f.outputs = g.table.Freeze()
	f.stages.Mark("pin")
	detached, err := g.detachStateless(ctx)
	if err != nil {
		return err
	}
	err = f.saveKernel(ctx, file, detached)
	err = errors.Join(err, g.attachStateless(ctx, detached))
	if err == nil && req.Rest {
		g.Gate.Rest(req.ID, ran)
	}
	return err
}

func (f *freezing) saveKernel(ctx context.Context, file *os.File, detached []string) error {
	g, pinned := f.g, f.pinned
	f.writer = cow.NewWriter(pinned, file, snapfile.PagesOffset)
	side, restore, err := aside.Take(ctx, g.k, g.mem)
	if err != nil {
		return api.Errorf(api.CodeInternal, "save kernel state: %w", err)
	}
	side.Detached, side.Connected = detached, g.Network.uplink.Connected()
	g.k.AddStateToCheckpoint(aside.Key, side)
	defer g.k.PopCheckpointState(aside.Key)
	err = pinned.Save(func() error {
		defer restore()
		return g.k.SaveTo(ctx, nopCloser{&f.state}, nopCloser{&f.meta}, f.writer, false, true)
	})
	g.k.BeforeResume(ctx) // the file systems were prepared, whatever came of it
	if err != nil {
		return saveError(ctx, g.k.Kernel, err)
	}
	f.stages.Mark("save")
	return nil
}

type nopCloser struct{ *bytes.Buffer }

func (nopCloser) Close() error { return nil }
