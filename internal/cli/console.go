package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/term"

	"ramet.dev/ramet/api"
)

// console is the user's terminal, if there is one, while a process uses it.
type console struct {
	in    *os.File // nil if nothing is typed
	out   *os.File // nil if output goes elsewhere
	old   *term.State
	sizes chan api.TerminalSize

	ended   sync.Once
	changed chan os.Signal
	stop    chan struct{}
	stopped sync.WaitGroup
}

// openConsole finds the user's terminal, which must be where input comes from if
// there is to be any.
func (a *app) openConsole(input bool) (*console, error) {
	con := &console{sizes: make(chan api.TerminalSize, 1)}
	if isTerminal(a.Out) {
		con.out = a.Out.(*os.File)
	}
	if !input {
		return con, nil
	}
	in, ok := a.In.(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) {
		return nil, api.Invalid("tty", "standard input is not a terminal: leave out -t or -i")
	}
	con.in = in
	return con, nil
}

// size returns the size of the user's terminal.
func (con *console) size() api.TerminalSize {
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

// closed says whether the terminal was closed under us.
func (con *console) closed() bool {
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

// begin passes keys on as they are typed, and the size whenever it changes. With
// redraw it is changed at once, so that a program draws what it has.
func (con *console) begin(redraw bool) error {
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
		if size := con.size(); redraw {
			size.Cols = max(1, size.Cols-1) // readline cares about columns only
			con.send(size)
			select {
			case <-time.After(redrawDelay):
			case <-con.stop:
				return
			}
		}
		con.send(con.size())
		for {
			select {
			case <-con.changed:
				con.send(con.size())
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

func (con *console) send(size api.TerminalSize) {
	select {
	case con.sizes <- size:
	case <-con.stop:
	}
}

// end gives the terminal back as it was. It may be called more than once.
func (con *console) end() {
	con.ended.Do(func() {
		signal.Stop(con.changed)
		close(con.stop)
		con.stopped.Wait()
		if con.old != nil {
			_ = term.Restore(int(con.in.Fd()), con.old) // it may be gone
		}
	})
}

// defaultDetachKeys are docker's.
const defaultDetachKeys = "ctrl-p,ctrl-q"

var errDetached = errors.New("detached")

// terminalInput is what is typed. In raw mode nobody types an end: it is that of the terminal.
type terminalInput struct{ in io.Reader }

var errTerminalClosed = errors.New("the terminal was closed")

// Read implements io.Reader.
func (t terminalInput) Read(p []byte) (int, error) {
	n, err := t.in.Read(p)
	if err == io.EOF {
		err = errTerminalClosed
	}
	return n, err
}

// parseDetachKeys returns the bytes of keys such as "ctrl-p,ctrl-q" or "a,b".
func parseDetachKeys(text string) ([]byte, error) {
	if text == "" {
		return nil, nil
	}
	var keys []byte
	for _, key := range strings.Split(text, ",") {
		name, ctrl := strings.CutPrefix(key, "ctrl-")
		switch {
		case len(name) != 1 || name[0] > 0x7e || name[0] <= ' ':
			return nil, api.Invalid("detach-keys", "%q is neither a key nor ctrl- and a key", key)
		case !ctrl:
			keys = append(keys, name[0])
		case strings.Contains("abcdefghijklmnopqrstuvwxyz@[\\]^_", name):
			keys = append(keys, strings.ToUpper(name)[0]&0x1f)
		default:
			return nil, api.Invalid("detach-keys", "there is no %q: ctrl- goes with a to z, @, [, \\, ], ^ and _", key)
		}
	}
	return keys, nil
}

// detachReader ends with errDetached where keys are in the input. Keys that may be
// the first of them are held back until the next one is read.
type detachReader struct {
	in   io.Reader
	keys []byte
	held []byte // read last, and the beginning of keys
	over bool
}

// Read implements io.Reader.
func (d *detachReader) Read(p []byte) (int, error) {
	if d.over {
		return 0, errDetached
	}
	if len(d.keys) == 0 {
		return d.in.Read(p)
	}
	buf := make([]byte, max(1, len(p)-len(d.keys)))
	n, err := d.in.Read(buf)
	out := p[:0]
	for _, b := range buf[:n] {
		d.held = append(d.held, b)
		for !bytes.HasPrefix(d.keys, d.held) {
			out = append(out, d.held[0])
			d.held = d.held[1:]
		}
		if len(d.held) == len(d.keys) {
			d.over = true
			return len(out), nil
		}
	}
	if err != nil {
		out = append(out, d.held...)
		d.held = nil
	}
	return len(out), err
}
