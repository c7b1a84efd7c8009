package launch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/engine/wire"
)

// Sweep ends the sentries that keep refuses, and removes the sockets and logs
// they left. It leaves those of a sentry that it cannot end: without its socket
// nobody would find it again.
func (l *Launcher) Sweep(ctx context.Context, keep func(key string) bool) error {
	entries, err := os.ReadDir(l.cfg.Dir)
	if err != nil {
		return fmt.Errorf("list sentries: %w", err)
	}
	left := map[string]error{} // by key; the result of ending each
	for _, e := range entries {
		key, _, _ := strings.Cut(e.Name(), ".")
		if !validKey(key) || keep(key) {
			continue
		}
		err, swept := left[key]
		if !swept {
			if err = l.endStray(ctx, &process{key: key, dir: l.cfg.Dir}); err != nil {
				err = fmt.Errorf("end sentry %s: %w", key, err)
			}
			left[key] = err
		}
		if err == nil {
			os.Remove(filepath.Join(l.cfg.Dir, e.Name()))
		}
	}
	var errs []error
	for _, err := range left {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// endStray ends a sentry of which only the key is known: it asks the sentry to end, and
// kills a process that does not answer.
func (l *Launcher) endStray(ctx context.Context, p *process) error {
	c, err := p.dial()
	switch {
	case isRefused(err):
		return nil // it has ended
	case IsShort(err):
		return err
	case err == nil:
		l.quit(ctx, c)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	for _, pid := range p.processes() {
		if err := p.killProcess(pid); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, min(l.quitTimeout, endTimeout))
	defer cancel()
	return p.awaitRefusal(ctx)
}

// refusalPoll is how often awaitRefusal looks: the kernel does not report that a socket of
// another process is closed.
const refusalPoll = 5 * time.Millisecond

// awaitRefusal waits until no process listens any more.
func (p *process) awaitRefusal(ctx context.Context) error {
	for {
		c, err := p.dial()
		if isRefused(err) {
			return nil
		}
		if err == nil {
			c.Finish()
		}
		select {
		case <-ctx.Done():
			return errors.Join(errors.New("it does not end, and its process is not found"), err)
		case <-time.After(refusalPoll):
		}
	}
}

// quit asks the sentry on c to end, and waits until it has closed c.
func (l *Launcher) quit(ctx context.Context, c *wire.Conn) {
	defer c.Finish()
	ctx, cancel := context.WithTimeout(ctx, l.quitTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	err := c.SendJSON(wire.TypeCall, &wire.Call{Op: wire.OpQuit})
	for err == nil {
		var p *wire.Packet
		if p, err = c.Receive(); err == nil {
			p.Close()
		}
	}
}

// isRefused reports whether an error of dial says that no process listens.
func isRefused(err error) bool {
	return errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.ENOENT)
}
