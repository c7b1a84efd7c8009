package gate

import "testing"

// countingKernel counts how often it is paused.
type countingKernel struct{ paused int }

func (k *countingKernel) Pause()   { k.paused++ }
func (k *countingKernel) Unpause() { k.paused-- }

// rest has a guest rest in the freeze f.
func rest(g *Gate, k *countingKernel, ran bool) {
	g.Lock()
	defer g.Unlock()
	g.LockIO()
	defer g.UnlockIO()
	if ran {
		k.Pause()
		g.KeepPaused()
	}
	g.Rest("f", ran)
}

// TestRest has guests rest that ran until the freeze, and others, and ends the rest in each
// way.
func TestRest(t *testing.T) {
	for name, c := range map[string]struct {
		ran, rests, paused bool
		end                func(*Gate)
	}{
		"undone":                    {ran: true, end: func(g *Gate) { g.UndoRest("f") }},
		"undone, of another freeze": {ran: true, end: func(g *Gate) { g.UndoRest("o") }, rests: true, paused: true},
		"undone, paused before":     {end: func(g *Gate) { g.UndoRest("f") }, rests: true, paused: true},
		"ended":                     {ran: true, end: func(g *Gate) { g.EndRest("f") }, rests: true, paused: true},
		"ended, paused before":      {end: func(g *Gate) { g.EndRest("f") }, paused: true},
	} {
		t.Run(name, func(t *testing.T) {
			k := &countingKernel{}
			g := New(k)
			if !c.ran {
				if err := g.Pause(); err != nil {
					t.Fatal(err)
				}
			}
			rest(g, k, c.ran)
			if err := g.EnterChange(); err != ErrResting {
				t.Errorf("an operation changes what was frozen: %v", err)
			}
			if err := g.BeginChange(); err != ErrResting {
				t.Errorf("an access changes what was frozen: %v", err)
			}
			g.Lock()
			c.end(g)
			if g.Paused() != c.paused || k.paused > 0 != c.paused {
				t.Errorf("it is paused: %t, and its kernel %d times", g.Paused(), k.paused)
			}
			g.Unlock()
			if err := g.BeginChange(); (err == ErrResting) != c.rests {
				t.Errorf("an access that changes something: %v", err)
			} else if err == nil {
				g.EndIO()
			}
			if err := g.EnterRunning(); (err == ErrPaused) != c.paused {
				t.Errorf("an operation that needs the guest to run: %v", err)
			} else if err == nil {
				g.Leave()
			}
			if !c.paused {
				return
			}
			if err := g.Resume(); err != nil || k.paused != 0 {
				t.Errorf("it resumes with %v, and its kernel is paused %d times", err, k.paused)
			}
			if err := g.EnterChange(); err != nil {
				t.Errorf("it rests after Resume: %v", err)
			} else {
				g.Leave()
			}
		})
	}
}

// TestStill pauses the kernel for one step, unless it is paused already.
func TestStill(t *testing.T) {
	k := &countingKernel{}
	g := New(k)
	for _, before := range []int{0, 1} {
		g.Lock()
		g.Still(func() {
			if k.paused != 1 {
				t.Errorf("the kernel is paused %d times", k.paused)
			}
		})
		g.Unlock()
		if k.paused != before {
			t.Errorf("after it the kernel is paused %d times, not %d", k.paused, before)
		}
		if before == 0 {
			if err := g.Pause(); err != nil {
				t.Fatal(err)
			}
		}
	}
}
