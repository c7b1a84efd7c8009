package node

import (
	"database/sql"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/machine"
	"ramet.dev/ramet/test/harness"
)

// liar stands between a new node and a sentry, and changes what the sentry
// answers to an Adopt: it is a sentry that was taken over.
type liar struct {
	t      testing.TB
	real   string // the sentry's socket
	change func(info *wire.Adopted, files []*os.File)
}

// listen takes the place of the sentry's socket until the test ends.
func (l *liar) listen(socket string) {
	l.t.Helper()
	l.real = filepath.Join(harness.NewDir(l.t), "sock")
	if err := os.Rename(socket, l.real); err != nil {
		l.t.Fatal(err)
	}
	ul, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: socket, Net: "unixpacket"})
	if err != nil {
		l.t.Fatal(err)
	}
	ul.SetUnlinkOnClose(false) // the node removes it
	done := make(chan struct{})
	l.t.Cleanup(func() {
		ul.Close()
		<-done
	})
	go func() {
		defer close(done)
		for {
			c, err := ul.AcceptUnix()
			if err != nil {
				return
			}
			l.serve(wire.NewConn(c))
		}
	}()
}

// serve passes on one call and its reply.
func (l *liar) serve(c *wire.Conn) {
	defer c.Finish()
	call, err := c.Receive()
	if err != nil {
		return // whoever it was has ended
	}
	sentry, err := wire.Dial(l.real)
	if err != nil {
		return // likewise
	}
	defer sentry.Finish()
	if err := sentry.Send(call.Type, call.Body, numbers(call.Files)...); err != nil {
		return
	}
	reply, err := sentry.Receive()
	if err != nil {
		return
	}
	defer reply.Close()
	body := reply.Body
	var asked wire.Call
	if err := call.Decode(&asked); err == nil && asked.Op == wire.OpAdopt {
		var info wire.Adopted
		if err := reply.Decode(&info); err != nil {
			l.t.Error(err)
			return
		}
		l.change(&info, reply.Files)
		if body, err = json.Marshal(info); err != nil {
			l.t.Error(err)
			return
		}
	}
	_ = c.Send(reply.Type, body, numbers(reply.Files)...) // a daemon that is gone needs no answer
}

func numbers(files []*os.File) []int {
	var fds []int
	for _, f := range files {
		fds = append(fds, int(f.Fd()))
	}
	return fds
}

// socketOf returns the socket of a sandbox's sentry.
func socketOf(n *harness.Node, ref string) string {
	n.T.Helper()
	_, key := n.ProcessOf(ref)
	return filepath.Join(n.Paths.Sandboxes(), key+".sock")
}

// TestAdoptedMemoryIsCompared opens a new node while the sentry of a child
// gives other memory files than it was given: it must not be believed, and the
// parent, whose memory it speaks of, must go on with its own.
func TestAdoptedMemoryIsCompared(t *testing.T) {
	other := func(t *testing.T) *os.File {
		f, err := launch.NewFile("other")
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	pipe := func(t *testing.T) *os.File { // opening it for reading would wait for a writer
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		w.Close()
		return r
	}
	replace := func(files []*os.File, i int, f *os.File) {
		files[i].Close()
		files[i] = f
	}
	for name, change := range map[string]func(t *testing.T, info *wire.Adopted, files []*os.File){
		"another generation": func(t *testing.T, _ *wire.Adopted, files []*os.File) { replace(files, 2, other(t)) },
		"a pipe":             func(t *testing.T, _ *wire.Adopted, files []*os.File) { replace(files, 2, pipe(t)) },
		"another name": func(_ *testing.T, info *wire.Adopted, _ []*os.File) {
			info.Generations[0] = "pool_0123456789abcdef"
		},
		"another own files":  func(t *testing.T, _ *wire.Adopted, files []*os.File) { replace(files, 1, other(t)) },
		"another own memory": func(t *testing.T, _ *wire.Adopted, files []*os.File) { replace(files, 0, other(t)) },
		"a pipe as own memory": func(t *testing.T, _ *wire.Adopted, files []*os.File) {
			replace(files, 0, pipe(t))
		},
		"its generation as own memory": func(_ *testing.T, _ *wire.Adopted, files []*os.File) {
			files[0], files[2] = files[2], files[0]
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := harness.NewNode(t)
			n.Create("parent")
			n.Hold("parent", "-value", "zero", "-only", "heap,bulk")
			child := n.Fork("parent", 1)[0].ID
			honest := n.Fork("parent", 1)[0].ID
			socket := socketOf(n, child)
			n.Close()
			l := &liar{t: t, change: func(info *wire.Adopted, files []*os.File) { change(t, info, files) }}
			l.listen(socket)
			n.Open()
			s, err := n.Machine.Get(harness.AsOwner, child)
			if err != nil {
				t.Fatal(err)
			}
			if s.State != api.StateFailed || !strings.Contains(s.Reason, "file") {
				t.Errorf("the child is %s: %q", s.State, s.Reason)
			}
			n.MustHold("parent", "zero")
			n.MustHold(honest, "zero")
			n.MustHold(n.Fork("parent", 1)[0].ID, "zero")
			n.MustHold(n.Fork(honest, 1)[0].ID, "zero")
		})
	}
}

// TestAdoptedMemoryIsRecorded opens a new node on records of a version that
// did not keep which memory files there are: its sandboxes go on, and the
// manager after that one compares.
func TestAdoptedMemoryIsRecorded(t *testing.T) {
	n := harness.NewNode(t)
	n.Create("parent")
	n.Hold("parent", "-value", "zero", "-only", "heap,bulk")
	child := n.Fork("parent", 1)[0].ID
	socket := socketOf(n, child)
	n.Close()
	db, err := sql.Open("sqlite", "file:"+n.Paths.Registry()) // the node's driver
	if err != nil {
		t.Fatal(err)
	}
	for _, forget := range []string{
		`UPDATE freezes SET doc = CAST(json_remove(CAST(doc AS TEXT), '$.generations') AS BLOB)`,
		`UPDATE sandboxes SET doc = CAST(json_remove(CAST(doc AS TEXT), '$.memory') AS BLOB)`,
	} {
		if _, err := db.Exec(forget); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	n.Open()
	n.MustHold("parent", "zero")
	n.MustHold(child, "zero")
	n.MustHold(n.Fork(child, 1)[0].ID, "zero")
	n.Close()
	l := &liar{t: t, change: func(_ *wire.Adopted, files []*os.File) { files[0], files[1] = files[1], files[0] }}
	l.listen(socket)
	n.Open()
	if s, err := n.Machine.Get(harness.AsOwner, child); err != nil || s.State != api.StateFailed {
		t.Errorf("the child is %+v (%v)", s, err)
	}
	n.MustHold("parent", "zero")
}

// TestOpenWhenShort opens a node with no more descriptors than so many left to
// this process. That must never be the end of a sandbox.
func TestOpenWhenShort(t *testing.T) {
	const sandboxes = 12 // so many that they need more than all else that is opened
	n := harness.NewNode(t)
	n.Pool = 0
	n.Create("parent")
	n.Hold("parent", "-value", "zero", "-only", "heap,bulk")
	n.Fork("parent", sandboxes-1)
	n.Close()
	kinds := map[api.Code]int{}
	for free := 0; n.Machine == nil; free++ {
		var err error
		withDescriptors(t, free, func() { n.Machine, err = machine.Open(harness.AsOwner, n.Config()) })
		if err != nil {
			kinds[api.CodeOf(err)]++
		}
		if got := len(n.Sentries()); got != sandboxes {
			t.Fatalf("with %d descriptors %d of %d sandboxes live (%v)", free, got, sandboxes, err)
		}
	}
	t.Logf("failures by code: %v", kinds)
	if kinds[api.CodeLimit] < sandboxes {
		t.Error("it failed too rarely while it took over sandboxes: the test proves nothing")
	}
	n.FDs["pipe"] += 2 // Go leaves one when it cannot fork into a user namespace
	list, err := n.Machine.List(harness.AsOwner, api.ListFilter{State: api.StateRunning})
	if err != nil || len(list) != sandboxes {
		t.Fatalf("%d of %d sandboxes are running (%v)", len(list), sandboxes, err)
	}
	for _, s := range list {
		n.MustHold(s.ID, "zero")
	}
}

// withDescriptors runs f while this process can open that many descriptors.
func withDescriptors(t testing.TB, free int, f func()) {
	t.Helper()
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	runtime.GC() // closes what nobody has
	limit := 0
	for ; free > 0 || isOpen(limit); limit++ {
		if !isOpen(limit) {
			free--
		}
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(limit), Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
			t.Error(err)
		}
	}()
	f()
}

func isOpen(fd int) bool {
	_, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	return err == nil
}
