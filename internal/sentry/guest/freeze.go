package guest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	gotime "time"

	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/pkg/sentry/kernel"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/snapfile"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/sentry/aside"
	"ramet.dev/ramet/internal/sentry/cow"
	"ramet.dev/ramet/internal/sentry/gate"
	"ramet.dev/ramet/internal/sentry/selffork"
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
	frozen, err := g.freeze(req, file, gone, g.forker != nil && !req.Rest)
	if !errors.Is(err, errApart) {
		return frozen, err
	}
	log.Warningf("Freeze once more, in this process: %v", err)
	if err := file.Truncate(0); err != nil {
		return nil, fmt.Errorf("empty snapshot file: %w", err)
	}
	return g.freeze(req, file, gone, false)
}

// freeze has a copy of the process save the kernel if it has many objects, and if it may.
func (g *Guest) freeze(req *wire.Freeze, file *os.File, gone func() bool, mayCopy bool) (*wire.Frozen, error) {
	g.Gate.Lock()
	unlock := sync.OnceFunc(g.Gate.Unlock)
	defer unlock()
	if gone() {
		return nil, gate.ErrGone
	}
	if g.Gate.Paused() && !req.Rest {
		return nil, gate.ErrPaused
	}
	f := &freezing{g: g, apart: mayCopy && objects(g.k) >= manyObjects && g.hasRoom(), stages: stages.Begin(), unpin: g.release}
	collect := sync.OnceFunc(g.collector.stop())
	defer collect()
	f.stages.Mark("wait")
	var private cow.Ranges
	if !g.Gate.Paused() {
		private = g.mem.Loosen(g.k.SupervisorContext(), g.k.Kernel)
		f.stages.Mark("loosen")
	}
	// Not needed for correctness, but it keeps the search for used pages out
	// of the pause.
	if err := g.mem.FindCommitted(); err != nil {
		return nil, fmt.Errorf("find used memory: %w", err)
	}
	if f.apart && private != nil {
		g.mem.MakeRoom(file, snapfile.PagesOffset, private)
	}
	f.stages.Mark("find")
	f.state.Grow(stateRoom)
	frozen, err := f.run(req, file, func() { collect(); unlock() })
	if err != nil && f.pinned != nil { // else the pins of that name are another freeze's
		f.unpin(req.ID)
	}
	return frozen, err
}

// stateRoom is room for the state of a usual sandbox, in bytes, so that the
// buffer is not grown during the pause.
const stateRoom = 512 << 10

// freezing is one freeze under way.
type freezing struct {
	g      *Guest
	apart  bool           // a copy of the process saves the kernel
	copy   *selffork.Copy // that one
	stages stages.Stages
	pinned *cow.Pinned
	state  bytes.Buffer
	meta   bytes.Buffer
	writer *cow.Writer
	files  snapfile.Files
	// outputs refers to memory that does not change while the guest runs on.
	outputs []snapfile.Output
	// unpin drops the pins of a freeze that failed.
	unpin func(id string)
}

// run calls goOn when the kernel may be used again.
func (f *freezing) run(req *wire.Freeze, file *os.File, goOn func()) (*wire.Frozen, error) {
	began := gotime.Now()
	if err := f.save(req, file); err != nil {
		return nil, err
	}
	frozen := &wire.Frozen{
		PauseMS:     stages.Millis(gotime.Since(began)),
		Generations: f.pinned.Generations,
		PinnedBytes: f.g.mem.PinnedBytes(req.ID),
		Files:       f.files,
		Seq:         f.g.freezes,
	}
	if f.apart {
		goOn()
		if err := f.awaitCopy(file, frozen); err != nil {
			f.unpin = f.g.Release
			return nil, err
		}
		f.stages.Mark("save")
	} else {
		s := f.snapshot()
		if _, err := s.WriteTo(file); err != nil {
			return nil, err
		}
		f.stages.Mark("write")
		frozen.StateBytes, frozen.CopiedBytes = int64(len(s.State)), s.Pages
	}
	frozen.Timed = f.stages.Timed()
	return frozen, nil
}

// snapshot returns what was saved.
func (f *freezing) snapshot() *snapfile.Snapshot {
	return &snapfile.Snapshot{
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
	f.pinned.BookCommitted()
	f.stages.Mark("pin")
	if f.apart {
		return f.copyApart(file)
	}
	detached, err := g.detachStateless(ctx)
	if err != nil {
		return err
	}
	f.writer = cow.NewWriter(f.pinned, file, snapfile.PagesOffset, nil, func() {})
	restore, err := f.setAside(ctx, detached, g.k.ListSockets)
	if err == nil {
		err = f.saveKernel(ctx, nopCloser{&f.state})
		restore()
	}
	err = errors.Join(err, g.attachStateless(ctx, detached))
	if err == nil && req.Rest {
		g.Gate.Rest(req.ID, ran)
	}
	return err
}

// saveKernel writes the kernel to state.
func (f *freezing) saveKernel(ctx context.Context, state io.WriteCloser) error {
	err := f.g.k.SaveTo(ctx, state, nopCloser{&f.meta}, f.writer, false, true)
	f.g.k.BeforeResume(ctx) // the file systems were prepared, whatever came of it
	if err != nil {
		return saveError(ctx, f.g.k.Kernel, err)
	}
	f.stages.Mark("save")
	return nil
}

// setAside takes out of the kernel what is saved in other forms, until restore is called.
func (f *freezing) setAside(ctx context.Context, detached []string, sockets func() []*kernel.SocketRecord) (restore func(), err error) {
	g := f.g
	resume, err := g.spaces.Take(g.k.NetStack())
	if err != nil {
		return nil, err
	}
	side, putBack, err := aside.Take(ctx, g.k, g.mem, sockets, g.spaces.Stacks())
	if err != nil {
		resume()
		return nil, api.Errorf(api.CodeInternal, "save kernel state: %w", err)
	}
	side.Detached, side.Connected = detached, g.Network.uplink.Connected()
	g.k.AddStateToCheckpoint(aside.Key, side)
	return func() {
		g.k.PopCheckpointState(aside.Key)
		putBack()
		resume()
	}, nil
}

type nopCloser struct{ *bytes.Buffer }

func (nopCloser) Close() error { return nil }
