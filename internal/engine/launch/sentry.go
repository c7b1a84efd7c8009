package launch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/cgroup"
	"ramet.dev/ramet/internal/engine/memwatch"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/observe/procfs"
)

// Sentry is a sentry: its process, its files and the calls to it. It is safe for concurrent use.
type Sentry struct {
	process
	memory   *os.File // read-only
	files    *os.File // read-only
	lifeline *wire.Conn
	hello    wire.Hello
	decoded  bool
	watches  *memwatch.Group

	closeOnce sync.Once
}

// Memory returns the sandbox's memory file, read-only. The Sentry owns
// it; a caller may keep a duplicate.
func (s *Sentry) Memory() *os.File { return s.memory }

// Files returns the file with the pages of the sandbox's files, read-only. The
// Sentry owns it; a caller may keep a duplicate.
func (s *Sentry) Files() *os.File { return s.files }

// FilesName is the name of Files among generations, as Key is that of Memory.
func (s *Sentry) FilesName() string { return s.key + "/files" }

// Decoded reports whether the sentry has the state of a frozen sandbox: it is one of a Template.
func (s *Sentry) Decoded() bool { return s.decoded }

// Isolation returns the layers that confine the sentry.
func (s *Sentry) Isolation() api.Isolation { return s.hello.Isolation }

// awaitHello waits until the sentry is ready or dead.
func (s *Sentry) awaitHello(ctx context.Context, cfg Config) error {
	stop := context.AfterFunc(ctx, func() { s.lifeline.SetDeadline(time.Unix(1, 0)) })
	p, err := s.lifeline.Receive()
	if !stop() {
		return fmt.Errorf("start sentry: %w", context.Cause(ctx))
	}
	if err != nil {
		if errors.Is(err, io.EOF) {
			<-s.done
			err = s.end
		}
		return fmt.Errorf("start sentry: %w", err)
	}
	defer p.Close()
	err = p.Decode(&s.hello)
	s.lifeline.Rest()
	if err != nil {
		return fmt.Errorf("start sentry: %w", err)
	}
	if s.hello.BuildID != cfg.BuildID {
		return api.Errorf(api.CodeConflict, "the program was replaced while the daemon runs: restart the daemon")
	}
	if s.group != nil {
		s.hello.Isolation.Cgroup = api.LayerOn
		s.hello.Isolation.CgroupKind = string(cfg.Cgroups.Kind())
	}
	return nil
}

// PrivateBytes returns the memory that only this sandbox uses: its own pages, and the
// private memory of its processes on the host.
func PrivateBytes(s *Sentry) (int64, error) {
	family, err := procfs.FamilyPrivate(s.PID())
	return Allocated(s.Memory()) + family, err
}

// SetLimits applies limits to the sentry's control group. Where there is none, a limit of memory is watched, see
// memwatch, and other limits are errors of CodeIsolation.
func (s *Sentry) SetLimits(l cgroup.Limits) error {
	watched := int64(0)
	if s.group == nil {
		watched, l.MemoryBytes = l.MemoryBytes, 0
	}
	if err := s.process.SetLimits(l); err != nil {
		return err
	}
	s.watch.Set(s.watches, watched, memwatch.Process{
		Done:  s.done,
		Guest: func() int64 { return Allocated(s.Memory()) },
		Rest:  func() int64 { n, _ := procfs.FamilyPrivate(s.PID()); return n }, // 0 when it has ended
		Kill:  func() { _ = s.handle.Kill() },                                   // it may have ended
	})
	return nil
}

// Kill ends the process if it runs, waits for it and removes all that belongs
// to it. It may be called more than once.
func (s *Sentry) Kill() {
	s.closeOnce.Do(func() {
		if s.handle != nil {
			_ = s.handle.Kill() // it may have ended
			<-s.done
		}
		s.release()
	})
}

// release gives up what belongs to a process that has ended.
func (s *Sentry) release() {
	if s.lifeline != nil {
		s.lifeline.Close()
	}
	if s.files != nil {
		s.files.Close()
	}
	if s.memory != nil {
		s.memory.Close()
	}
	if s.group != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = s.group.Kill()      // stubs end with their tracer; this ends one that did not
		_ = s.group.Delete(ctx) // a new daemon sweeps what is left
	}
	os.Remove(s.socketPath())
	os.Remove(s.logPath())
}
