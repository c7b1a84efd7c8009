package launch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/wire"
)

// adoptTimeout is how long a sentry may take to answer a new daemon. It may be
// in the middle of a freeze that the old daemon asked for.
const adoptTimeout = time.Minute

// Adopt finds a committed sentry that an earlier daemon started, by its key,
// process id and start time. It returns the description that the sentry sends, and
// the generations it holds, in the order of Adopted.Generations. A sentry that
// does not answer as it should is killed, but not when ctx ends or this process
// lacks descriptors or memory: see IsShort.
func (l *Launcher) Adopt(ctx context.Context, key string, pid int, startTime uint64) (*Sentry, *wire.Adopted, []*os.File, error) {
	if !validKey(key) {
		return nil, nil, nil, api.Errorf(api.CodeCorrupt, "%q is no sentry", key)
	}
	s := &Sentry{watches: l.watches, process: process{key: key, dir: l.cfg.Dir, logger: l.cfg.Log, pid: pid, done: make(chan struct{})}}
	if l.cfg.Cgroups != nil {
		if g, err := l.cfg.Cgroups.Open(key); err == nil {
			s.group = g
		}
	}
	if err := s.awaitStranger(pid, startTime); IsShort(err) {
		return nil, nil, nil, fmt.Errorf("adopt sentry: %w", err)
	} else if err != nil {
		s.end = err
		close(s.done)
		s.Kill() // removes the files and the control group that it left
		return nil, nil, nil, err
	}
	var info wire.Adopted
	bounded, cancel := context.WithTimeout(ctx, adoptTimeout)
	defer cancel()
	files, err := s.Call(bounded, &wire.Call{Op: wire.OpAdopt}, &info)
	if err == nil && len(files) != 2+len(info.Generations) {
		err = api.Errorf(api.CodeCorrupt, "sentry sent %d descriptors for %d generations", len(files), len(info.Generations))
	}
	if err == nil {
		s.memory, err = ReadOnly(files[0])
		files[0].Close()
	}
	if err == nil {
		s.files, err = ReadOnly(files[1])
		files[1].Close()
	}
	if err != nil {
		for _, f := range files {
			f.Close()
		}
		if ctx.Err() == nil && !IsShort(err) { // else it is this daemon that gives up, and the sandbox runs on
			s.Kill()
		}
		return nil, nil, nil, fmt.Errorf("adopt sentry: %w", err)
	}
	s.hello.Isolation = info.Isolation
	return s, &info, files[2:], nil
}

// IsShort reports whether err says that this process can have no more
// descriptors or memory. It says nothing about a sentry then.
func IsShort(err error) bool {
	for _, short := range []error{unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.ENOBUFS, wire.ErrFilesLost} {
		if errors.Is(err, short) {
			return true
		}
	}
	return false
}
