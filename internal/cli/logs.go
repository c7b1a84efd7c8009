package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"golang.org/x/sync/errgroup"

	"ramet.dev/ramet/internal/client"
	"ramet.dev/ramet/internal/sandbox"
)

// allLogs shows what all background processes of a sandbox wrote; to follow means
// until it is interrupted or the sandbox is destroyed, with those that are started
// meanwhile.
func (a *app) allLogs(ctx context.Context, c *client.Client, ref string, follow, times bool) error {
	l := &logs{app: a, c: c, ref: ref, times: times, seen: map[int]bool{}}
	if !follow {
		return l.each(ctx, func(pid int) error { return l.one(ctx, pid, false) })
	}
	g, ctx := errgroup.WithContext(ctx)
	show := func(pid int) error {
		g.Go(func() error {
			err := l.one(ctx, pid, true)
			if sandbox.CodeOf(err) == sandbox.CodeNotFound {
				return nil // the process is forgotten, or the sandbox gone
			}
			return err
		})
		return nil
	}
	g.Go(func() error {
		// Events since before the list: none of the processes is missed.
		req := sandbox.EventRequest{Sandbox: ref, Follow: true, Kinds: []sandbox.EventKind{sandbox.EventStarted, sandbox.EventDestroyed}}
		if err := l.each(ctx, show); err != nil {
			return err
		}
		return c.Events(ctx, req, func(e sandbox.Event) error {
			switch {
			case e.Kind == sandbox.EventDestroyed:
				return errDestroyed
			case e.Kind == sandbox.EventStarted && l.first(e.PID):
				return show(e.PID)
			}
			return nil
		})
	})
	if err := g.Wait(); !errors.Is(err, errDestroyed) {
		return err
	}
	return nil
}

var errDestroyed = errors.New("the sandbox was destroyed")

// logs is the output of several processes, each line with the process's id before
// it.
type logs struct {
	app   *app
	c     *client.Client
	ref   string
	times bool

	mu   sync.Mutex // one line after another
	seen map[int]bool
}

// first says whether a process is met for the first time.
func (l *logs) first(pid int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seen[pid] {
		return false
	}
	l.seen[pid] = true
	return true
}

// each calls fn for all processes whose output is kept.
func (l *logs) each(ctx context.Context, fn func(pid int) error) error {
	ps, err := l.c.Processes(ctx, l.ref, true)
	if err != nil {
		return err
	}
	for _, p := range ps {
		if p.Kept != nil && l.first(p.PID) {
			if err := fn(p.PID); err != nil {
				return err
			}
		}
	}
	return nil
}

// one shows the output of one process.
func (l *logs) one(ctx context.Context, pid int, follow bool) error {
	var write func(sandbox.Chunk) error
	if l.app.json {
		write = func(c sandbox.Chunk) error {
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.app.writeJSON(processLine{PID: pid, Output: lineOf(c)})
		}
	} else {
		lines := map[bool]*lineWriter{false: {l: l, pid: pid}, true: {l: l, pid: pid, stderr: true}}
		write = func(c sandbox.Chunk) error {
			if c.Lost > 0 {
				l.mu.Lock()
				defer l.mu.Unlock()
				return l.app.writeChunk(c)
			}
			return lines[c.Stderr].write(c)
		}
		defer func() {
			for _, w := range lines {
				_ = w.flush() // the error of what came before is the one that counts
			}
		}()
	}
	_, err := l.c.Output(ctx, l.ref, pid, sandbox.AttachRequest{Follow: follow}, write)
	return err
}

// processLine is what logs without a process prints for each piece with --json.
type processLine struct {
	PID    int `json:"pid"`
	Output any `json:"output"`
}

// maxLine is the longest line that is waited for.
const maxLine = 64 << 10

// lineWriter writes whole lines of one stream of one process.
type lineWriter struct {
	l      *logs
	pid    int
	stderr bool
	buf    []byte
	stamp  string
}

func (w *lineWriter) write(c sandbox.Chunk) error {
	if w.l.times {
		w.stamp = stampOf(c)
	}
	w.buf = append(w.buf, c.Data...)
	for {
		i := bytes.IndexByte(w.buf, '\n')
		if i < 0 {
			break
		}
		if err := w.line(w.buf[:i]); err != nil {
			return err
		}
		w.buf = w.buf[i+1:]
	}
	if len(w.buf) > maxLine {
		return w.flush()
	}
	return nil
}

// flush writes what has no end of line yet.
func (w *lineWriter) flush() error {
	if len(w.buf) == 0 {
		return nil
	}
	line := w.buf
	w.buf = nil
	return w.line(line)
}

func (w *lineWriter) line(text []byte) error {
	w.l.mu.Lock()
	defer w.l.mu.Unlock()
	_, err := fmt.Fprintf(w.l.app.streamOf(sandbox.Chunk{Stderr: w.stderr}), "%s | %s%s\n", strconv.Itoa(w.pid), w.stamp, text)
	return err
}
