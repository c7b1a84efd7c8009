package network

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/test/harness"
)

// talker returns the program of the package of this name, which is compiled once.
var talker = sync.OnceValues(func() ([]byte, error) {
	path := filepath.Join(harness.Assets, "talker")
	if b, err := os.ReadFile(path); err == nil { // root has made it for the ordinary user
		return b, nil
	}
	build := exec.Command("go", "build", "-ldflags=-s -w", "-o", path, "./talker")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build talker: %w: %s", err, out)
	}
	return os.ReadFile(path)
})

// giveTalker puts the program into a sandbox.
func giveTalker(n *harness.Node, ref string) {
	n.T.Helper()
	program, err := talker()
	if err != nil {
		n.T.Fatal(err)
	}
	n.Put(ref, api.WriteRequest{FileRef: harness.At("/bin/talker"), Mode: new(uint32(0o755))}, string(program))
}

// conversation is a talker in a sandbox.
type conversation struct {
	*harness.Follower
	what string
	pid  int
	poll bool
}

// converse starts a talker and waits until it has been answered.
func converse(n *harness.Node, ref, kind, url string) *conversation {
	n.T.Helper()
	p, err := n.Machine.StartProcess(harness.AsOwner, ref, api.StartRequest{Argv: []string{"talker", kind, url}, Stdin: true})
	if err != nil {
		n.T.Fatal(err)
	}
	return &conversation{Follower: n.Follow(ref, p.PID, 0), what: kind + " " + url, pid: p.PID, poll: kind == "poll"}
}

// TestForkInStreams forks while programs talk to servers in each of the ways in which the gateway passes
// bytes on: by address, by a name that it looks for in the first bytes, by a name whose requests it looks
// at, by a name whose TLS it ends.
func TestForkInStreams(t *testing.T) {
	bundle, config := authority(t, "files.example.org", "other.example.org")
	n := newNode(t)
	n.Close()
	n.HostCAs = bundle
	n.Open()
	s := newAnswerer()
	s.listen(t, "198.51.100.1:443", config)
	s.listen(t, "198.51.100.1:80", nil)
	s.listen(t, "198.51.100.2:443", config)
	s.listen(t, "198.51.100.2:8080", nil)
	s.listen(t, "198.51.100.2:80", nil)
	_, err := n.Machine.SetSecret(harness.AsOwner, "KEY", api.SecretRequest{Value: "value-of-the-key", SecretBinding: api.SecretBinding{Names: []string{"files.example.org"}, Header: "X-Key"}})
	if err != nil {
		t.Fatal(err)
	}
	req := allow(t, "files.example.org", "other.example.org:80,443,8080", "203.0.113.1:9000")
	s.listen(t, "203.0.113.1:9000", nil)
	req.Rules = map[string]api.NetworkTreatment{"files.example.org": {Secret: &api.NetworkSecret{Header: "X-Key", Value: "${KEY}"}}}
	create(n, "base", req)
	giveTalker(n, "base")
	var talks []*conversation
	for _, where := range []struct{ what, plain, secure string }{
		{"by address", "203.0.113.1:9000", ""},
		{"by name", "other.example.org:8080", "other.example.org"},
		{"treated", "", "files.example.org"},
	} {
		if where.plain != "" {
			talks = append(talks, converse(n, "base", "websocket", "ws://"+where.plain+"/websocket"), converse(n, "base", "http2", "http://"+where.plain+"/http2"),
				converse(n, "base", "grpc", "http://"+where.plain), converse(n, "base", "poll", "http://"+where.plain+"/poll"))
		}
		if where.secure != "" {
			talks = append(talks, converse(n, "base", "websocket", "wss://"+where.secure+"/websocket"), converse(n, "base", "http2", "https://"+where.secure+"/http2"),
				converse(n, "base", "grpc", "https://"+where.secure+":443"), converse(n, "base", "poll", "https://"+where.secure+"/poll"))
		}
	}
	polls := 0
	for _, c := range talks {
		c.Await("flowing\n")
		if c.poll {
			polls++
		}
	}
	harness.Eventually(t, "polls", func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.waiting != polls {
			return fmt.Errorf("%d wait", s.waiting)
		}
		return nil
	})
	if t.Failed() {
		t.FailNow() // the rest would wait for each
	}
	children := n.Fork("base", 2)
	began := time.Now()
	var theirs []*conversation
	for _, child := range children {
		for _, c := range talks {
			f := *c
			f.Follower = n.Follow(child.ID, c.pid, 0)
			theirs = append(theirs, &f)
			harness.Eventually(t, c.what, func() error {
				if out, _ := f.Text(); !strings.HasPrefix(out, "flowing\nreset\n") {
					return fmt.Errorf("a child says %q", out)
				}
				return nil
			})
		}
	}
	if t.Failed() {
		t.FailNow()
	}
	t.Logf("all have seen a reset %v after the fork", time.Since(began))
	if d := time.Since(began); d > 10*time.Second {
		t.Errorf("children see resets only %v after the fork", d)
	}
	for _, c := range theirs {
		if !c.poll {
			c.Await("flowing\nreset\nflowing\n")
		}
	}
	close(s.events)
	for _, c := range append(talks, theirs...) {
		c.Say("stop\n")
	}
	for i, c := range append(talks, theirs...) {
		exit := c.Exit()
		want := "flowing\nwhole\n"
		switch {
		case i >= len(talks) && c.poll:
			want = "flowing\nreset\nwhole\n"
		case i >= len(talks):
			want = "flowing\nreset\nflowing\nwhole\n"
		}
		if out, _ := c.Text(); out != want || exit.ExitCode != 0 {
			t.Errorf("%s: talker %d ends with %+v: %q", c.what, i, exit, out)
		}
	}
	// Without TLS a connection of HTTP/2 shows no name in time: at port 80 it does not pass.
	p, err := n.Machine.StartProcess(harness.AsOwner, "base", api.StartRequest{Argv: []string{"talker", "http2", "http://other.example.org/http2"}})
	if err != nil {
		t.Fatal(err)
	}
	mustBeDenied(n, "base", "tcp", ":80 no server name is shown")
	if err := n.Machine.RemoveProcess(harness.AsOwner, "base", p.PID); err != nil {
		t.Fatal(err)
	}
}
