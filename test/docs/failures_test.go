package docs

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"ramet.dev/ramet/api"
)

// A call that is cut off has an error within this time, and what it made ends by itself after its time
// to live.
const (
	within = 2 * time.Second
	busy   = 2 * time.Second // more on a machine that is busy with something else
	toLive = int64(3000)     // ms
)

// call is a call of the Go client that something is to happen to.
type call struct {
	name string
	// apart calls have a sandbox of their own, as others would wait for them.
	apart bool
	// outlives calls may succeed although the process of their sandbox was killed: they use what is on disk,
	// or a child that was about to be born.
	outlives bool
	// on makes the call. It waits for more than the test does, or is short and made over and over.
	on func(*user) error
}

// Commands that calls wait for are of these numbers of seconds: those of the first end with their caller.
const (
	foreground = "98765"
	background = "87654"
)

var (
	sleeping = api.ExecRequest{Argv: []string{"sleep", foreground}}
	lasting  = api.StartRequest{Argv: []string{"sleep", background}}
	ending   = &api.LifecycleRequest{TTLMS: new(toLive)}
)

// calls are those that wait, or that take long enough to be cut off.
var calls = []call{
	{name: "exec", on: func(u *user) error {
		_, err := u.Processes.Exec(u.ctx, u.id, sleeping)
		return err
	}},
	{name: "exec, streaming", on: func(u *user) error {
		_, err := u.Processes.ExecStream(u.ctx, u.id, sleeping, api.ExecIO{})
		return err
	}},
	{name: "exec, with input", on: func(u *user) error {
		in, never := io.Pipe()
		defer never.Close()
		_, err := u.Processes.ExecStream(u.ctx, u.id, sleeping, api.ExecIO{Stdin: in})
		return err
	}},
	{name: "run_code", on: func(u *user) error {
		_, err := u.Contexts.RunCode(u.ctx, u.id, api.RunCodeRequest{Code: "import time; time.sleep(1000)", Language: "python", Context: "one"})
		return err
	}},
	{name: "run_code, streaming", on: func(u *user) error {
		_, err := u.Contexts.RunCodeStream(u.ctx, u.id, api.RunCodeRequest{Code: "import time; time.sleep(1000)", Language: "python", Context: "two"}, api.RunIO{})
		return err
	}},
	{name: "wait", on: onProcess(func(u *user, pid int) error {
		_, err := u.Processes.Wait(u.ctx, u.id, pid)
		return err
	})},
	{name: "output", on: onProcess(func(u *user, pid int) error {
		_, err := u.Processes.Output(u.ctx, u.id, pid, api.AttachRequest{Follow: true}, func(api.Chunk) error { return nil })
		return err
	})},
	{name: "attach", on: onProcess(func(u *user, pid int) error {
		_, err := u.Processes.Attach(u.ctx, u.id, pid, 0, api.AttachIO{Output: func(api.Chunk) error { return nil }})
		return err
	})},
	{name: "terminal", on: func(u *user) error {
		p, err := u.Processes.Start(u.ctx, u.id, api.StartRequest{Argv: lasting.Argv, Terminal: &api.TerminalSize{Cols: 80, Rows: 24}})
		if err != nil {
			return err
		}
		in, never := io.Pipe()
		defer never.Close()
		_, err = u.Processes.Attach(u.ctx, u.id, p.PID, 0, api.AttachIO{Stdin: in, Output: func(api.Chunk) error { return nil }})
		return err
	}},
	{name: "read", on: func(u *user) error {
		body, _, err := u.Files.Read(u.ctx, u.id, api.FileRef{Path: "/srv/large"})
		if err != nil {
			return err
		}
		defer body.Close()
		_, err = io.Copy(io.Discard, body)
		return err
	}},
	{name: "write", on: func(u *user) error {
		_, err := u.Files.Write(u.ctx, u.id, api.WriteRequest{FileRef: api.FileRef{Path: "/srv/written"}}, bytes.NewReader(large))
		return err
	}},
	{name: "download", on: func(u *user) error {
		body, err := u.Files.ReadArchive(u.ctx, u.id, api.FileRef{Path: "/srv/large"})
		if err != nil {
			return err
		}
		defer body.Close()
		_, err = io.Copy(io.Discard, body)
		return err
	}},
	{name: "upload", on: func(u *user) error {
		_, err := u.Files.WriteArchive(u.ctx, u.id, api.FileRef{Path: "/srv/unpacked"}, true, bytes.NewReader(archive))
		return err
	}},
	{name: "watch", on: func(u *user) error {
		return u.Files.Watch(u.ctx, u.id, api.WatchRequest{FileRef: api.FileRef{Path: "/etc"}}, func(api.FileEvents) error { return nil })
	}},
	{name: "events", outlives: true, on: func(u *user) error { // failure is one of them
		return u.Events(u.ctx, api.EventRequest{Sandbox: u.id, Since: -1, Follow: true}, func(ev api.Event) error {
			if ev.Kind == api.EventFailed {
				return errTold
			}
			return nil
		})
	}},
	{name: "logs", on: func(u *user) error {
		return u.Processes.Logs(u.ctx, u.id, true, func(api.LogPiece) error { return nil })
	}},
	{name: "port, waited for", on: func(u *user) error {
		_, err := u.Ports.Wait(u.ctx, u.id, 9, 10*time.Minute)
		return err
	}},
	{name: "port, connected to", on: func(u *user) error {
		conn, err := u.Ports.Dial(u.ctx, u.id, 8000, time.Minute)
		if err != nil {
			return err
		}
		defer conn.Close()
		stop := context.AfterFunc(u.ctx, func() { conn.Close() }) // ctx bounds the call and not the connection
		defer stop()
		_, err = io.Copy(io.Discard, conn)
		if u.ctx.Err() != nil {
			return u.ctx.Err()
		}
		return err
	}},
	{name: "explore", apart: true, on: func(u *user) error {
		e, err := u.Explorations.Run(u.ctx, u.id, api.ExplorePlan{Width: 2, Run: api.ExploreRun{Argv: sleeping.Argv}, Limits: api.ExploreLimits{TimeoutMS: 1000}})
		if err == nil && e.Error != nil {
			return e.Error
		}
		return err
	}},
	{name: "fork", apart: true, on: func(u *user) error {
		forked, err := u.Sandboxes.Fork(u.ctx, u.id, api.ForkRequest{Count: 2, Lifecycle: ending})
		return u.remove(forked, err)
	}},
	{name: "snapshot", apart: true, on: func(u *user) error {
		snap, err := u.Snapshots.Create(u.ctx, u.id, api.SnapshotRequest{})
		if err != nil {
			return err
		}
		return u.Snapshots.Delete(u.ctx, snap.ID, api.SnapshotDeletion{})
	}},
	{name: "restore", apart: true, outlives: true, on: func(u *user) error {
		snap, err := u.snapshot()
		if err != nil {
			return err
		}
		restored, err := u.Snapshots.Restore(u.ctx, snap, api.RestoreRequest{Lifecycle: ending})
		return u.remove(restored, err)
	}},
	{name: "rollback", apart: true, outlives: true, on: func(u *user) error {
		snap, err := u.snapshot()
		if err != nil {
			return err
		}
		_, err = u.Sandboxes.Rollback(u.ctx, u.id, snap)
		return err
	}},
	{name: "pause", apart: true, on: func(u *user) error {
		if _, err := u.Sandboxes.Pause(u.ctx, u.id); err != nil {
			return err
		}
		_, err := u.Sandboxes.Resume(u.ctx, u.id)
		return err
	}},
	{name: "hibernate", apart: true, outlives: true, on: func(u *user) error {
		if _, err := u.Sandboxes.Hibernate(u.ctx, u.id); err != nil {
			return err
		}
		_, err := u.Sandboxes.Wake(u.ctx, u.id)
		return err
	}},
	{name: "diff", apart: true, on: func(u *user) error {
		return u.withChild(func(child string) error {
			_, err := u.Sandboxes.Diff(u.ctx, u.id, child, api.DiffRequest{})
			return err
		})
	}},
	{name: "merge", apart: true, on: func(u *user) error {
		return u.withChild(func(child string) error {
			_, err := u.Sandboxes.Merge(u.ctx, u.id, api.MergeRequest{From: []string{child}, Paths: []string{"/srv"}})
			return err
		})
	}},
	{name: "promote", apart: true, outlives: true, on: func(u *user) error {
		return u.withChild(func(child string) error {
			_, err := u.Sandboxes.Promote(u.ctx, child)
			return err
		})
	}},
}

var (
	large   = make([]byte, 8<<20)
	archive = tarOf(large)
	errTold = api.Errorf(api.CodeSandboxDied, "an event told it")
)

func tarOf(data []byte) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "data", Mode: 0o644, Size: int64(len(data))})
	if err == nil {
		_, err = w.Write(data)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		panic(err)
	}
	return b.Bytes()
}

func onProcess(do func(*user, int) error) func(*user) error {
	return func(u *user) error {
		p, err := u.Processes.Start(u.ctx, u.id, lasting)
		if err != nil {
			return err
		}
		return do(u, p.PID)
	}
}

// remove removes what a fork or a restore has made.
func (u *user) remove(forked *api.ForkResult, err error) error {
	if err != nil {
		return err
	}
	for _, child := range forked.Children {
		if child.Error != nil {
			return child.Error
		}
		if err := u.Sandboxes.Destroy(u.ctx, child.Sandbox.ID); err != nil && api.CodeOf(err) != api.CodeNotFound {
			return err
		}
	}
	return nil
}

func (u *user) withChild(do func(child string) error) error {
	forked, err := u.Sandboxes.Fork(u.ctx, u.id, api.ForkRequest{Lifecycle: ending})
	if err != nil {
		return err
	}
	if child := forked.Children[0]; child.Error != nil {
		return child.Error
	} else if err := do(child.Sandbox.ID); err != nil {
		return err
	}
	return u.remove(forked, nil)
}

// snapshot returns the snapshot of the sandbox, which it makes if there is none.
func (u *user) snapshot() (string, error) {
	if all, err := u.Snapshots.ListOf(u.ctx, u.id); err != nil || len(all) > 0 {
		if err != nil {
			return "", err
		}
		return all[0].ID, nil
	}
	snap, err := u.Snapshots.Create(u.ctx, u.id, api.SnapshotRequest{})
	if err != nil {
		return "", err
	}
	return snap.ID, nil
}

// cut is how a call ended.
type cut struct {
	call
	err  error
	late time.Duration // after what happened to it
}

// cutOff makes all calls, does something to them once all are in the middle, and returns how they ended.
func cutOff(t *testing.T, base *user, own map[string]*user, happens func(cancel func())) []cut {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var (
		mu       sync.Mutex
		happened time.Time
		ended    = make(chan cut)
		begun    sync.WaitGroup
	)
	when := func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		return happened
	}
	for _, c := range calls {
		u := &user{T: t, Client: base.Client, ctx: ctx, id: base.id}
		if c.apart {
			u.id = own[c.name].id
		}
		begun.Add(1)
		go func() {
			first := sync.OnceFunc(begun.Done)
			timer := time.AfterFunc(200*time.Millisecond, first) // the call is one that waits
			defer timer.Stop()
			for {
				began := time.Now()
				err := c.on(u)
				at := when()
				switch {
				case err != nil && at.IsZero():
					err = fmt.Errorf("before anything happened: %w", err)
				case err == nil && (at.IsZero() || began.Before(at) || !c.outlives):
					first()
					if at.IsZero() || time.Since(at) < within+busy {
						continue
					}
				}
				first()
				ended <- cut{c, err, time.Since(at)}
				return
			}
		}()
	}
	begun.Wait()
	mu.Lock()
	happens(cancel)
	happened = time.Now()
	mu.Unlock()
	var all []cut
	for range calls {
		select {
		case c := <-ended:
			all = append(all, c)
		case <-time.After(timeout):
			t.Fatalf("only %d of %d calls have ended: %v", len(all), len(calls), all)
		}
	}
	return all
}

// lateness returns how late an error may be now.
func lateness(t *testing.T) time.Duration {
	t.Helper()
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		t.Fatal(err)
	}
	load, err := strconv.ParseFloat(strings.Fields(string(text))[0], 64)
	if err != nil {
		t.Fatal(err)
	}
	if load > float64(runtime.NumCPU()) {
		return within + busy
	}
	return within
}

// TestClientCallsThatAreCutOff has the caller, the daemon and the sandboxes end in the middle of every
// call: it is an error within 2 s that says what happened, and nothing is left.
func TestClientCallsThatAreCutOff(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	base := newUser(t, d.client())
	base.value("import json")
	base.write("/srv/large", string(large))
	take(base.Processes.Start(base.ctx, base.id, api.StartRequest{Argv: []string{"python3", "-c", "import socket, time\ns = socket.create_server(('', 8000))\ntime.sleep(1000)"}}))(base)
	take(base.Ports.Wait(base.ctx, base.id, 8000, time.Minute))(base)
	own := map[string]*user{}
	known := []string{base.id}
	names := map[string]string{base.id: "base"}
	for _, c := range calls {
		if c.apart {
			own[c.name] = base.fork()
			known = append(known, own[c.name].id)
			names[own[c.name].id] = c.name
		}
	}
	// expect checks that errors have one of the codes, and say what happened.
	expect := func(all []cut, what *regexp.Regexp, codes ...api.Code) {
		t.Helper()
		for _, c := range all {
			if c.err == nil && c.outlives && slices.Contains(codes, api.CodeSandboxDied) {
				continue
			}
			if !slices.Contains(codes, api.CodeOf(c.err)) || !what.MatchString(c.err.Error()) {
				t.Errorf("%s: %v (%s), and not %v that says %v", c.name, c.err, api.CodeOf(c.err), codes, what)
			}
			if c.late > lateness(t) {
				t.Errorf("%s: its error comes after %v: %v", c.name, c.late, c.err)
			}
		}
	}
	// nothingLeft waits until there is nothing but what the test has.
	nothingLeft := func() {
		t.Helper()
		var left []string
		if !eventually(timeout, func() bool {
			left = nil
			for _, s := range take(base.Sandboxes.List(base.ctx, api.ListFilter{}))(base) {
				if !slices.Contains(known, s.ID) {
					left = append(left, s.ID)
				} else if s.State == api.StateRunning {
					all, err := base.Processes.List(base.ctx, s.ID, false)
					if err != nil { // it may not run any more
						left = append(left, fmt.Sprintf("the processes of %s (%s): %v", s.ID, names[s.ID], err))
					}
					for _, p := range all {
						if strings.Contains(p.Command, foreground) {
							left = append(left, s.ID+": "+p.Command)
						}
					}
				}
			}
			return len(left) == 0
		}) {
			t.Errorf("%q are left", left)
		}
	}
	awake := func() {
		for _, u := range own {
			_, _ = u.Sandboxes.Resume(u.ctx, u.id) // most are not paused
			take(u.Processes.Exec(u.ctx, u.id, api.ExecRequest{Argv: []string{"true"}}))(u)
		}
	}

	expect(cutOff(t, base, own, func(cancel func()) { cancel() }), regexp.MustCompile(`canceled`), api.CodeCanceled)
	nothingLeft()
	awake()

	expect(cutOff(t, base, own, func(func()) { d.kill() }), regexp.MustCompile(`ended|connection refused`), api.CodeUnavailable)
	d.start()
	nothingLeft()
	awake()

	// A connection to a port, and an answer in the middle of its bytes, say no more than that they broke off.
	expect(cutOff(t, base, own, func(func()) { d.killSandboxes() }), regexp.MustCompile(`sentry ended|killed|told|connection ended|ended$`), api.CodeSandboxDied, api.CodeWrongState, api.CodeUnavailable)
	nothingLeft()
}
