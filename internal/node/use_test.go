package node

import (
	"context"
	"io"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/node/nodetest"
	"ramet.dev/ramet/internal/node/sandboxes"
	"ramet.dev/ramet/internal/node/timer/timertest"
)

// TestOpenFilesAreUsed has a file open, which is closed twice.
func TestOpenFilesAreUsed(t *testing.T) {
	m, b := nodeOf(t, func(*wire.Call) (any, error) { return api.FileInfo{Size: 1 << 30}, nil })
	unused := func() bool { _, a := b.Activity(); return a.Uses == 0 }
	f, err := m.OpenFile(nodetest.AsOwner, b.ID, api.FileRef{Path: "/large"})
	if err != nil {
		t.Fatal(err)
	}
	if unused() {
		t.Error("nobody uses it while a file of it is being read")
	}
	for range 2 {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, a := b.Activity(); a.Uses != 0 {
		t.Errorf("it is used by %d although the file is closed", a.Uses)
	}
}

// TestWatchingIsNoUse follows the files and a process of a sandbox for longer than it
// may be idle, and then types something.
func TestWatchingIsNoUse(t *testing.T) {
	following, end := make(chan struct{}), make(chan struct{})
	clock := timertest.New(time.Now())
	m, b := nodeWith(t, clock, func(*wire.Call) (any, error) {
		following <- struct{}{}
		<-end
		return struct{}{}, nil
	})
	isIdle := func() bool {
		_, a := b.Activity()
		return a.Uses == 0 && clock.Now().Sub(a.At) > 10*time.Second
	}
	keys, typed := io.Pipe()
	for what, follow := range map[string]func() error{
		"watch": func() error {
			return m.WatchFiles(nodetest.AsOwner, b.ID, api.WatchRequest{}, func(api.FileEvents) error { return nil })
		},
		"attach": func() error {
			_, err := m.Attach(nodetest.AsOwner, b.ID, 7, api.AttachRequest{Follow: true}, api.AttachIO{Stdin: keys, Output: func(api.Chunk) error { return nil }})
			return err
		},
	} {
		over := make(chan error, 1)
		go func() { over <- follow() }()
		<-following
		if isIdle() {
			t.Errorf("%s: the sandbox is idle as soon as it begins", what)
		}
		clock.Advance(time.Minute)
		if !isIdle() {
			t.Errorf("%s: the sandbox is not idle although nobody uses it", what)
		}
		if what == "attach" {
			for range 2 { // the first was read, and noted, when the second is taken
				if _, err := typed.Write([]byte("x")); err != nil {
					t.Error(err)
				}
			}
			if isIdle() {
				t.Error("the sandbox is idle although somebody types")
			}
		}
		end <- struct{}{}
		<-over // how the fake ends it does not matter
	}
	typed.Close()
}

// TestUnreadyIsWaitedFor asks for the processes of a sandbox, and uses it, while it
// is being made.
func TestUnreadyIsWaitedFor(t *testing.T) {
	for name, c := range map[string]struct {
		becomes api.State
		want    api.Code
	}{"runs": {api.StateRunning, ""}, "fails": {api.StateFailed, api.CodeSandboxDied}} {
		t.Run(name, func(t *testing.T) {
			m, made := nodeOf(t, func(call *wire.Call) (any, error) {
				if call.Op == wire.OpPS {
					return wire.Processes{}, nil
				}
				return wire.Started{PID: 7}, nil
			})
			b := sandboxes.NewChild(t.Context(), sandboxes.Record{Sandbox: api.Sandbox{ID: api.NewID(api.KindSandbox), State: api.StateCreating}})
			if err := m.sandboxes.Enlist(nodetest.AsOwner, []*sandboxes.Instance{b}); err != nil {
				t.Fatal(err)
			}
			gone, cancel := context.WithCancel(nodetest.AsOwner)
			cancel()
			if _, err := m.Processes(gone, b.ID, false); api.CodeOf(err) != api.CodeCanceled {
				t.Errorf("who is gone is told %v", err)
			}
			if _, err := m.Stats(nodetest.AsOwner, b.ID); api.CodeOf(err) == api.CodeInternal {
				t.Errorf("stats: %v", err)
			}
			answers := make(chan error)
			go func() { _, err := m.Processes(nodetest.AsOwner, b.ID, false); answers <- err }()
			go func() {
				_, err := m.StartProcess(nodetest.AsOwner, b.ID, api.StartRequest{Argv: []string{"true"}})
				answers <- err
			}()
			go func() { _, err := m.Wake(nodetest.AsOwner, b.ID); answers <- err }()
			if c.becomes == api.StateRunning {
				b.Give(made.Sentry(), nil)
			}
			b.Amend(func(rec *sandboxes.Record) { rec.Sandbox.State = c.becomes })
			b.Settle()
			codes := map[api.Code]int{}
			for range 3 {
				codes[api.CodeOf(<-answers)]++
			}
			if codes[c.want] != 2 || codes[api.CodeWrongState] != 1 {
				t.Errorf("they are told %v", codes)
			}
		})
	}
}
