package fork

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/test/harness"
)

// tryFreeze freezes s to file and returns the error.
func (e *engine) tryFreeze(s *launch.Sentry, id string, file *os.File) error {
	_, err := s.Call(harness.AsOwner, &wire.Call{Op: wire.OpFreeze, Freeze: &wire.Freeze{ID: id, Self: s.Key()}}, nil, file)
	return err
}

// TestFreezeNameIsTaken freezes twice under one name: what the first freeze
// pinned must stay so.
func TestFreezeNameIsTaken(t *testing.T) {
	e := newEngine(t)
	source := e.boot()
	e.exec(source, "start", "-value", "0", "-only", "heap,bulk")
	file, frozen := e.freeze(source, "name")
	defer file.Close()
	again, err := launch.NewFile("snapshot")
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if err := e.tryFreeze(source, "name", again); err == nil || !strings.Contains(err.Error(), "exists") {
		t.Errorf("the second freeze: %v", err)
	}
	e.exec(source, "ask", "=1")
	e.mustHold(source, "1")
	child := e.load(file, frozen)
	e.mustHold(child, "0")
}

// TestFreezeCannotBeWritten freezes to a file that takes nothing. The sandbox
// must go on as before, and the next freeze must work.
func TestFreezeCannotBeWritten(t *testing.T) {
	e := newEngine(t)
	source := e.boot()
	e.exec(source, "start", "-value", "0", "-only", "heap,bulk,files,proc,mount,chatter")
	sealed, err := launch.NewFile("snapshot")
	if err != nil {
		t.Fatal(err)
	}
	defer sealed.Close()
	if _, err := unix.FcntlInt(sealed.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_GROW); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the first one must not have kept the name
		if err := e.tryFreeze(source, "name", sealed); err == nil || !strings.Contains(err.Error(), "save kernel state") {
			t.Fatalf("freeze to a file that takes nothing: %v", err)
		}
	}
	e.mustHold(source, "0")
	e.exec(source, "cat", "/proc/1/stat")
	e.exec(source, "ask", "=1")
	file, frozen := e.freeze(source, "name")
	defer file.Close()
	e.exec(source, "ask", "=2")
	child := e.load(file, frozen)
	e.mustHold(child, "1")
	e.exec(child, "cat", "/proc/1/stat")
}

// MustHold checks that all items of the holder in s are in the state want.
func (e *engine) mustHold(s *launch.Sentry, want string) {
	e.t.Helper()
	var out strings.Builder
	r, err := s.Exec(harness.AsOwner, &wire.Exec{Argv: []string{"guest", "ask"}}, api.ExecIO{Stdout: &out, Stderr: &out})
	if err != nil || r.Code != 0 {
		e.t.Fatalf("ask: %+v %v: %s", r, err, out.String())
	}
	reply := &harness.Reply{}
	if err := json.Unmarshal([]byte(out.String()), reply); err != nil {
		e.t.Fatal(err)
	}
	if err := reply.Check(fmt.Sprint(s.PID()), "", want); err != nil {
		e.t.Error(err)
	}
}

// TestNothingHappensAtRest has a sandbox be frozen to rest. What is done to it then is
// not in the snapshot, and who asks for it must not be told that it was done.
func TestNothingHappensAtRest(t *testing.T) {
	e := newEngine(t)
	s := e.boot()
	mkdir := func(path string) error {
		_, err := s.Call(harness.AsOwner, &wire.Call{Op: wire.OpFile, File: &wire.File{Verb: wire.FileMkdir, Path: []byte(path)}}, nil)
		return err
	}
	var started wire.Started
	e.call(s, &wire.Call{Op: wire.OpStart, Exec: &wire.Exec{Argv: []string{"guest", "sleep", "1h"}, Stdin: true}}, &started)
	input := func() error {
		_, err := s.Call(harness.AsOwner, &wire.Call{Op: wire.OpInput, Input: &wire.Input{PID: started.PID, Data: []byte("x")}}, nil)
		return err
	}
	signal := func() error {
		_, err := s.Call(harness.AsOwner, &wire.Call{Op: wire.OpSignal, Signal: &wire.Signal{PID: started.PID, Number: int(unix.SIGCONT)}}, nil)
		return err
	}
	rest := func(id string) {
		t.Helper()
		file, err := launch.NewFile("snapshot")
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		e.call(s, &wire.Call{Op: wire.OpFreeze, Freeze: &wire.Freeze{ID: id, Self: s.Key(), SelfFiles: s.FilesName(), Rest: true}}, nil, file)
	}
	for _, what := range []string{"first", "second"} {
		rest(what)
		// What was frozen is given up before the sandbox is ended, or goes on.
		e.call(s, &wire.Call{Op: wire.OpRelease, Release: &wire.Release{ID: what}}, nil)
		for op, do := range map[string]func() error{"mkdir": func() error { return mkdir("/" + what) }, "input": input, "signal": signal} {
			if err := do(); api.CodeOf(err) != api.CodeWrongState || !strings.Contains(err.Error(), "hibernated") {
				t.Errorf("%s of a sandbox that rests: %v", op, err)
			}
		}
		if _, err := s.Call(harness.AsOwner, &wire.Call{Op: wire.OpFile, File: &wire.File{Verb: wire.FileStat, Path: []byte("/tmp")}}, nil); err != nil {
			t.Errorf("a look at a sandbox that rests: %v", err)
		}
		e.call(s, &wire.Call{Op: wire.OpResume}, nil)
		if err := mkdir("/" + what); err != nil {
			t.Errorf("after the rest: %v", err)
		}
	}
	if err := errors.Join(input(), signal()); err != nil {
		t.Error(err)
	}
}
