package console

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/term"

	"ramet.dev/ramet/api"
)

// Terminal is the user's terminal, if there is one, while a process uses it.
type Terminal struct {
	in    *os.File // nil if nothing is typed
	out   *os.File // nil if output goes elsewhere
	old   *term.State
	Sizes chan api.TerminalSize

	ended   sync.Once
	changed chan os.Signal
	stop    chan struct{}
	stopped sync.WaitGroup
}

// OpenTerminal finds the user's terminal, which must be where input comes from if
// there is to be any.
func (p *Printer) OpenTerminal(input bool) (*Terminal, error) {
	con := &Terminal{Sizes: make(chan api.TerminalSize, 1)}
	if IsTerminal(p.Out) {
		con.out = p.Out.(*os.File)
	}
	if !input {
		return con, nil
	}
	in, ok := p.In.(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) {
		return nil, api.Invalid("tty", "standard input is not a terminal: leave out -t or -i")
	}
	con.in = in
	return con, nil
}

// Size returns the size of the user's terminal.
func (con *Terminal) Size() api.TerminalSize {
	for _, f := range []*os.File{con.out, con.in} {
		if f == nil {
			continue
		}
		cols, rows, err := term.GetSize(int(f.Fd()))
		if err == nil && cols > 0 && rows > 0 && cols <= 0xffff && rows <= 0xffff {
			return api.TerminalSize{Cols: uint16(cols), Rows: uint16(rows)}
		}
	}
	return api.TerminalSize{Cols: 80, Rows: 24}
}

// Closed says whether the terminal was closed under us.
func (con *Terminal) Closed() bool {
	for _, f := range []*os.File{con.in, con.out} {
		if f == nil {
			continue
		}
		if _, err := term.GetState(int(f.Fd())); errors.Is(err, syscall.EIO) {
			return true
		}
	}
	return false
}

// Begin passes keys on as they are typed, and the size whenever it changes. With
// redraw it is changed at once, so that a program draws what it has.
func (con *Terminal) Begin(redraw bool) error {
	if con.in != nil {
		old, err := term.MakeRaw(int(con.in.Fd()))
		if err != nil {
			return fmt.Errorf("use the terminal: %w", err)
		}
		con.old = old
	}
	con.changed, con.stop = make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(con.changed, syscall.SIGWINCH)
	con.stopped.Go(func() {
		if size := con.Size(); redraw {
			size.Cols = max(1, size.Cols-1) // readline cares about columns only
			con.send(size)
			select {
			case <-time.After(redrawDelay):
			case <-con.stop:
				return
			}
		}
		con.send(con.Size())
		for {
			select {
			case <-con.changed:
				con.send(con.Size())
			case <-con.stop:
				return
			}
		}
	})
	return nil
}

// redrawDelay is for how long a terminal has another size to be drawn again: a
// program that does not see it draws nothing.
const redrawDelay = 50 * time.Millisecond

func (con *Terminal) send(size api.TerminalSize) {
	select {
	case con.Sizes <- size:
	case <-con.stop:
	}
}

// End gives the terminal back as it was. It may be called more than once.
func (con *Terminal) End() {
	con.ended.Do(func() {
		signal.Stop(con.changed)
		close(con.stop)
		con.stopped.Wait()
		if con.old != nil {
			_ = term.Restore(int(con.in.Fd()), con.old) // it may be gone
		}
	})
}
