package integration

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
	"ramet.dev/ramet/internal/machine"
	"ramet.dev/ramet/internal/node"
	"ramet.dev/ramet/internal/server/rest"
	"ramet.dev/ramet/internal/server/rest/apitest"
	"ramet.dev/ramet/internal/storage/paths"
)

// victim is what a process is told that is going to be killed: a daemon that
// works on its own, or a client of the node in the test process.
type victim struct {
	Runtime, Data, Engine string // a daemon's
	Socket                string // a client's
	Merge                 bool
	Seed                  uint64
	Snapshots             bool // the daemon takes snapshots of "base"
	Sleeps                bool // the daemon hibernates "base" and wakes it
	Steps                 bool // the daemon runs commands in "base", which is checkpointed by itself
	Uploads               bool // the daemon takes snapshots of "base" without waiting for them
	Unawaited             bool // the daemon, or the client, forks "base" without waiting for the children
	Serves                bool // the daemon does what it is asked for at its socket
}

// daemonMain forks and otherwise uses the sandbox "base" until it is killed. It
// prints a line before each operation.
func daemonMain(args []string) int {
	err := func() error {
		var v victim
		if err := json.Unmarshal([]byte(args[0]), &v); err != nil {
			return err
		}
		rng := rand.New(rand.NewPCG(v.Seed, 0))
		if v.Socket != "" {
			return clientLoop(v, rng)
		}
		return daemonLoop(v, rng)
	}()
	fmt.Fprintln(os.Stderr, "victim:", err)
	return 1
}

func daemonLoop(v victim, rng *rand.Rand) error {
	p, err := paths.New(v.Runtime, v.Data)
	if err != nil {
		return err
	}
	ctx := asOwner
	m, err := machine.Open(ctx, node.Config{
		Paths: p, Executable: "/proc/self/exe", Engine: v.Engine, PoolSize: node.FixedPoolSize(rng.IntN(3)), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	if v.Serves {
		return serveOwn(m, p.Socket())
	}
	use := useOnce
	switch {
	case v.Merge:
		use = mergeOnce
	case v.Snapshots:
		use = snapshotOnce
	case v.Steps:
		use = stepOnce
	case v.Uploads:
		use = uploadOnce
	case v.Sleeps:
		use = sleepOnce
	case v.Unawaited:
		use = forkOnce
	}
	for {
		if err := use(ctx, m, rng); err != nil {
			return err
		}
	}
}

// mergeOnce merges "kid" into a new child of "base".
func mergeOnce(ctx context.Context, m *machine.Machine, _ *rand.Rand) error {
	r, err := m.Fork(ctx, "base", api.ForkRequest{})
	if err != nil {
		return err
	}
	if err := r.Children[0].Error; err != nil {
		return err
	}
	fmt.Println("merge")
	_, err = m.Merge(ctx, r.Children[0].Sandbox.ID, api.MergeRequest{From: []string{"kid"}})
	return err
}

// useOnce makes children of "base" and of one of them, and uses and destroys
// some.
func useOnce(ctx context.Context, m *machine.Machine, rng *rand.Rand) error {
	fmt.Println("fork")
	r, err := m.Fork(ctx, "base", api.ForkRequest{Count: 1 + rng.IntN(3)})
	if err != nil {
		return err
	}
	for _, c := range r.Children {
		if c.Error != nil {
			return c.Error
		}
	}
	first := r.Children[0].Sandbox.ID
	switch rng.IntN(5) {
	case 0:
		fmt.Println("fork a child")
		if _, err := m.Fork(ctx, first, api.ForkRequest{}); err != nil {
			return err
		}
	case 1:
		fmt.Println("snapshot")
		s, err := m.Snapshot(ctx, first, api.SnapshotRequest{Memory: rng.IntN(2) == 0})
		if err != nil {
			return err
		}
		fmt.Println("rollback")
		if _, err := m.Rollback(ctx, first, s.ID); err != nil {
			return err
		}
	case 3:
		fmt.Println("commit")
		if _, err := m.Commit(ctx, first, api.CommitRequest{Name: "committed", Replace: true}, func(api.Progress) {}); err != nil {
			return err
		}
		fmt.Println("export")
		if err := m.Export(ctx, first, api.ExportRequest{Format: api.ExportOCI}, io.Discard); err != nil {
			return err
		}
	case 2:
		fmt.Println("promote")
		if _, err := m.Promote(ctx, first); err != nil {
			return err
		}
		return nil // first is gone
	}
	if rng.IntN(2) == 0 {
		fmt.Println("destroy")
		return m.Destroy(ctx, first)
	}
	return nil
}

// clientLoop forks "base" through the REST interface.
func clientLoop(v victim, rng *rand.Rand) error {
	c, err := client.New("unix:" + v.Socket)
	if err != nil {
		return err
	}
	wait := !v.Unawaited
	for {
		fmt.Println("fork")
		if _, err := c.Sandboxes.Fork(asOwner, "base", api.ForkRequest{Count: 1 + rng.IntN(3), Wait: &wait}); err != nil {
			return err
		}
	}
}

// process is a victim that runs.
type process struct {
	t     testing.TB
	cmd   *exec.Cmd
	lines *bufio.Scanner
	out   io.ReadCloser
}

func startVictim(t testing.TB, v victim) *process {
	t.Helper()
	arg, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", "daemon", string(arg))
	cmd.Stderr = testWriter{t}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // if the test ends first
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return &process{t: t, cmd: cmd, lines: bufio.NewScanner(out), out: out}
}

// next waits for the next operation and returns what it is.
func (p *process) next() string {
	p.t.Helper()
	if !p.lines.Scan() {
		err := p.cmd.Wait()
		p.t.Fatalf("victim ended by itself: %v", err)
	}
	return p.lines.Text()
}

// kill kills the process and waits for its end. It returns what it said since the
// last call of next.
func (p *process) kill() (said []string) {
	p.t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		p.t.Fatal(err)
	}
	for p.lines.Scan() {
		said = append(said, p.lines.Text())
	}
	_ = p.cmd.Wait() // it was killed
	return said
}

// serve serves the node's REST interface until the end of the test and returns
// the socket's path.
func (n *testNode) serve() string {
	n.t.Helper()
	l, err := net.Listen("unix", n.paths.Socket())
	if err != nil {
		n.t.Fatal(err)
	}
	server := rest.New(rest.Config{Service: n.m, Identify: apitest.Owner, Version: "test"})
	s := &http.Server{Handler: server}
	served := make(chan error)
	go func() { served <- s.Serve(l) }()
	n.t.Cleanup(func() {
		s.Close()
		<-served // always an error, that of Close
		server.Wait()
	})
	return n.paths.Socket()
}
