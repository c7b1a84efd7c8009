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

// Terminal is the user's terminal while a process in a sandbox uses it.
type Terminal struct {
	in    *os.File // nil without input
	out   *os.File // nil if output does not go to a terminal
	old   *term.State
	Sizes chan api.TerminalSize

	ended   sync.Once
	changed chan os.Signal
	stop    chan struct{}
	stopped sync.WaitGroup
}

// OpenTerminal returns the user's terminal. With input, standard input must be a terminal.
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

// Closed reports whether the terminal was closed.
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

// Begin enters raw mode and starts to report the size of the terminal. With redraw, it first
// reports another size for a moment, so that the program draws its screen again.
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
			size.Cols = max(1, size.Cols-1) // readline redraws on a change of columns only
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

// redrawDelay is how long the other size lasts for a redraw. A
// program that does not notice it draws nothing.
const redrawDelay = 50 * time.Millisecond

func (con *Terminal) send(size api.TerminalSize) {
	select {
	case con.Sizes <- size:
	case <-con.stop:
	}
}

// End restores the terminal. It may be called more than once.
func (con *Terminal) End() {
	con.ended.Do(func() {
		signal.Stop(con.changed)
		close(con.stop)
		con.stopped.Wait()
		if con.old != nil {
			_ = term.Restore(int(con.in.Fd()), con.old) // the terminal may be gone
		}
	})
}
