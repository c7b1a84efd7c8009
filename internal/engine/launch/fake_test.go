package launch

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/wire"
)

// TestMain lets the test binary be a zygote and its sentries, which speak the protocol
// and do nothing else. What they do besides is their build id.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "sentry" && os.Args[2] == wire.ProbeRoot {
		return // it could
	}
	if len(os.Args) > 2 && os.Args[1] == "sentry" {
		os.Exit(fakeZygote(os.Args[2]))
	}
	if len(os.Args) > 2 && os.Args[1] == "fake-template" {
		os.Exit(fakeTemplate(os.Args[2]))
	}
	if len(os.Args) > 2 && os.Args[1] == "fake-sentry" {
		os.Exit(fakeSentry(os.Args[2]))
	}
	// With the race detector every process would stay for a second at its end.
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	goleak.VerifyTestMain(m)
}

// The build ids that make a fake sentry behave.
const (
	normal    = "normal"
	silent    = "silent"      // never says that it is ready
	imposter  = "imposter"    // says that it is another build
	stubborn  = "stubborn"    // does not end when it is told to
	dying     = "dying:%d:%s" // dies that often, counted in a file
	crashLine = "panic: test" // and says so

	zygoteFails  = "zygote fails"        // the zygote does not start
	mute         = "mute"                // the zygote does not answer
	refusing     = "refusing"            // the zygote says that it cannot
	zygoteDies   = "zygote-dies:%d:%s"   // the zygote dies of a call that often, counted in a file
	spawnsSilent = "spawns-silent:%d:%s" // it starts silent sentries that often, likewise
)

// fakeZygote starts programs where the real one forks itself. They are the daemon's
// children all the same.
func fakeZygote(arg string) int {
	var cfg wire.ZygoteConfig
	if err := json.Unmarshal([]byte(arg), &cfg); err != nil {
		panic(err)
	}
	if cfg.BuildID == zygoteFails {
		fmt.Fprintln(os.Stderr, crashLine)
		return 2
	}
	control := wire.NewConn(connOf(3))
	answer := control.SendJSON(wire.TypeReply, wire.Spawned{PID: os.Getpid()})
	for answer == nil {
		p, err := control.Receive()
		if err != nil {
			return 0
		}
		var asked wire.Spawn
		if err := p.Decode(&asked); err != nil {
			panic(err)
		}
		switch {
		case asked.Template != nil:
			build := fmt.Sprintf("%s users=%d from %d", cfg.BuildID, asked.Template.Users, asked.User)
			answer = control.SendJSON(wire.TypeReply, wire.Spawned{PID: startSelf(p.Files[:1], p.Files[1], "fake-template", build)})
		case cfg.BuildID == mute:
			<-time.After(time.Hour)
		case cfg.BuildID == refusing:
			answer = control.Fail(api.Errorf(api.CodeLimit, "no room"))
		case strings.HasPrefix(cfg.BuildID, "zygote-dies:") && die(cfg.BuildID):
			fmt.Fprintln(os.Stderr, crashLine)
			return 2
		case strings.HasPrefix(cfg.BuildID, "spawns-silent:") && die(cfg.BuildID):
			answer = control.SendJSON(wire.TypeReply, wire.Spawned{PID: startFake(silent, p.Files)})
		default:
			answer = control.SendJSON(wire.TypeReply, wire.Spawned{PID: startFake(cfg.BuildID, p.Files)})
		}
		p.Close()
	}
	return 0
}

func startFake(build string, files []*os.File) int {
	return startSelf(files[:4], files[4], "fake-sentry", build)
}

// startSelf starts the test binary as a child of this process's parent.
func startSelf(files []*os.File, log *os.File, args ...string) int {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.ExtraFiles = files
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_PARENT}
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	return cmd.Process.Pid
}

// The generations that a fake template makes behave by.
const (
	damaged   = "damaged"    // it cannot load them
	endless   = "endless"    // it does not come to an end
	loadsDies = "loads-dies" // it dies when it is asked for a second sentry
)

// fakeTemplate is a template of sentries that behave like build says, up to a space.
func fakeTemplate(build string) int {
	build, _, _ = strings.Cut(build, " ")
	control := wire.NewConn(connOf(3))
	p, err := control.Receive()
	if err != nil {
		return 0
	}
	var d wire.Decode
	if err := p.Decode(&d); err != nil {
		panic(err)
	}
	switch d.Generations[0] {
	case damaged:
		_ = control.Fail(api.Errorf(api.CodeCorrupt, "damaged, with %d files", len(p.Files)))
		return 1
	case endless:
		_, _ = control.Receive() // until it is killed
		return 1
	}
	answer := control.SendJSON(wire.TypeReply, wire.Spawned{PID: os.Getpid()})
	for n := 1; answer == nil; n++ {
		if p, err = control.Receive(); err != nil {
			return 0
		}
		if n == 2 && d.Generations[0] == loadsDies {
			fmt.Fprintln(os.Stderr, crashLine)
			return 2
		}
		var asked wire.Spawn
		if err := p.Decode(&asked); err != nil {
			panic(err)
		}
		fmt.Fprintf(os.Stderr, "user %d\n", asked.User)
		answer = control.SendJSON(wire.TypeReply, wire.Spawned{PID: startFake(build, p.Files)})
		p.Close()
	}
	return 0
}

func fakeSentry(build string) int {
	cfg := struct{ BuildID string }{build}
	switch {
	case cfg.BuildID == silent:
		_, _ = io.Copy(io.Discard, connOf(3)) // until it is killed: without other goroutines, select {} would end it
	case cfg.BuildID == imposter:
		cfg.BuildID = "other"
	case strings.HasPrefix(cfg.BuildID, "dying:"):
		if die(cfg.BuildID) {
			fmt.Fprintf(os.Stderr, "%s\n\ngoroutine 1 [running]:\n%s\n", crashLine, strings.Repeat("main.main()\n", 1000))
			return 2
		}
	}
	f := &fake{memory: os.NewFile(5, "memory"), stubborn: cfg.BuildID == stubborn}
	f.lifeline = wire.NewConn(connOf(3))
	if err := f.lifeline.SendJSON(wire.TypeReply, wire.Hello{BuildID: cfg.BuildID, PID: os.Getpid()}); err != nil {
		panic(err)
	}
	go func() {
		if _, err := f.lifeline.Receive(); err != nil && !f.committed {
			os.Exit(0)
		}
	}()
	file := os.NewFile(4, "listener")
	l, err := net.FileListener(file)
	if err != nil {
		panic(err)
	}
	for {
		c, err := l.Accept()
		if err != nil {
			panic(err)
		}
		go f.serve(wire.NewConn(c.(*net.UnixConn)))
	}
}

// die counts a start and reports whether it shall fail.
func die(mode string) bool {
	_, rest, _ := strings.Cut(mode, ":")
	times, path, _ := strings.Cut(rest, ":")
	n, err := strconv.Atoi(times)
	if err != nil {
		panic(err)
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		panic(err)
	}
	if _, err := f.Write([]byte("x")); err != nil {
		panic(err)
	}
	st, err := f.Stat()
	if err != nil {
		panic(err)
	}
	return st.Size() <= int64(n)
}

func connOf(fd uintptr) *net.UnixConn {
	f := os.NewFile(fd, "socket")
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		panic(err)
	}
	return c.(*net.UnixConn)
}

type fake struct {
	lifeline  *wire.Conn
	memory    *os.File
	committed bool
	stubborn  bool
}

func (f *fake) serve(c *wire.Conn) {
	defer c.Finish()
	p, err := c.ReceiveCall()
	if err != nil {
		return
	}
	defer p.Close()
	var call wire.Call
	if err := json.Unmarshal(p.Body, &call); err != nil {
		panic(err)
	}
	switch call.Op {
	case wire.OpInfo:
		_ = c.SendJSON(wire.TypeReply, wire.Info{ID: fmt.Sprint(len(p.Files))})
	case wire.OpCommit:
		f.committed = true
		_ = c.SendJSON(wire.TypeReply, struct{}{})
	case wire.OpAdopt:
		_ = c.SendJSON(wire.TypeReply, wire.Adopted{State: "running", Generations: []string{"gen"}}, int(f.memory.Fd()), int(f.memory.Fd()), int(f.memory.Fd()))
	case wire.OpQuit:
		if f.stubborn {
			select {}
		}
		_ = c.SendJSON(wire.TypeReply, struct{}{})
		os.Exit(0)
	case wire.OpFreeze: // end in the middle of a call
		fmt.Fprintln(os.Stderr, crashLine)
		os.Exit(2)
	case wire.OpExec:
		f.exec(c, call.Exec)
	default:
		_ = c.Fail(fmt.Errorf("no %s here", call.Op))
	}
}

// exec plays commands: "cat" copies its input, "both" writes to both outputs,
// "hang" writes and waits for its caller to go.
func (f *fake) exec(c *wire.Conn, req *wire.Exec) {
	switch req.Argv[0] {
	case "cat":
		for {
			p, err := c.Receive()
			if err != nil || len(p.Body) == 0 {
				break
			}
			_ = c.Send(wire.TypeStdout, bytes.Clone(p.Body))
		}
	case "both":
		_ = c.Send(wire.TypeStdout, []byte("out"))
		_ = c.Send(wire.TypeStderr, []byte("err"))
	case "hang":
		_ = c.Send(wire.TypeStdout, []byte("hanging"))
		if _, err := c.Receive(); err != nil {
			_, _ = f.memory.WriteAt([]byte("caller went"), 0)
		}
		return
	}
	_ = c.SendJSON(wire.TypeReply, wire.Exited{Code: len(req.Argv), Signal: fmt.Sprint(req.Stdin)})
}

// patience bounds every wait.
const patience = 30 * time.Second

// newLauncher returns a launcher of fakes that behave like that. Its directory
// must be empty at the end of the test.
func newLauncher(t testing.TB, behaviour string) *Launcher {
	t.Helper()
	dir, err := os.MkdirTemp("", "launch")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("left in the directory: %v (%v)", left, err)
		}
		os.RemoveAll(dir)
	})
	l, err := New(context.Background(), Config{Executable: "/proc/self/exe", Dir: dir, FilesDir: dir, BuildID: behaviour})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

func start(t testing.TB, l *Launcher) *Sentry {
	t.Helper()
	s, err := l.Start(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Kill)
	return s
}

// starts makes a file that counts starts.
func starts(t testing.TB) (path string, count func() int64) {
	t.Helper()
	f, err := os.CreateTemp("", "starts")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(f.Name()) })
	defer f.Close()
	if err := f.Chmod(0o666); err != nil { // the fake may be another user
		t.Fatal(err)
	}
	return f.Name(), func() int64 {
		st, err := os.Stat(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		return st.Size()
	}
}

// alive reports whether a process is there and has not ended: neither waited for
// (X, for the moment in which its parent does so) nor to be waited for (Z).
func alive(pid int) bool {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return false
	}
	state := b[bytes.LastIndexByte(b, ')')+2]
	return state != 'Z' && state != 'X'
}
