package node

import (
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
	"ramet.dev/ramet/test/harness"
)

// publish publishes port 80 of a sandbox, and returns where.
func publish(n *harness.Node, ref string) *api.PublishedPort {
	n.T.Helper()
	p, err := n.Machine.PublishPort(harness.AsOwner, ref, api.PublishRequest{Port: 80})
	if err != nil {
		n.T.Fatal(err)
	}
	return p
}

// echoes sends text to an echo server in a sandbox, ends its direction and compares the answer.
func echoes(at, text string) error {
	c, err := net.Dial("tcp", at)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(harness.Timeout)); err != nil {
		return err
	}
	var writer sync.WaitGroup
	defer writer.Wait()
	writer.Go(func() {
		_, _ = io.WriteString(c, "echo\n"+text) // an error is found by the reader
		_ = c.(*net.TCPConn).CloseWrite()
	})
	b, err := io.ReadAll(c)
	if err != nil {
		return err
	}
	if want := text + fmt.Sprintf("end after %d", len(text)); string(b) != want {
		return fmt.Errorf("%d bytes came back, want %d", len(b), len(want))
	}
	return nil
}

func refused(at string) error {
	c, err := net.Dial("tcp", at)
	if err == nil {
		c.Close()
		return errors.New("somebody listens on " + at)
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return err
	}
	return nil
}

// TestPublishedPorts uses a published port through the life of a sandbox: forks, a promotion, a
// rest, and the next daemon.
func TestPublishedPorts(t *testing.T) {
	ctx := harness.AsOwner
	n := harness.NewNode(t)
	n.Create("box")
	n.StartServer("box", "tcp", ":80")
	p := publish(n, "box")
	works := func(when string) {
		t.Helper()
		if err := echoes(p.At(), "hello"); err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}
	works("at first")
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			if err := echoes(p.At(), strings.Repeat(fmt.Sprint(i, " "), 10000)); err != nil {
				t.Errorf("connection %d of 100 at once: %v", i, err)
			}
		})
	}
	wg.Wait()

	child := n.Fork("box", 1)[0].ID
	if l, err := n.Machine.PublishedPorts(ctx, child); err != nil || len(l) != 0 {
		t.Errorf("a child has %v, %v", l, err)
	}
	_, err := n.Machine.PublishPort(ctx, child, api.PublishRequest{Port: 80, HostPort: p.HostPort})
	harness.WantCode(t, err, api.CodeConflict)
	own := publish(n, child)
	if err := echoes(own.At(), "the child's"); err != nil {
		t.Error(err)
	}
	if _, err := n.Machine.Promote(ctx, child); err != nil {
		t.Fatal(err)
	}
	works("after a promotion")
	if err := refused(own.At()); err != nil {
		t.Errorf("the port of the promoted child: %v", err)
	}
	if _, err := n.Machine.Hibernate(ctx, "box"); err != nil {
		t.Fatal(err)
	}
	works("while it rests")
	if _, err := n.Machine.Pause(ctx, "box"); err != nil { // by somebody: it does not wake by itself
		t.Fatal(err)
	}
	if err := echoes(p.At(), "hello"); err == nil {
		t.Error("a paused sandbox answers")
	}
	if _, err := n.Machine.Resume(ctx, "box"); err != nil {
		t.Fatal(err)
	}
	n.Reopen()
	works("after a new daemon began")
	if err := n.Machine.Destroy(ctx, "box"); err != nil {
		t.Fatal(err)
	}
	if err := refused(p.At()); err != nil {
		t.Errorf("after the end of the sandbox: %v", err)
	}
}

// TestPublishedPortAfterAKill kills the daemon that a port was published by.
func TestPublishedPortAfterAKill(t *testing.T) {
	n := harness.NewNode(t)
	n.Create("box")
	n.StartServer("box", "tcp", ":80")
	n.Close()
	var at []string
	for range 3 {
		v := harness.StartVictim(t, harness.Victim{Runtime: n.Paths.RuntimeDir(), Data: n.Paths.DataDir(), Engine: n.Build, Work: harness.Serves})
		v.Next()
		c, err := client.New("unix:" + n.Paths.Socket())
		if err != nil {
			t.Fatal(err)
		}
		p, err := c.Ports.Publish(t.Context(), "box", api.PublishRequest{Port: 80})
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range append(at, p.At()) {
			if err := echoes(a, "hello"); err != nil {
				t.Errorf("%s: %v", a, err)
			}
		}
		open, err := net.Dial("tcp", p.At())
		if err != nil {
			t.Fatal(err)
		}
		v.Kill()
		c.Close()
		open.Close()
		at = append(at, p.At())
	}
	n.Open()
	l, err := n.Machine.PublishedPorts(harness.AsOwner, "box")
	if err != nil || len(l) != len(at) {
		t.Fatalf("published are %v, %v", l, err)
	}
	for _, a := range at {
		if err := echoes(a, "hello"); err != nil {
			t.Errorf("after the last kill, %s: %v", a, err)
		}
	}
}

// TestPublishedPortTakesNoMemory receives 1 GiB through a published port.
func TestPublishedPortTakesNoMemory(t *testing.T) {
	const size, slack = 1 << 30, 64 << 20
	n := harness.NewNode(t)
	n.Create("box")
	n.StartServer("box", "tcp", ":80")
	p := publish(n, "box")
	if err := echoes(p.At(), strings.Repeat("x", 1<<20)); err != nil { // what is there once
		t.Fatal(err)
	}
	memory := func() uint64 { // of this process, which the daemon is a part of
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.Sys
	}
	before := memory()
	c, err := net.Dial("tcp", p.At())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := fmt.Fprintf(c, "send %d\n", size); err != nil {
		t.Fatal(err)
	}
	var got int64
	var highest uint64
	for {
		m, err := io.CopyN(io.Discard, c, 64<<20)
		got += m
		highest = max(highest, memory())
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if got != size {
		t.Errorf("%d bytes came, want %d", got, int64(size))
	}
	if highest > before+slack {
		t.Errorf("the daemon grew from %d to %d MiB", before>>20, highest>>20)
	}
}
