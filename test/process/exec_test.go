package process

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/image"
	"ramet.dev/ramet/test/harness"
)

// TestExecOutcomes runs commands that end in every way there is.
func TestExecOutcomes(t *testing.T) {
	n := harness.NewNode(t)
	n.Create("box")
	n.Guest("box", "write", "/srv/script", "#!/no/such/interpreter\n", "755")
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
		"opened input":   {req: api.ExecRequest{Argv: []string{"guest", "cat", "/dev/stdin"}, User: "worker"}, stdin: "input", stdout: "input"},
		"opened output":  {req: api.ExecRequest{Argv: []string{"guest", "edit", "put /dev/stdout hello"}, User: "worker"}, stdout: "hello"},
		"opened errors":  {req: api.ExecRequest{Argv: []string{"guest", "edit", "put /dev/stderr hello"}, User: "worker"}, stderr: "hello"},
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
			out, err := n.Run("box", c.req, c.stdin)
			if err != nil {
				t.Fatal(err)
			}
			if out.ExitCode != c.code || out.Signal != c.signal || out.OK != (c.code == 0) || out.TimedOut {
				t.Errorf("outcome is %+v, not code %d, signal %q", *out.ExecResult, c.code, c.signal)
			}
			got := out.Stdout.String()
			if strings.HasPrefix(c.stdout, "0 0") || strings.Contains(c.stdout, " box ") {
				got = got[:min(len(got), len(c.stdout))] // the process id follows
			}
			if got != c.stdout {
				t.Errorf("stdout is %q, not %q", got, c.stdout)
			}
			if e := out.Stderr.String(); !strings.Contains(e, c.stderr) || c.stderr == "" && e != "" {
				t.Errorf("stderr is %q, without %q", e, c.stderr)
			}
		})
	}
}

// TestLongArguments runs commands with as many bytes of arguments as Linux takes.
func TestLongArguments(t *testing.T) {
	n := harness.NewNode(t)
	n.Create("box")
	argv := []string{"guest", "say"}
	for range 15 {
		argv = append(argv, strings.Repeat("x", 120_000))
	}
	out, err := n.Run("box", api.ExecRequest{Argv: argv}, "")
	if want := strings.Join(argv[2:], "\n") + "\n"; err != nil || out.Stdout.String() != want {
		t.Errorf("%d bytes were printed, not %d: %v", out.Stdout.Len(), len(want), err)
	}
	// More than its stack has room for.
	if out, err := n.Run("box", api.ExecRequest{Argv: []string{"guest", "say", strings.Repeat("x", 12<<20)}}, ""); err == nil && out.ExitCode != 126 {
		t.Errorf("12 MiB of arguments: %+v", *out.ExecResult)
	}
	if out, err := n.Run("box", api.ExecRequest{Argv: []string{"guest", "say", "there"}}, ""); err != nil || out.Stdout.String() != "there\n" {
		t.Errorf("after that: %v", err)
	}
}

// TestSetIDPrograms runs a program with set-id bits as somebody else: it has its owner's
// rights, in a child too.
func TestSetIDPrograms(t *testing.T) {
	n := harness.NewNode(t)
	n.Create("box")
	program, err := os.ReadFile(harness.GuestProgram())
	if err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]string{"both": "6755", "user": "4755", "group": "2755", "none": "755"} {
		path := "/srv/" + name
		n.Put("box", api.WriteRequest{FileRef: harness.At(path)}, string(program))
		n.Guest("box", "edit", "chown "+path+" 1000.1001", "chmod "+path+" "+mode)
	}
	child := n.Fork("box", 1)[0].ID
	for _, ref := range []string{"box", child} {
		for name, want := range map[string]string{"both": "1000 1001 ", "user": "1000 17 ", "group": "4242 1001 ", "none": "4242 17 "} {
			out, err := n.Run(ref, api.ExecRequest{Argv: []string{"/srv/" + name, "id"}, User: "4242:17"}, "")
			if err != nil {
				t.Fatal(err)
			}
			if got := out.Stdout.String(); !strings.HasPrefix(got, want) {
				t.Errorf("with set-id bits for %s it is %q, want %q", name, got, want)
			}
		}
	}
}

// TestGroupsOfUsers reads a file that only a group may read, as users who are in it or are not.
func TestGroupsOfUsers(t *testing.T) {
	n := harness.NewNode(t)
	n.Create("box")
	n.Put("box", api.WriteRequest{FileRef: harness.At("/etc/group")}, "root:x:0:\nworkers:x:1001:\nothers:x:1002:a,worker,b\nlast:x:1003:worker2\nodd:x:-1:worker\nshort:x\n")
	for path, gid := range map[string]string{"/srv/others": "1002", "/srv/last": "1003"} {
		n.Put("box", api.WriteRequest{FileRef: harness.At(path)}, "read")
		n.Guest("box", "edit", "chown "+path+" 0."+gid, "chmod "+path+" 640")
	}
	for user, may := range map[string]bool{"worker": true, "1000": true, "worker:workers": false, "1000:1001": false, "4242": false, "worker:others": true} {
		for path, may := range map[string]bool{"/srv/others": may, "/srv/last": false} {
			out, err := n.Run("box", api.ExecRequest{Argv: []string{"guest", "cat", path}, User: user}, "")
			if err != nil || (out.Stdout.String() == "read") != may {
				t.Errorf("%s reads %s: %q, %v", user, path, out.Stdout.String(), err)
			}
			got, err := n.Read("box", api.FileRef{Path: path, User: user})
			if (err == nil) != may || may && got != "read" {
				t.Errorf("%s is given %s: %q, %v", user, path, got, err)
			}
		}
	}
}

// TestExecRefuses makes requests that must not start anything.
func TestExecRefuses(t *testing.T) {
	n := harness.NewNode(t)
	n.Create("box")
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
		"huge argument":   {api.ExecRequest{Argv: []string{"guest", "say", strings.Repeat("a", 20<<20)}}, api.CodeLimit},
		"negative limit":  {api.ExecRequest{Argv: id, TimeoutMS: -1}, api.CodeInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := n.Run("box", c.req, "")
			harness.WantCode(t, err, c.code)
			if err == nil {
				t.Errorf("it ran: %+v %q", *out.ExecResult, out.Stdout.String())
			}
		})
	}
}

// TestExecTimeout checks that at the limit all processes of the command end, and
// that the result has what was written until then.
func TestExecTimeout(t *testing.T) {
	n := harness.NewNode(t)
	n.Create("box")
	began := time.Now()
	out, err := n.Run("box", api.ExecRequest{Argv: []string{"guest", "brood", "3"}, TimeoutMS: 2500}, "")
	if err != nil {
		t.Fatal(err)
	}
	if !out.TimedOut || out.ExitCode != 137 || out.Signal != "SIGKILL" {
		t.Errorf("outcome is %+v", *out.ExecResult)
	}
	if lines := strings.Count(out.Stdout.String(), "\n"); lines != 3 {
		t.Errorf("output has %d lines: %q", lines, out.Stdout.String())
	}
	if d := time.Since(began); d < 2500*time.Millisecond || d > harness.Timeout/2 {
		t.Errorf("it took %v", d)
	}
	list, err := n.Machine.Processes(harness.AsOwner, "box", false)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range list {
		if !strings.HasPrefix(p.State, "Z") { // init has not reaped it yet
			t.Errorf("after the time-out there is still %+v", p)
		}
	}
	harness.Eventually(t, "processes", func() error { return n.NoProcesses("box") })
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
// end. The command's output ends with the command. The others go on after its end, and are
// killed at its timeout, though they have sessions of their own.
func TestExecLeavesWriters(t *testing.T) {
	n := harness.NewNode(t)
	ctx := harness.AsOwner
	for _, c := range []struct {
		name string
		req  api.ExecRequest
		code int
		left int
	}{
		{"end", api.ExecRequest{Argv: []string{"guest", "leave", "0s"}}, 0, 2},
		{"timeout", api.ExecRequest{Argv: []string{"guest", "leave", "1h"}, TimeoutMS: 2500}, 137, 0},
	} {
		box := n.Create("").ID
		out := &slowReader{}
		limited, cancel := context.WithTimeout(ctx, harness.Timeout)
		r, err := n.Machine.Exec(limited, box, c.req, api.ExecIO{Stdout: out, Stderr: out})
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		if r.ExitCode != c.code || r.TimedOut != (c.code != 0) || !strings.HasPrefix(string(out.first), "left\n") {
			t.Errorf("%s: outcome is %+v, and the output begins with %.20q", c.name, *r, out.first)
		}
		list, err := n.Machine.Processes(ctx, box, false)
		list = slices.DeleteFunc(list, func(p api.Process) bool { return strings.HasPrefix(p.State, "Z") }) // init has not reaped it yet
		if err != nil || len(list) != c.left {
			t.Errorf("%s: %+v still run, %v", c.name, list, err)
		}
		n.Destroy(box)
	}
	n.Create("box")
	for _, tty := range []*api.TerminalSize{nil, {Rows: 10, Cols: 10}} {
		pid := n.Start("box", api.StartRequest{Terminal: tty}, "leave", "0s")
		f := n.Follow("box", pid, 0)
		if x := f.Exit(); !x.OK {
			t.Errorf("it ended with %+v", *x)
		}
		before := f.Next
		harness.Eventually(t, "output of those that it left behind", func() error {
			later := n.Follow("box", pid, -1)
			if later.Exit(); later.Pos.NextSeq <= before {
				return fmt.Errorf("it ends at %d", later.Pos.NextSeq)
			}
			return nil
		})
	}
}

// TestExecKeepsEveryByte sends random bytes through a command and compares both
// of its outputs.
func TestExecKeepsEveryByte(t *testing.T) {
	n := harness.NewNode(t)
	n.Create("box")
	data := make([]byte, 1<<20)
	rng := rand.NewChaCha8([32]byte{1})
	rng.Read(data)
	out, err := n.Run("box", api.ExecRequest{Argv: []string{"guest", "tee"}}, string(data))
	if err != nil {
		t.Fatal(err)
	}
	for name, got := range map[string][]byte{"stdout": out.Stdout.Bytes(), "stderr": out.Stderr.Bytes()} {
		if !bytes.Equal(got, data) {
			t.Errorf("%s has %d other bytes", name, len(got))
		}
	}
}

// TestExecManyAtOnce runs 200 commands at the same time.
func TestExecManyAtOnce(t *testing.T) {
	harness.OnlyOnce(t, "commands do not depend on who starts sandboxes")
	const commands = 200
	n := harness.NewNode(t)
	n.Create("box")
	var wg sync.WaitGroup
	for i := range commands {
		wg.Add(1)
		go func() {
			defer wg.Done()
			out, err := n.Run("box", api.ExecRequest{Argv: []string{"guest", "cat"}}, fmt.Sprint("input of ", i))
			if err != nil {
				t.Error(err)
			} else if got := out.Stdout.String(); out.ExitCode != 0 || got != fmt.Sprint("input of ", i) {
				t.Errorf("command %d: %+v %q %q", i, *out.ExecResult, got, out.Stderr.String())
			}
		}()
	}
	wg.Wait()
	harness.Eventually(t, "processes", func() error { return n.NoProcesses("box") })
}

// TestSlowReader lets one caller stop reading. Others must not wait for it, a
// fork neither, and it must get everything in the end.
func TestSlowReader(t *testing.T) {
	const size = 8 << 20
	n := harness.NewNode(t)
	n.Create("box")
	g := harness.NewGatedWriter()
	done := make(chan error)
	go func() {
		r, err := n.Machine.Exec(harness.AsOwner, "box", api.ExecRequest{Argv: []string{"guest", "spew", fmt.Sprint(size)}},
			api.ExecIO{Stdout: g, Stderr: io.Discard})
		if err == nil && r.ExitCode != 0 {
			err = fmt.Errorf("exit code %d", r.ExitCode)
		}
		done <- err
	}()
	<-g.Waiting
	for i := range 10 {
		if got := n.Guest("box", "say", fmt.Sprint(i)); got != fmt.Sprintln(i) {
			t.Errorf("command %d says %q", i, got)
		}
	}
	child := n.Fork("box", 1)[0].ID
	if got := n.Guest(child, "say", "hello"); got != "hello\n" {
		t.Errorf("child says %q", got)
	}
	// In the child nobody reads it, so it must not stop the command there.
	harness.Eventually(t, "command in the child", func() error { return n.NoProcesses(child) })
	close(g.Open)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if g.N != size {
		t.Errorf("caller got %d of %d bytes", g.N, size)
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
	n := harness.NewNode(t)
	n.Create("box")
	ctx, cancel := context.WithCancel(harness.AsOwner)
	defer cancel()
	input := flood{make(chan struct{})}
	done := make(chan error, 1)
	go func() {
		_, err := n.Machine.Exec(ctx, "box", api.ExecRequest{Argv: []string{"guest", "brood", "2"}}, api.ExecIO{Stdin: input, Stdout: io.Discard, Stderr: io.Discard})
		done <- err
	}()
	input.untilBackedUp()
	cancel()
	select {
	case err := <-done:
		harness.WantCode(t, err, api.CodeCanceled)
	case <-time.After(harness.Timeout):
		t.Fatal("the call does not return")
	}
	harness.Eventually(t, "processes", func() error { return n.NoProcesses("box") })
}

// TestExecOutlived ends a sandbox under a command. The caller must hear how.
func TestExecOutlived(t *testing.T) {
	ctx := harness.AsOwner
	n := harness.NewNode(t)
	n.Create("base")
	if _, err := n.Machine.Snapshot(ctx, "base", api.SnapshotRequest{Name: "start"}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		said string
		end  func() error
	}{
		{"rollback", func() error { _, err := n.Machine.Rollback(ctx, "base", "start"); return err }},
		{"promotion", func() error { _, err := n.Machine.Promote(ctx, n.Fork("base", 1)[0].ID); return err }},
		{"removed", func() error { return n.Machine.Destroy(ctx, "base") }},
	} {
		g := harness.NewGatedWriter()
		close(g.Open)
		done := make(chan error)
		go func() {
			_, err := n.Machine.Exec(ctx, "base", api.ExecRequest{Argv: []string{"guest", "brood", "1"}}, api.ExecIO{Stdout: g, Stderr: io.Discard})
			done <- err
		}()
		<-g.Waiting
		if err := c.end(); err != nil {
			t.Fatal(err)
		}
		err := <-done
		harness.WantCode(t, err, api.CodeSandboxDied)
		if err == nil || !strings.Contains(err.Error(), c.said) || strings.Contains(err.Error(), "killed") {
			t.Errorf("the command's error does not speak of a %s: %v", c.said, err)
		}
	}
}

// TestImageDefaults checks that commands run where and as whom the image says,
// in a sandbox, its children and what is restored, unless they say otherwise.
func TestImageDefaults(t *testing.T) {
	ctx := harness.AsOwner
	n := harness.NewNode(t)
	n.ImportWith(image.Options{Name: "worker", Config: &image.Config{Env: []string{"PATH=/bin"}, WorkingDir: "/srv", User: "worker"}})
	if _, err := n.Machine.Create(ctx, api.CreateRequest{Image: "worker", Name: "w"}); err != nil {
		t.Fatal(err)
	}
	child := n.Fork("w", 1)[0].ID
	if _, err := n.Machine.Snapshot(ctx, child, api.SnapshotRequest{Name: "kept"}); err != nil {
		t.Fatal(err)
	}
	restored, err := n.Machine.Create(ctx, api.CreateRequest{Image: "kept"})
	if err != nil {
		t.Fatalf("create from the name of a snapshot: %v", err)
	}
	for _, ref := range []string{"w", child, restored.ID} {
		for want, req := range map[string]api.ExecRequest{
			"1000 1001 /srv": {},
			"0 0 /":          {User: "root", Cwd: "/"},
		} {
			req.Argv = []string{"guest", "id"}
			out, err := n.Run(ref, req, "")
			if err != nil {
				t.Fatal(err)
			}
			f := strings.Fields(out.Stdout.String()) // the third is the host name
			if len(f) < 4 || f[0]+" "+f[1]+" "+f[3] != want {
				t.Errorf("%s: %+v gives %q, not %q", ref, req, out.Stdout.String(), want)
			}
		}
	}
}
