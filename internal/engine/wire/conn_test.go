package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"ramet.dev/ramet/api"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pair returns two connected ends.
func pair(t testing.TB) (a, b *Conn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ends := [2]*Conn{}
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "end")
		c, err := net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		ends[i] = NewConn(c.(*net.UnixConn))
		ends[i].SetDeadline(time.Now().Add(30 * time.Second))
		t.Cleanup(func() { ends[i].Finish() })
	}
	return ends[0], ends[1]
}

func receive(t testing.TB, c *Conn) *Packet {
	t.Helper()
	p, err := c.Receive()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestPacketsKeepTheirBounds(t *testing.T) {
	a, b := pair(t)
	bodies := []string{"", "x", strings.Repeat("y", MaxChunk), strings.Repeat("z", MaxPacket-1)}
	go func() {
		for i, body := range bodies {
			if err := a.Send(Type('a'+i), []byte(body)); err != nil {
				t.Error(err)
			}
		}
	}()
	for i, body := range bodies {
		p := receive(t, b)
		if p.Type != Type('a'+i) || string(p.Body) != body {
			t.Errorf("packet %d has type %c and %d bytes", i, p.Type, len(p.Body))
		}
	}
}

func TestTooLarge(t *testing.T) {
	a, b := pair(t)
	for name, c := range map[string]struct{ err, want error }{
		"body":        {a.Send(TypeCall, make([]byte, MaxPacket)), ErrTooLarge},
		"JSON":        {a.SendJSON(TypeCall, strings.Repeat("x", MaxPacket)), ErrTooLarge},
		"descriptors": {a.Send(TypeCall, nil, make([]int, MaxFiles+1)...), ErrTooManyFiles},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%s: %v", name, c.err)
		}
	}
	// The connection is as it was.
	if err := a.Send(TypeCall, []byte("small")); err != nil {
		t.Fatal(err)
	}
	if p := receive(t, b); string(p.Body) != "small" {
		t.Errorf("got %q", p.Body)
	}
}

// TestCallsOfAnySize sends calls that fit a packet exactly, take several, or are too large.
func TestCallsOfAnySize(t *testing.T) {
	for _, size := range []int{0, MaxPacket - 4, MaxPacket - 3, MaxPacket - 2, MaxPacket, 2 * MaxPacket, 3<<20 + 1} {
		a, b := pair(t)
		text := strings.Repeat("x", size)
		sent := make(chan error, 1)
		go func() { sent <- a.SendCall(text) }()
		p, err := b.ReceiveCall()
		if err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
		var got string
		if err := json.Unmarshal(p.Body, &got); err != nil || p.Type != TypeCall || got != text {
			t.Errorf("%d bytes: type %c, %d bytes, %v", size, p.Type, len(got), err)
		}
		if err := <-sent; err != nil {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
	a, b := pair(t)
	if err := a.SendCall(strings.Repeat("x", MaxCall)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("more than a call may have: %v", err)
	}
	// A peer that never ends its call.
	sent := make(chan error, 1)
	go func() {
		for {
			if err := a.Send(TypeMore, make([]byte, MaxPacket-1)); err != nil {
				sent <- err
				return
			}
		}
	}()
	if _, err := b.ReceiveCall(); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a call without an end: %v", err)
	}
	b.Close()
	<-sent
}

// TestPeerSendsTooMuch receives from a peer that does not keep to the limits:
// nothing may be cut silently.
func TestPeerSendsTooMuch(t *testing.T) {
	a, b := pair(t)
	if _, _, err := a.c.WriteMsgUnix(make([]byte, MaxPacket+1), nil, nil); err != nil {
		t.Fatal(err)
	}
	if p, err := b.Receive(); !errors.Is(err, ErrTooLarge) {
		t.Errorf("got %+v, %v", p, err)
	}
}

func TestEnd(t *testing.T) {
	a, b := pair(t)
	if err := a.Send(TypeReply, []byte("last")); err != nil {
		t.Fatal(err)
	}
	a.Close()
	if p := receive(t, b); string(p.Body) != "last" {
		t.Errorf("got %q", p.Body)
	}
	if _, err := b.Receive(); !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v", err)
	}
	if err := b.Send(TypeReply, []byte("x")); !errors.Is(err, unix.EPIPE) {
		t.Errorf("sending to nobody: %v", err)
	}
}

// TestEndWithoutReading: who answers and closes may leave unread what was sent to it.
func TestEndWithoutReading(t *testing.T) {
	a, b := pair(t)
	for _, text := range []string{"unread", "too"} {
		if err := b.Send(TypeStdin, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Send(TypeReply, []byte("last")); err != nil {
		t.Fatal(err)
	}
	a.Close()
	if p := receive(t, b); string(p.Body) != "last" {
		t.Errorf("got %q", p.Body)
	}
	if _, err := b.Receive(); !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v", err)
	}
}

// TestCloseWakesReceiver closes a connection on which somebody waits.
func TestCloseWakesReceiver(t *testing.T) {
	a, _ := pair(t)
	waiting, got := make(chan struct{}), make(chan error)
	go func() {
		close(waiting)
		_, err := a.Receive()
		got <- err
	}()
	<-waiting
	a.Close()
	if err := <-got; !errors.Is(err, net.ErrClosed) {
		t.Errorf("receiver gets %v", err)
	}
}

// file returns a file with some text.
func file(t testing.TB, text string) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
	return f
}

// openFDs counts this process's descriptors.
func openFDs(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestDescriptors(t *testing.T) {
	a, b := pair(t)
	const n = 20
	var fds []int
	for i := range n {
		fds = append(fds, int(file(t, fmt.Sprint("file ", i)).Fd()))
	}
	before := openFDs(t)
	if err := a.SendJSON(TypeReply, Info{ID: "x"}, fds...); err != nil {
		t.Fatal(err)
	}
	p := receive(t, b)
	if len(p.Files) != n {
		t.Fatalf("%d descriptors came", len(p.Files))
	}
	taken, err := p.Take(7)
	if err != nil {
		t.Fatal(err)
	}
	text := make([]byte, 16)
	if got, _ := taken.ReadAt(text, 0); string(text[:got]) != "file 7" {
		t.Errorf("descriptor 7 is of %q", text[:got])
	}
	if flags, err := unix.FcntlInt(taken.Fd(), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("descriptor is inherited by children (%v)", err)
	}
	for _, i := range []int{-1, 7, n} {
		if _, err := p.Take(i); err == nil {
			t.Errorf("descriptor %d can be taken", i)
		}
	}
	p.Close()
	p.Close() // must not close what came to be open under the same numbers
	if now := openFDs(t); now != before+1 {
		t.Errorf("%d descriptors are open, were %d and one was taken", now, before)
	}
	taken.Close()
}

// TestMostDescriptors sends as many as one message can have.
func TestMostDescriptors(t *testing.T) {
	a, b := pair(t)
	fds := make([]int, MaxFiles)
	f := file(t, "x")
	for i := range fds {
		fds[i] = int(f.Fd())
	}
	if err := a.Send(TypeCall, nil, fds...); err != nil {
		t.Fatal(err)
	}
	p := receive(t, b)
	defer p.Close()
	if len(p.Files) != MaxFiles {
		t.Errorf("%d descriptors came", len(p.Files))
	}
}

func TestErrorsKeepTheirCode(t *testing.T) {
	a, b := pair(t)
	for _, want := range []error{
		api.Invalid("user", "no user %q", "x"),
		fmt.Errorf("exec: %w", api.NotFound("file", "/x")),
		errors.New("anything else"),
	} {
		if err := a.Fail(want); err != nil {
			t.Fatal(err)
		}
		err := receive(t, b).Decode(&Info{})
		if err == nil || api.CodeOf(err) != api.CodeOf(want) || err.Error() != want.Error() {
			t.Errorf("%v arrives as %v, of code %q", want, err, api.CodeOf(err))
		}
	}
	for typ, body := range map[Type]string{TypeFail: "{", TypeReply: "nonsense"} {
		if err := (&Packet{Type: typ, Body: []byte(body)}).Decode(&Info{}); err == nil {
			t.Errorf("%c %q decodes", typ, body)
		}
	}
}

// TestSendersDoNotMix sends from many goroutines at once.
func TestSendersDoNotMix(t *testing.T) {
	a, b := pair(t)
	const senders, each = 8, 50
	var wg sync.WaitGroup
	for s := range senders {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for range each {
				if err := a.Send(TypeStdout, bytes.Repeat([]byte{byte('a' + s)}, 1000+s)); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	count := map[byte]int{}
	for range senders * each {
		p := receive(t, b)
		first := p.Body[0]
		if len(p.Body) != 1000+int(first-'a') || bytes.Count(p.Body, []byte{first}) != len(p.Body) {
			t.Fatalf("packet of %c has %d bytes, %d of them its own", first, len(p.Body), bytes.Count(p.Body, []byte{first}))
		}
		count[first]++
	}
	wg.Wait()
	for s, n := range count {
		if n != each {
			t.Errorf("%d packets of %c came", n, s)
		}
	}
}

// TestRest checks that a connection whose buffers were given back goes on, with
// others.
func TestRest(t *testing.T) {
	a, b := pair(t)
	c, d := pair(t)
	for i := range 3 {
		for _, ends := range [][2]*Conn{{a, b}, {c, d}} {
			text := fmt.Sprint(i, ends)
			if err := ends[0].Send(TypeCall, []byte(text)); err != nil {
				t.Fatal(err)
			}
			if p := receive(t, ends[1]); string(p.Body) != text {
				t.Errorf("got %q, not %q", p.Body, text)
			}
			ends[1].Rest()
		}
	}
}

// FuzzCall decodes what a peer may send as a call. It must never panic, and what
// decodes must survive another round.
func FuzzCall(f *testing.F) {
	for _, c := range calls {
		body, err := json.Marshal(c)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(body)
	}
	f.Add([]byte(`{"op":"boot","boot":null,"exec":{}}`))
	f.Add([]byte(`{"op":7}`))
	f.Add([]byte(`[[[[`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var c, again Call
		if (&Packet{Type: TypeCall, Body: body}).Decode(&c) != nil {
			return
		}
		out, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		if err := (&Packet{Type: TypeCall, Body: out}).Decode(&again); err != nil {
			t.Fatalf("%s does not decode: %v", out, err)
		}
		second, err := json.Marshal(again)
		if err != nil || !bytes.Equal(out, second) {
			t.Fatalf("%s becomes %s (%v)", out, second, err)
		}
	})
}

// calls has one of each op that carries something.
var calls = []Call{
	{Op: OpBoot, Boot: &Boot{Common: Common{ID: "sbx_a", Hostname: "a", MachineID: "0", Env: map[string]string{"A": "b"}}}},
	{Op: OpLoad, Load: &Load{Common: Common{ID: "sbx_b", ForkIndex: 3, Limits: api.Limits{CPUs: 0.5}}, Generations: []string{"pool_1", "pool_2"}, RunHooks: true}},
	{Op: OpExec, Exec: &Exec{Argv: []string{"sh", "-c", "true\x01\u2028"}, Env: map[string]string{"A": ""}, Cwd: "/", User: "a:b", Stdin: true, TimeoutMS: 5}},
	{Op: OpFreeze, Freeze: &Freeze{ID: "snap_a", Self: "pool_1"}},
	{Op: OpRelease, Release: &Release{ID: "snap_a"}},
	{Op: OpRelease, Release: &Release{Keep: []string{}}},
	{Op: OpView, View: &View{ID: "snap", SelfFiles: "files"}},
	{Op: OpPatch, Patch: &Patch{View: "snap", Root: 7, OpsAt: 4096, OpsSize: 9}},
	{Op: OpQuit},
}

func TestCallsComeBack(t *testing.T) {
	a, b := pair(t)
	for _, c := range calls {
		if err := a.SendJSON(TypeCall, c); err != nil {
			t.Fatal(err)
		}
		var got Call
		if err := receive(t, b).Decode(&got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c, got); diff != "" {
			t.Errorf("%s (-sent +received):\n%s", c.Op, diff)
		}
	}
}
