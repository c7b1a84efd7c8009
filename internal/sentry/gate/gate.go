package gate

import (
	"sync"

	"ramet.dev/ramet/api"
)

var (
	// ErrPaused refuses an operation that needs the guest to run.
	ErrPaused = api.Errorf(api.CodeWrongState, "sandbox is paused")
	// ErrResting refuses a change of what is written to disk.
	ErrResting = api.Errorf(api.CodeWrongState, "the sandbox is being hibernated")
	// ErrGone ends an operation whose caller went away.
	ErrGone = api.Errorf(api.CodeCanceled, "the caller went away")
)

// Kernel is what a gate needs of the guest's kernel.
type Kernel interface {
	Pause()
	Unpause()
}

// Gate admits operations of the host side to the kernel of one guest.
type Gate struct {
	// Clock stands still while the guest is paused.
	Clock Clock

	k Kernel
	// ops is held for reading by operations that use the kernel, and for writing by those
	// that stop it.
	ops    sync.RWMutex
	paused bool // guarded by ops
	// resting names the freeze that the sandbox rests in until it is ended. A change after
	// that freeze would be lost, so changes of files, input and signals are refused.
	// Written with ops and io locked.
	resting   string
	ranBefore bool // the guest ran until that freeze; guarded by ops
	// io is held for reading around every access of the host side to guest pipes, files and
	// connections, and for writing while the kernel is being saved.
	io sync.RWMutex
}

// New returns the gate of a guest that runs, or is about to.
func New(k Kernel) *Gate { return &Gate{k: k} }

// NewAtRest returns the gate of a guest whose clock stands still until Begin.
func NewAtRest(k Kernel) *Gate {
	g := New(k)
	g.Clock.stop()
	return g
}

// Begin starts the clock of a guest that is about to run.
func (g *Gate) Begin() { g.Clock.start() }

// Enter begins an operation that uses the kernel. End it with Leave.
func (g *Gate) Enter() { g.ops.RLock() }

// EnterRunning is Enter for an operation that needs the guest to run. After an error there
// is nothing to leave.
func (g *Gate) EnterRunning() error {
	g.ops.RLock()
	if g.paused {
		g.ops.RUnlock()
		return ErrPaused
	}
	return nil
}

// EnterChange is Enter for an operation that changes what a freeze saves. After an error
// there is nothing to leave.
func (g *Gate) EnterChange() error {
	g.ops.RLock()
	if g.resting != "" {
		g.ops.RUnlock()
		return ErrResting
	}
	return nil
}

// Leave ends an operation.
func (g *Gate) Leave() { g.ops.RUnlock() }

// Lock begins an operation that stops the kernel: it waits for all others, and keeps new
// ones out until Unlock.
func (g *Gate) Lock() { g.ops.Lock() }

// Unlock ends an operation that stops the kernel.
func (g *Gate) Unlock() { g.ops.Unlock() }

// BeginIO begins one access to guest pipes, files or connections, which must be short: a
// save waits for it. End it with EndIO. Accesses are not nested.
func (g *Gate) BeginIO() { g.io.RLock() }

// BeginChange is BeginIO for an access that changes something. After an error there is
// nothing to end.
func (g *Gate) BeginChange() error {
	g.io.RLock()
	if g.resting != "" {
		g.io.RUnlock()
		return ErrResting
	}
	return nil
}

// EndIO ends an access.
func (g *Gate) EndIO() { g.io.RUnlock() }

// LockIO keeps all accesses out until UnlockIO.
func (g *Gate) LockIO() { g.io.Lock() }

// UnlockIO lets accesses begin again.
func (g *Gate) UnlockIO() { g.io.Unlock() }

// Paused reports whether the guest is paused. The caller has entered, or locked.
func (g *Gate) Paused() bool { return g.paused }

// Pause stops all tasks until Resume.
func (g *Gate) Pause() error {
	g.ops.Lock()
	defer g.ops.Unlock()
	if g.paused {
		return api.Errorf(api.CodeWrongState, "sandbox is paused already")
	}
	g.k.Pause()
	g.KeepPaused()
	return nil
}

// KeepPaused makes a kernel that was just paused stay so until Resume. The caller has locked the
// gate.
func (g *Gate) KeepPaused() {
	g.paused = true
	g.Clock.stop()
}

// Resume lets all tasks run after Pause.
func (g *Gate) Resume() error {
	g.ops.Lock()
	defer g.ops.Unlock()
	if !g.paused {
		return api.Errorf(api.CodeWrongState, "sandbox is not paused")
	}
	g.resume()
	return nil
}

func (g *Gate) resume() {
	g.clearRest()
	g.Clock.start()
	g.k.Unpause()
	g.paused = false
}

// Still calls do while no task runs. The caller has locked the gate.
func (g *Gate) Still(do func()) {
	if !g.paused {
		g.k.Pause()
		defer g.k.Unpause()
	}
	do()
}

// Rest notes that the sandbox rests in the freeze id until it is ended. ran says whether the
// guest ran until that freeze. The caller has locked the gate and its IO.
func (g *Gate) Rest(id string, ran bool) { g.resting, g.ranBefore = id, ran }

// EndRest ends the rest in the freeze id of a guest that was paused before it. A guest that
// ran until the freeze is about to be ended, or rests until Resume. The caller has locked
// the gate.
func (g *Gate) EndRest(id string) {
	if g.resting == id && !g.ranBefore {
		g.clearRest()
	}
}

// UndoRest lets a guest run again that ran until the freeze id. The caller has locked the
// gate.
func (g *Gate) UndoRest(id string) {
	if g.resting == id && g.ranBefore {
		g.resume()
	}
}

func (g *Gate) clearRest() {
	g.io.Lock()
	defer g.io.Unlock()
	g.resting, g.ranBefore = "", false
}

// Close stops all tasks, and lets no operation begin any more.
func (g *Gate) Close() {
	g.ops.Lock() // never unlocked
	if !g.paused {
		g.k.Pause()
	}
}
