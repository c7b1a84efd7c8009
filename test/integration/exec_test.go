package integration

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/image"
)

// TestExecOutcomes runs commands that end in every way there is.
func TestExecOutcomes(t *testing.T) {
	n := newNode(t)
	n.create("box")
	n.guest("box", "write", "/srv/script", "#!/no/such/interpreter\n", "755")
	guest := func(args ...string) api.ExecRequest {
		return api.ExecRequest{Argv: append([]string{"guest"}, args...)}
	}
	for name, c := range map[string]struct {
		req            api.ExecRequest
		stdin          string
		code           int
		signal         string
		stdout, stderr string // stderr: a part of it
	}{
		"success":        {req: guest("say", "hello"), stdout: "hello\n"},
		"exit code":      {req: guest("exit", "3"), code: 3},
		"both streams":   {req: guest("say", "out", "err:bad"), stdout: "out\n", stderr: "bad\n"},
		"killed":         {req: guest("kill", "9"), code: 137, signal: "SIGKILL"},
		"terminated":     {req: guest("kill", "15"), code: 143, signal: "SIGTERM"},
		"no command":     {req: api.ExecRequest{Argv: []string{"nosuch"}}, code: 127, stderr: "nosuch"},
		"no such path":   {req: api.ExecRequest{Argv: []string{"/bin/nosuch"}}, code: 127, stderr: "nosuch"},
		"not executable": {req: api.ExecRequest{Argv: []string{"/srv/text"}}, code: 126, stderr: "ramet: /srv/text: permission denied\n"},
		"a directory":    {req: api.ExecRequest{Argv: []string{"/srv"}}, code: 126, stderr: "/srv"},
		"no program":     {req: api.ExecRequest{Argv: []string{"/srv/broken"}}, code: 126, stderr: "/srv/broken"},
		"no interpreter": {req: api.ExecRequest{Argv: []string{"/srv/script"}}, code: 126, stderr: "ramet: /srv/script: the interpreter that the file asks for is not there\n"},
		"no shell":       {req: api.ExecRequest{Shell: "true"}, code: 127, stderr: "/bin/sh"},
		"no input":       {req: guest("cat"), stdout: ""},
		"input":          {req: guest("cat"), stdin: "some input", stdout: "some input"},
		"environment":    {req: api.ExecRequest{Argv: []string{"guest", "say", "env:A", "env:HOME"}, Env: map[string]string{"A": "b c"}}, stdout: "b c\n/root\n"},
		"directory":      {req: api.ExecRequest{Argv: []string{"guest", "id"}, Cwd: "/srv"}, stdout: "0 0 box /srv"},
		"root":           {req: guest("id"), stdout: "0 0 box /"},
		"user":           {req: api.ExecRequest{Argv: []string{"guest", "id"}, User: "worker"}, stdout: "1000 1001 box /"},
		"user and group": {req: api.ExecRequest{Argv: []string{"guest", "id"}, User: "worker:others"}, stdout: "1000 1002 box /"},
		"number":         {req: api.ExecRequest{Argv: []string{"guest", "id"}, User: "1000"}, stdout: "1000 1001 box /"},
		"unknown number": {req: api.ExecRequest{Argv: []string{"guest", "id"}, User: "4242"}, stdout: "4242 0 box /"},
		"numbers":        {req: api.ExecRequest{Argv: []string{"guest", "id"}, User: "4242:17"}, stdout: "4242 17 box /"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := n.run("box", c.req, c.stdin)
			if err != nil {
				t.Fatal(err)
			}
			if out.ExitCode != c.code || out.Signal != c.signal || out.OK != (c.code == 0) || out.TimedOut {
				t.Errorf("outcome is %+v, not code %d, signal %q", *out.ExecResult, c.code, c.signal)
			}
			got := out.stdout.String()
			if strings.HasPrefix(c.stdout, "0 0") || strings.Contains(c.stdout, " box ") {
				got = got[:min(len(got), len(c.stdout))] // the process id follows
			}
			if got != c.stdout {
				t.Errorf("stdout is %q, not %q", got, c.stdout)
			}
			if e := out.stderr.String(); !strings.Contains(e, c.stderr) || c.stderr == "" && e != "" {
				t.Errorf("stderr is %q, without %q", e, c.stderr)
			}
		})
	}
}

// TestSetIDPrograms runs a program with set-id bits as somebody else: it has its owner's
// rights, in a child too.
func TestSetIDPrograms(t *testing.T) {
	n := newNode(t)
	n.create("box")
	program, err := os.ReadFile(guestProgram())
	if err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]string{"both": "6755", "user": "4755", "group": "2755", "none": "755"} {
		path := "/srv/" + name
		n.put("box", api.WriteRequest{FileRef: at(path)}, string(program))
		n.guest("box", "edit", "chown "+path+" 1000.1001", "chmod "+path+" "+mode)
	}
	child := n.fork("box", 1)[0].ID
	for _, ref := range []string{"box", child} {
		for name, want := range map[string]string{"both": "1000 1001 ", "user": "1000 17 ", "group": "4242 1001 ", "none": "4242 17 "} {
			out, err := n.run(ref, api.ExecRequest{Argv: []string{"/srv/" + name, "id"}, User: "4242:17"}, "")
			if err != nil {
				t.Fatal(err)
			}
			if got := out.stdout.String(); !strings.HasPrefix(got, want) {
				t.Errorf("with set-id bits for %s it is %q, want %q", name, got, want)
			}
		}
	}
}

// TestExecRefuses makes requests that must not start anything.
func TestExecRefuses(t *testing.T) {
	n := newNode(t)
	n.create("box")
	id := []string{"guest", "id"}
	for name, c := range map[string]struct {
		req  api.ExecRequest
		code api.Code
	}{
		"unknown user":    {api.ExecRequest{Argv: id, User: "nobody-at-all"}, api.CodeInvalid},
		"unknown group":   {api.ExecRequest{Argv: id, User: "worker:nogroup"}, api.CodeInvalid},
		"empty user":      {api.ExecRequest{Argv: id, User: ":"}, api.CodeInvalid},
		"user of a path":  {api.ExecRequest{Argv: id, User: "../root"}, api.CodeInvalid},
		"negative user":   {api.ExecRequest{Argv: id, User: "-1"}, api.CodeInvalid},
		"huge user":       {api.ExecRequest{Argv: id, User: "4294967296"}, api.CodeInvalid},
		"no user":         {api.ExecRequest{Argv: id, User: "4294967295"}, api.CodeInvalid},
		"no command":      {api.ExecRequest{}, api.CodeInvalid},
		"empty command":   {api.ExecRequest{Argv: []string{""}}, api.CodeInvalid},
		"two commands":    {api.ExecRequest{Argv: id, Shell: "true"}, api.CodeInvalid},
		"relative cwd":    {api.ExecRequest{Argv: id, Cwd: "srv"}, api.CodeInvalid},
		"missing cwd":     {api.ExecRequest{Argv: id, Cwd: "/nosuch"}, api.CodeInvalid},
		"cwd is a file":   {api.ExecRequest{Argv: id, Cwd: "/srv/text"}, api.CodeInvalid},
		"bad variable":    {api.ExecRequest{Argv: id, Env: map[string]string{"A=B": "c"}}, api.CodeInvalid},
		"NUL in variable": {api.ExecRequest{Argv: id, Env: map[string]string{"A": "\x00"}}, api.CodeInvalid},
		"NUL in argument": {api.ExecRequest{Argv: []string{"guest", "say", "a\x00b"}}, api.CodeInvalid},
		"huge argument":   {api.ExecRequest{Argv: []string{"guest", "say", strings.Repeat("a", 1<<20)}}, api.CodeLimit},
		"negative limit":  {api.ExecRequest{Argv: id, TimeoutMS: -1}, api.CodeInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := n.run("box", c.req, "")
			wantCode(t, err, c.code)
			if err == nil {
				t.Errorf("it ran: %+v %q", *out.ExecResult, out.stdout.String())
			}
		})
	}
}

// TestExecTimeout checks that at the limit all processes of the command end, and
// that the result has what was written until then.
func TestExecTimeout(t *testing.T) {
	n := newNode(t)
	n.create("box")
	began := time.Now()
	out, err := n.run("box", api.ExecRequest{Argv: []string{"guest", "brood", "3"}, TimeoutMS: 2500}, "")
	if err != nil {
		t.Fatal(err)
	}
	if !out.TimedOut || out.ExitCode != 137 || out.Signal != "SIGKILL" {
		t.Errorf("outcome is %+v", *out.ExecResult)
	}
	if lines := strings.Count(out.stdout.String(), "\n"); lines != 3 {
		t.Errorf("output has %d lines: %q", lines, out.stdout.String())
	}
	if d := time.Since(began); d < 2500*time.Millisecond || d > patience/2 {
		t.Errorf("it took %v", d)
	}
	eventually(t, "processes", func() error { return n.noProcesses("box") })
}

// slowReader is a caller who takes about as long to read as processes to write.
type slowReader struct{ first []byte }

func (s *slowReader) Write(b []byte) (int, error) {
	if s.first == nil {
		s.first = bytes.Clone(b)
	}
	for range 10 {
		sha256.Sum256(b)
	}
	return len(b), nil
}

// TestExecLeavesWriters runs commands that leave processes behind which write without
// end. The command's output ends with the command, at its timeout too, and the others
// go on.
func TestExecLeavesWriters(t *testing.T) {
	n := newNode(t)
	ctx := asOwner
	for _, c := range []struct {
		name string
		req  api.ExecRequest
		code int
	}{
		{"end", api.ExecRequest{Argv: []string{"guest", "leave", "0s"}}, 0},
		{"timeout", api.ExecRequest{Argv: []string{"guest", "leave", "1h"}, TimeoutMS: 2500}, 137},
	} {
		box := n.create("").ID
		out := &slowReader{}
		limited, cancel := context.WithTimeout(ctx, patience)
		r, err := n.m.Exec(limited, box, c.req, api.ExecIO{Stdout: out, Stderr: out})
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		if r.ExitCode != c.code || r.TimedOut != (c.code != 0) || !strings.HasPrefix(string(out.first), "left\n") {
			t.Errorf("%s: outcome is %+v, and the output begins with %.20q", c.name, *r, out.first)
		}
		list, err := n.m.Processes(ctx, box, false)
		if err != nil || len(list) != 2 {
			t.Errorf("%s: %+v still run, %v", c.name, list, err)
		}
		n.destroy(box)
	}
	n.create("box")
	for _, tty := range []*api.TerminalSize{nil, {Rows: 10, Cols: 10}} {
		pid := n.start("box", api.StartRequest{Terminal: tty}, "leave", "0s")
		f := n.follow("box", pid, 0)
		if x := f.exit(); !x.OK {
			t.Errorf("it ended with %+v", *x)
		}
		before := f.next
		eventually(t, "output of those that it left behind", func() error {
			later := n.follow("box", pid, -1)
			if later.exit(); later.pos.NextSeq <= before {
				return fmt.Errorf("it ends at %d", later.pos.NextSeq)
			}
			return nil
		})
	}
}

// noProcesses checks that nothing runs in ref.
func (n *testNode) noProcesses(ref string) error {
	list, err := n.m.Processes(asOwner, ref, false)
	if err == nil && len(list) > 0 {
		err = fmt.Errorf("still run: %+v", list)
	}
	return err
}

// TestExecKeepsEveryByte sends random bytes through a command and compares both
// of its outputs.
func TestExecKeepsEveryByte(t *testing.T) {
	n := newNode(t)
	n.create("box")
	data := make([]byte, 1<<20)
	rng := rand.NewChaCha8([32]byte{1})
	rng.Read(data)
	out, err := n.run("box", api.ExecRequest{Argv: []string{"guest", "tee"}}, string(data))
	if err != nil {
		t.Fatal(err)
	}
	for name, got := range map[string][]byte{"stdout": out.stdout.Bytes(), "stderr": out.stderr.Bytes()} {
		if !bytes.Equal(got, data) {
			t.Errorf("%s has %d other bytes", name, len(got))
		}
	}
}

// TestExecManyAtOnce runs 200 commands at the same time.
func TestExecManyAtOnce(t *testing.T) {
	const commands = 200
	n := newNode(t)
	n.create("box")
	var wg sync.WaitGroup
	for i := range commands {
		wg.Add(1)
		go func() {
			defer wg.Done()
			out, err := n.run("box", api.ExecRequest{Argv: []string{"guest", "cat"}}, fmt.Sprint("input of ", i))
			if err != nil {
				t.Error(err)
			} else if got := out.stdout.String(); out.ExitCode != 0 || got != fmt.Sprint("input of ", i) {
				t.Errorf("command %d: %+v %q %q", i, *out.ExecResult, got, out.stderr.String())
			}
		}()
	}
	wg.Wait()
	eventually(t, "processes", func() error { return n.noProcesses("box") })
}

// gate is a writer that takes nothing until it is opened.
type gate struct {
	open    chan struct{}
	waiting chan struct{}
	once    sync.Once
	n       int
}

func (g *gate) Write(b []byte) (int, error) {
	g.once.Do(func() { close(g.waiting) })
	<-g.open
	g.n += len(b)
	return len(b), nil
}

// TestSlowReader lets one caller stop reading. Others must not wait for it, a
// fork neither, and it must get everything in the end.
func TestSlowReader(t *testing.T) {
	const size = 8 << 20
	n := newNode(t)
	n.create("box")
	g := &gate{open: make(chan struct{}), waiting: make(chan struct{})}
	done := make(chan error)
	go func() {
		r, err := n.m.Exec(asOwner, "box", api.ExecRequest{Argv: []string{"guest", "spew", fmt.Sprint(size)}},
			api.ExecIO{Stdout: g, Stderr: io.Discard})
		if err == nil && r.ExitCode != 0 {
			err = fmt.Errorf("exit code %d", r.ExitCode)
		}
		done <- err
	}()
	<-g.waiting
	for i := range 10 {
		if got := n.guest("box", "say", fmt.Sprint(i)); got != fmt.Sprintln(i) {
			t.Errorf("command %d says %q", i, got)
		}
	}
	child := n.fork("box", 1)[0].ID
	if got := n.guest(child, "say", "hello"); got != "hello\n" {
		t.Errorf("child says %q", got)
	}
	// In the child nobody reads it, so it must not stop the command there.
	eventually(t, "command in the child", func() error { return n.noProcesses(child) })
	close(g.open)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if g.n != size {
		t.Errorf("caller got %d of %d bytes", g.n, size)
	}
}

// flood is endless input. It tells of each piece that is taken.
type flood struct{ taken chan struct{} }

func (f flood) Read(b []byte) (int, error) {
	f.taken <- struct{}{}
	return len(b), nil
}

// untilBackedUp returns when nothing more was taken for a while: all buffers on
// the way to the command are full then.
func (f flood) untilBackedUp() {
	const while = 500 * time.Millisecond
	<-f.taken
	for {
		select {
		case <-f.taken:
		case <-time.After(while):
			return
		}
	}
}

// TestExecCancelBehindUnreadInput cancels a command that does not read its input
// while all that is on the way to it stands still.
func TestExecCancelBehindUnreadInput(t *testing.T) {
	n := newNode(t)
	n.create("box")
	ctx, cancel := context.WithCancel(asOwner)
	defer cancel()
	input := flood{make(chan struct{})}
	done := make(chan error, 1)
	go func() {
		_, err := n.m.Exec(ctx, "box", api.ExecRequest{Argv: []string{"guest", "brood", "2"}}, api.ExecIO{Stdin: input, Stdout: io.Discard, Stderr: io.Discard})
		done <- err
	}()
	input.untilBackedUp()
	cancel()
	select {
	case err := <-done:
		wantCode(t, err, api.CodeCanceled)
	case <-time.After(patience):
		t.Fatal("the call does not return")
	}
	eventually(t, "processes", func() error { return n.noProcesses("box") })
}

// TestExecOutlived ends a sandbox under a command. The caller must hear how.
func TestExecOutlived(t *testing.T) {
	ctx := asOwner
	n := newNode(t)
	n.create("base")
	if _, err := n.m.Snapshot(ctx, "base", api.SnapshotRequest{Name: "start"}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		said string
		end  func() error
	}{
		{"rollback", func() error { _, err := n.m.Rollback(ctx, "base", "start"); return err }},
		{"promotion", func() error { _, err := n.m.Promote(ctx, n.fork("base", 1)[0].ID); return err }},
		{"removed", func() error { return n.m.Destroy(ctx, "base") }},
	} {
		g := &gate{open: make(chan struct{}), waiting: make(chan struct{})}
		close(g.open)
		done := make(chan error)
		go func() {
			_, err := n.m.Exec(ctx, "base", api.ExecRequest{Argv: []string{"guest", "brood", "1"}}, api.ExecIO{Stdout: g, Stderr: io.Discard})
			done <- err
		}()
		<-g.waiting
		if err := c.end(); err != nil {
			t.Fatal(err)
		}
		err := <-done
		wantCode(t, err, api.CodeSandboxDied)
		if err == nil || !strings.Contains(err.Error(), c.said) || strings.Contains(err.Error(), "killed") {
			t.Errorf("the command's error does not speak of a %s: %v", c.said, err)
		}
	}
}

// TestImageDefaults checks that commands run where and as whom the image says,
// in a sandbox, its children and what is restored, unless they say otherwise.
func TestImageDefaults(t *testing.T) {
	ctx := asOwner
	n := newNode(t)
	n.importWith(image.Options{Name: "worker", Config: &image.Config{Env: []string{"PATH=/bin"}, WorkingDir: "/srv", User: "worker"}})
	if _, err := n.m.Create(ctx, api.CreateRequest{Image: "worker", Name: "w"}); err != nil {
		t.Fatal(err)
	}
	child := n.fork("w", 1)[0].ID
	if _, err := n.m.Snapshot(ctx, child, api.SnapshotRequest{Name: "kept"}); err != nil {
		t.Fatal(err)
	}
	restored, err := n.m.Create(ctx, api.CreateRequest{Image: "kept"})
	if err != nil {
		t.Fatalf("create from the name of a snapshot: %v", err)
	}
	for _, ref := range []string{"w", child, restored.ID} {
		for want, req := range map[string]api.ExecRequest{
			"1000 1001 /srv": {},
			"0 0 /":          {User: "root", Cwd: "/"},
		} {
			req.Argv = []string{"guest", "id"}
			out, err := n.run(ref, req, "")
			if err != nil {
				t.Fatal(err)
			}
			f := strings.Fields(out.stdout.String()) // the third is the host name
			if len(f) < 4 || f[0]+" "+f[1]+" "+f[3] != want {
				t.Errorf("%s: %+v gives %q, not %q", ref, req, out.stdout.String(), want)
			}
		}
	}
}
