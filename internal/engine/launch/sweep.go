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
	"ramet.dev/ramet/internal/observe/procfs"
)

// Sweep ends the sentries that keep refuses, and removes the sockets and logs
// they left. It leaves those of a sentry that it cannot end: without its socket
// nobody would find it again.
func (l *Launcher) Sweep(ctx context.Context, keep func(key string) bool) error {
	entries, err := os.ReadDir(l.cfg.Dir)
	if err != nil {
		return fmt.Errorf("list sentries: %w", err)
	}
	left := map[string]error{} // by key; what came of ending each
	for _, e := range entries {
		key, _, _ := strings.Cut(e.Name(), ".")
		if !ValidKey(key) || keep(key) {
			continue
		}
		err, swept := left[key]
		if !swept {
			if err = l.endStray(ctx, &Sentry{key: key, dir: l.cfg.Dir}); err != nil {
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

// endStray ends a sentry of which nothing but the key is known: it asks, and
// kills what does not listen.
func (l *Launcher) endStray(ctx context.Context, s *Sentry) error {
	c, err := s.dial()
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
	for _, pid := range s.processes() {
		if err := s.killProcess(pid); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, min(l.patience, endPatience))
	defer cancel()
	return s.awaitRefusal(ctx)
}

// refusalPoll is how often awaitRefusal looks: nothing tells that a socket that
// others listened at is closed.
const refusalPoll = 5 * time.Millisecond

// awaitRefusal waits until no process listens any more.
func (s *Sentry) awaitRefusal(ctx context.Context) error {
	for {
		c, err := s.dial()
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
	ctx, cancel := context.WithTimeout(ctx, l.patience)
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

// processes returns the processes whose standard output is the sentry's log:
// itself.
func (s *Sentry) processes() []int {
	all, err := procfs.PIDs()
	if err != nil {
		return nil
	}
	var pids []int
	for _, pid := range all {
		if s.isProcess(pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func (s *Sentry) isProcess(pid int) bool {
	log, err := os.Stat(s.log())
	if err != nil {
		return false
	}
	out, err := os.Stat(procfs.Descriptor(pid, 1))
	return err == nil && os.SameFile(log, out)
}

// killProcess kills pid if it is the sentry still, and waits for its end.
func (s *Sentry) killProcess(pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err == unix.ESRCH {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open process: %w", err)
	}
	defer unix.Close(fd)
	if !s.isProcess(pid) { // asked again: from here on the number cannot be another one's
		return nil
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && err != unix.ESRCH {
		return fmt.Errorf("kill process: %w", err)
	}
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(endPatience.Milliseconds()))
		switch {
		case err == unix.EINTR:
		case err != nil:
			return fmt.Errorf("wait for process: %w", err)
		case n == 0:
			return fmt.Errorf("process %d did not end within %v", pid, endPatience)
		default:
			return nil
		}
	}
}
