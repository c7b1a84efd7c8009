package fork

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/engine/wire"
	network "ramet.dev/ramet/internal/network/wire"
	"ramet.dev/ramet/test/harness"
)

// The ports of any address at which the gateway of these tests does something else than refuse.
const (
	portSilent, portEcho, portUnreachable, portSink, portSource, portNoNetwork, portData = 5, 7, 8, 9, 19, 20, 80
)

// served is what a server at portData sends.
var served = func() []byte {
	b := make([]byte, 64<<20)
	_, _ = rand.NewChaCha8([32]byte{4}).Read(b) // it never fails
	return b
}()

// gateway is a gateway whose servers are in the test.
type gateway struct {
	t     testing.TB
	ch    *network.Channel
	tasks sync.WaitGroup
	mu    sync.Mutex
	conns []*os.File
	dials int
	// silent is closed when a dial to portSilent came that is not answered; nil answers them.
	silent chan struct{}
	// rest holds back the last MiB of what is served until it is closed; nil serves all at once.
	rest chan struct{}
}

// newGateway returns a gateway, and the sandbox's end of its channel, which the caller closes.
func newGateway(t testing.TB) (*gateway, *os.File) {
	t.Helper()
	theirs, ours, err := network.Pair()
	if err != nil {
		t.Fatal(err)
	}
	g := &gateway{t: t}
	if g.ch, err = network.GatewayChannel(ours); err != nil {
		t.Fatal(err)
	}
	g.tasks.Go(func() {
		for g.ch.Receive(func(m network.Message, _ *os.File) error { g.take(m); return nil }) == nil {
		}
	})
	t.Cleanup(g.die)
	return g, theirs
}

// die closes all that the gateway has open.
func (g *gateway) die() {
	g.ch.Close()
	g.mu.Lock()
	for _, f := range g.conns {
		f.Close()
	}
	g.mu.Unlock()
	g.tasks.Wait()
}

func (g *gateway) send(m network.Message) { _ = g.ch.Send(&m, -1) } // the sandbox may be gone

func (g *gateway) take(m network.Message) {
	switch m.Kind {
	case network.Question:
		g.send(network.Message{Kind: network.Answer, Flow: m.Flow, Payload: answerName(m.Payload)})
	case network.Echo:
		g.send(network.Message{Kind: network.Echoed, Flow: m.Flow, Payload: m.Payload})
	case network.Dial:
		g.mu.Lock()
		g.dials++
		g.mu.Unlock()
		code := network.CodeRefused
		if m.Port == portSilent && g.silent != nil {
			close(g.silent)
			return
		}
		switch m.Port {
		case portSilent, portEcho, portSink, portSource, portData:
			g.tasks.Go(func() { g.accept(m) })
			return
		case portUnreachable:
			code = network.CodeHostUnreachable
		case portNoNetwork:
			code = network.CodeNetUnreachable
		}
		g.send(network.Message{Kind: network.Verdict, Flow: m.Flow, Code: code})
	}
}

// answerName answers a question with 192.0.2.1 or 2001:db8::1, as RFC 1035 has it.
func answerName(question []byte) []byte {
	a := bytes.Clone(question)
	end := 12
	for a[end] != 0 {
		end += int(a[end]) + 1
	}
	kind := binary.BigEndian.Uint16(a[end+1:])
	a = a[:end+5]
	binary.BigEndian.PutUint16(a[2:], 0x8180)
	binary.BigEndian.PutUint16(a[6:], 1)
	binary.BigEndian.PutUint32(a[8:], 0)
	data := []byte{192, 0, 2, 1}
	if kind == 28 {
		data = []byte{0x20, 1, 0xd, 0xb8, 15: 1}
	}
	a = append(a, 0xc0, 12, 0, byte(kind), 0, 1, 0, 0, 0, 60, 0, byte(len(data)))
	return append(a, data...)
}

func (g *gateway) accept(m network.Message) {
	theirs, f, err := network.FlowPair(m.Protocol)
	if err != nil {
		g.t.Error(err)
		return
	}
	defer f.Close()
	g.mu.Lock()
	g.conns = append(g.conns, f)
	g.mu.Unlock()
	raw, err := theirs.SyscallConn()
	if err != nil {
		g.t.Error(err)
		return
	}
	if cerr := raw.Control(func(fd uintptr) { err = g.ch.Send(&network.Message{Kind: network.Verdict, Flow: m.Flow}, int(fd)) }); cerr != nil || err != nil {
		return // the sandbox is gone
	}
	theirs.Close()
	switch m.Port {
	case portSilent, portEcho:
		_, _ = io.Copy(f, f) // the guest may reset it
	case portSink:
		_, _ = io.CopyBuffer(struct{ io.Writer }{io.Discard}, f, make([]byte, 256<<10))
	case portSource:
		for buf := make([]byte, 256<<10); err == nil; {
			_, err = f.Write(buf)
		}
	case portData:
		most := len(served) - 1<<20
		_, _ = f.Write(served[:most])
		if g.rest != nil {
			<-g.rest
		}
		_, _ = f.Write(served[most:])
	}
	g.send(network.Message{Kind: network.Closed, Flow: m.Flow})
	if raw, err := f.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_WR) })
	}
	_, _ = io.Copy(io.Discard, f)
}

// bootConnected starts a sandbox with a network.
func (e *engine) bootConnected() (*launch.Sentry, *gateway) {
	e.t.Helper()
	g, channel := newGateway(e.t)
	defer channel.Close()
	s := e.start()
	e.call(s, &wire.Call{Op: wire.OpBoot, Boot: &wire.Boot{Common: wire.Common{ID: "sbx_box", Hostname: "box"}, Network: true}}, nil, e.image, channel)
	return s, g
}

// loadConnected makes a child with a network.
func (e *engine) loadConnected(file *os.File, frozen *wire.Frozen) (*launch.Sentry, *gateway) {
	e.t.Helper()
	g, channel := newGateway(e.t)
	defer channel.Close()
	s := e.start()
	files := []*os.File{file, e.image}
	for _, name := range frozen.Generations {
		files = append(files, e.files[name])
	}
	load := &wire.Load{Common: wire.Common{ID: "sbx_child", Hostname: "child"}, Generations: frozen.Generations, Network: true}
	e.call(s, &wire.Call{Op: wire.OpLoad, Load: load}, nil, append(files, channel)...)
	return s, g
}

// outside runs the guest's command of that name, and returns what it printed.
func (e *engine) outside(s *launch.Sentry, args ...string) string {
	e.t.Helper()
	out := &limitedLog{}
	r, err := s.Exec(harness.AsOwner, &wire.Exec{Argv: append([]string{"guest", "outside"}, args...)}, api.ExecIO{Stdout: out, Stderr: out})
	if err != nil || r.Code != 0 {
		e.t.Fatalf("%v: %+v %v: %s", args, r, err, out.text)
	}
	return string(out.text)
}

// read returns a file of the sandbox.
func (e *engine) read(s *launch.Sentry, name string) string {
	e.t.Helper()
	out := &limitedLog{}
	if r, err := s.Exec(harness.AsOwner, &wire.Exec{Argv: []string{"guest", "cat", name}}, api.ExecIO{Stdout: out, Stderr: out}); err != nil || r.Code != 0 {
		return fmt.Sprintf("%v", err)
	}
	return string(out.text)
}

const (
	connectedSeen = `1 lo 65522  true [127.0.0.1/8 ::1/128]
2 eth0 65535 02:00:0a:00:02:0f true [10.0.2.15/24 fd00:0:0:2::15/64]
a.example [192.0.2.1 2001:db8::1] <nil>
`
	connectedDials = `192.0.2.9:7: connected
192.0.2.9:1: connection refused
192.0.2.9:8: no route to host
192.0.2.9:20: network is unreachable
[2001:db8::9]:7: connected
[2001:db8::9]:1: connection refused
[2001:db8::9]:20: network is unreachable
127.0.0.1:1: connection refused
10.0.2.15:1: connection refused
`
	noneDials = `192.0.2.9:7: network is unreachable
[2001:db8::9]:7: network is unreachable
127.0.0.1:1: connection refused
`
)

var dialed = []string{"dial", "192.0.2.9:7", "192.0.2.9:1", "192.0.2.9:8", "192.0.2.9:20", "[2001:db8::9]:7", "[2001:db8::9]:1", "[2001:db8::9]:20", "127.0.0.1:1", "10.0.2.15:1"}

// mustBeConnected looks at a sandbox as its programs do.
func (e *engine) mustBeConnected(s *launch.Sentry) {
	e.t.Helper()
	if got := e.outside(s, "show", "a.example"); got != connectedSeen {
		e.t.Errorf("it sees\n%s, not\n%s", got, connectedSeen)
	}
	if got := e.outside(s, dialed...); got != connectedDials {
		e.t.Errorf("it reaches\n%s, not\n%s", got, connectedDials)
	}
	if got := e.read(s, "/etc/resolv.conf"); !strings.Contains(got, "nameserver 10.0.2.3\n") {
		e.t.Errorf("/etc/resolv.conf is %q", got)
	}
}

func (e *engine) mustHaveNoNetwork(s *launch.Sentry) {
	e.t.Helper()
	if got := e.outside(s, "show"); strings.Contains(got, "eth0") {
		e.t.Errorf("it sees\n%s", got)
	}
	if got := e.outside(s, "dial", "192.0.2.9:7", "[2001:db8::9]:7", "127.0.0.1:1"); got != noneDials {
		e.t.Errorf("it reaches\n%s, not\n%s", got, noneDials)
	}
	if got := e.read(s, "/etc/resolv.conf"); strings.Contains(got, "nameserver") {
		e.t.Errorf("/etc/resolv.conf is %q", got)
	}
}

func TestUplink(t *testing.T) {
	e := newEngine(t)
	s, first := e.bootConnected()
	e.mustBeConnected(s)
	if got := e.outside(s, "download", "192.0.2.9:80"); !strings.HasSuffix(got, fmt.Sprintf("digest %x\n", sha256.Sum256(served))) {
		t.Errorf("it downloads %s", got)
	}

	// A gateway that dies and comes back.
	first.die()
	_, channel := newGateway(t)
	e.call(s, &wire.Call{Op: wire.OpNetwork, Network: &wire.Network{Connected: true}}, nil, channel)
	channel.Close()
	e.mustBeConnected(s)

	// A network that comes and goes.
	e.call(s, &wire.Call{Op: wire.OpNetwork, Network: &wire.Network{}}, nil)
	e.mustHaveNoNetwork(s)
	file, frozen := e.freeze(s, "frz_none")
	defer file.Close()
	_, channel = newGateway(t)
	e.call(s, &wire.Call{Op: wire.OpNetwork, Network: &wire.Network{Connected: true}}, nil, channel)
	channel.Close()
	e.mustBeConnected(s)

	// Children that have more or less than their parent.
	child, _ := e.loadConnected(file, frozen)
	e.mustBeConnected(child)
	less, frozenLess := e.freeze(child, "frz_less")
	defer less.Close()
	grandchild := e.load(less, frozenLess)
	e.mustHaveNoNetwork(grandchild)
}

// outsider is a guest process that runs in the background.
type outsider struct {
	e     *engine
	s     *launch.Sentry
	pid   int
	lines *lineReader
}

// lineReader splits output into lines.
type lineReader struct {
	rest string
	ch   chan string
}

func (l *lineReader) take(c api.Chunk) error {
	l.rest += string(c.Data)
	for {
		line, rest, ok := strings.Cut(l.rest, "\n")
		if !ok {
			return nil
		}
		l.rest = rest
		l.ch <- line
	}
}

func (e *engine) startProcess(s *launch.Sentry, args ...string) *outsider {
	e.t.Helper()
	var started wire.Started
	e.call(s, &wire.Call{Op: wire.OpStart, Exec: &wire.Exec{Argv: append([]string{"guest", "outside"}, args...), Stdin: true, Keep: 1 << 20}}, &started)
	return e.follow(s, started.PID)
}

// follow reads the output of a process from the beginning: a line may be there before its reader is.
func (e *engine) follow(s *launch.Sentry, pid int) *outsider {
	p := &outsider{e: e, s: s, pid: pid, lines: &lineReader{ch: make(chan string, 10000)}}
	ctx, cancel := context.WithCancel(harness.AsOwner)
	var tasks sync.WaitGroup
	tasks.Go(func() {
		_, _ = s.Attach(ctx, &wire.Attach{PID: pid, Follow: true}, api.AttachIO{Output: p.lines.take}) // it ends with the test
	})
	e.t.Cleanup(func() {
		cancel()
		tasks.Wait()
	})
	return p
}

// await returns the first line with a prefix, and how many came before it.
func (p *outsider) await(prefix string) (line string, before int) {
	p.e.t.Helper()
	deadline := time.After(time.Minute)
	for {
		select {
		case line := <-p.lines.ch:
			if strings.HasPrefix(line, prefix) {
				return line, before
			}
			before++
		case <-deadline:
			p.e.t.Fatalf("no line begins with %q, after %d others", prefix, before)
		}
	}
}

func (p *outsider) say(line string) {
	p.e.t.Helper()
	p.e.call(p.s, &wire.Call{Op: wire.OpInput, Input: &wire.Input{PID: p.pid, Data: []byte(line + "\n")}}, nil)
}

// TestForkInTheMiddleOfADownload forks a process that downloads: its parent's download goes on,
// and the child's is reset and begins again.
func TestForkInTheMiddleOfADownload(t *testing.T) {
	e := newEngine(t)
	s, g := e.bootConnected()
	g.rest = make(chan struct{})
	goOn := sync.OnceFunc(func() { close(g.rest) })
	t.Cleanup(goOn)
	p := e.startProcess(s, "download", "192.0.2.9:80")
	p.await("MiB")
	file, frozen := e.freeze(s, "frz_middle")
	defer file.Close()
	goOn()
	child, gate := e.loadConnected(file, frozen)
	c := e.follow(child, p.pid)
	want := fmt.Sprintf("digest %x", sha256.Sum256(served))
	line, _ := p.await("digest")
	if line != want {
		t.Errorf("the parent has %s, not %s", line, want)
	}
	c.await("reset")
	line, mib := c.await("digest")
	if line != want || mib != len(served)>>20 {
		t.Errorf("the child has %s of %d MiB, not %s", line, mib, want)
	}
	if gate.dials != 1 {
		t.Errorf("the child's gateway was asked %d times", gate.dials)
	}
}

// pauses freezes two sandboxes in turn, and returns the freezes with the shortest pauses.
func (e *engine) pauses(a, b *launch.Sentry) (bestA, bestB *wire.Frozen) {
	e.t.Helper()
	for i := range 20 {
		for s, best := range map[*launch.Sentry]**wire.Frozen{a: &bestA, b: &bestB} {
			id := fmt.Sprint("frz_", i)
			file, frozen := e.freeze(s, id)
			file.Close()
			e.call(s, &wire.Call{Op: wire.OpRelease, Release: &wire.Release{ID: id}}, nil)
			if *best == nil || frozen.PauseMS < (*best).PauseMS {
				*best = frozen
			}
		}
	}
	return bestA, bestB
}

// TestForkWhileConnecting forks a process that waits for its connection: in the child, the gateway
// of the child is asked.
func TestForkWhileConnecting(t *testing.T) {
	e := newEngine(t)
	s, g := e.bootConnected()
	g.silent = make(chan struct{})
	p := e.startProcess(s, "dial", "192.0.2.9:5")
	<-g.silent
	file, frozen := e.freeze(s, "frz_connecting")
	defer file.Close()
	child, _ := e.loadConnected(file, frozen)
	if line, _ := e.follow(child, p.pid).await("192"); !strings.HasPrefix(line, "192.0.2.9:5: connected") {
		t.Errorf("in the child: %s", line)
	}
	none := e.load(file, frozen)
	if line, _ := e.follow(none, p.pid).await("192"); strings.Contains(line, "connected") {
		t.Errorf("in a child without a network: %s", line)
	}
}

// TestForkWithConnectionsOutside forks a sandbox with idle connections.
func TestForkWithConnectionsOutside(t *testing.T) {
	e := newEngine(t)
	s, _ := e.bootConnected()
	p := e.startProcess(s, "hold", "192.0.2.9:7", "100")
	p.await("held")
	bare, _ := e.bootConnected()
	e.startProcess(bare, "hold", "192.0.2.9:7", "0").await("held")
	without, with := e.pauses(bare, s)
	t.Logf("the pause is %.2f ms without and %.2f ms with 100 connections; the state has %d bytes without and %d with them",
		without.PauseMS, with.PauseMS, without.StateBytes, with.StateBytes)
	if each := (with.StateBytes - without.StateBytes) / 100; each > 700 {
		t.Errorf("a connection takes %d bytes of the state: what does it consist of?", each)
	}
	// So many objects that a copy of the sentry saves them.
	e.exec(s, "start", "-value", "0", "-only", "crowd")
	file, frozen := e.freeze(s, "frz_all")
	defer file.Close()
	if !slices.ContainsFunc(frozen.Stages, func(s wire.Stage) bool { return s.Name == "copy" }) { // it was given up if it took long
		t.Logf("no copy of the sentry saved it: %v", frozen.Stages)
		again, byCopy := e.freeze(s, "frz_again")
		defer again.Close()
		if file, frozen = again, byCopy; !slices.ContainsFunc(frozen.Stages, func(s wire.Stage) bool { return s.Name == "copy" }) {
			t.Errorf("no copy of the sentry saved it again: %v", frozen.Stages)
		}
	}
	child, _ := e.loadConnected(file, frozen)
	none := e.load(file, frozen)
	for _, c := range []struct {
		s    *launch.Sentry
		want string
	}{{s, "whole 100 reset 0"}, {child, "whole 0 reset 100"}, {none, "whole 0 reset 100"}} {
		q := e.follow(c.s, p.pid)
		q.say("go on")
		if line, _ := q.await("whole"); line != c.want {
			t.Errorf("%q, not %q", line, c.want)
		}
	}
	e.mustBeConnected(child)
	e.mustHaveNoNetwork(none)
}
