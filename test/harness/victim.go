package harness

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

// Victim is what a process is told that is going to be killed: a daemon that
// works on its own, or a client of the node in the test process.
type Victim struct {
	Runtime, Data, Engine string // a daemon's
	Hosts                 string // of the resolver of its gateway
	Socket                string // a client's
	Seed                  uint64
	Work                  string // what a daemon does again and again: one of its suite, or serves
	Unawaited             bool   // the client does not wait for the children that it makes
}

// Serves is the work of a daemon that does what it is asked for at its socket.
const Serves = "serve"

// Work uses a machine once, at random. It prints a line before each operation.
type Work func(ctx context.Context, m *machine.Machine, rng *rand.Rand) error

// victimMain works until the process is killed.
func victimMain(works map[string]Work, args []string) int {
	err := func() error {
		var v Victim
		if err := json.Unmarshal([]byte(args[0]), &v); err != nil {
			return err
		}
		rng := rand.New(rand.NewPCG(v.Seed, 0))
		if v.Socket != "" {
			return clientLoop(v, rng)
		}
		return daemonLoop(v, works[v.Work], rng)
	}()
	fmt.Fprintln(os.Stderr, "victim:", err)
	return 1
}

func daemonLoop(v Victim, work Work, rng *rand.Rand) error {
	p, err := paths.New(v.Runtime, v.Data)
	if err != nil {
		return err
	}
	ctx := AsOwner
	m, err := machine.Open(ctx, node.Config{
		Paths: p, Executable: "/proc/self/exe", Engine: v.Engine, PoolSize: node.FixedPoolSize(rng.IntN(3)), Log: slog.New(slog.DiscardHandler),
		Gateway: "/proc/self/exe", GatewayBuild: v.Engine, Hosts: v.Hosts,
	})
	if err != nil {
		return err
	}
	if v.Work == Serves {
		return serveOwn(m, p.Socket())
	}
	if work == nil {
		return fmt.Errorf("the suite has no work %q", v.Work)
	}
	for {
		if err := work(ctx, m, rng); err != nil {
			return err
		}
	}
}

// clientLoop forks "base" through the REST interface.
func clientLoop(v Victim, rng *rand.Rand) error {
	c, err := client.New("unix:" + v.Socket)
	if err != nil {
		return err
	}
	wait := !v.Unawaited
	for {
		fmt.Println("fork")
		if _, err := c.Sandboxes.Fork(AsOwner, "base", api.ForkRequest{Count: 1 + rng.IntN(3), Wait: &wait}); err != nil {
			return err
		}
	}
}

// serveOwn serves a node's interface until the process is killed.
func serveOwn(m *machine.Machine, socket string) error {
	if err := os.Remove(socket); err != nil && !os.IsNotExist(err) {
		return err
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	fmt.Println("serving")
	return http.Serve(l, rest.New(rest.Config{Service: m, Identify: apitest.Owner, Version: "test"}))
}

// VictimProcess is a victim that runs.
type VictimProcess struct {
	t     testing.TB
	cmd   *exec.Cmd
	lines *bufio.Scanner
	out   io.ReadCloser
}

// StartVictim starts a process, which ends with the test at the latest.
func StartVictim(t testing.TB, v Victim) *VictimProcess {
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
	return &VictimProcess{t: t, cmd: cmd, lines: bufio.NewScanner(out), out: out}
}

// Next waits for the next operation and returns what it is.
func (p *VictimProcess) Next() string {
	p.t.Helper()
	if !p.lines.Scan() {
		err := p.cmd.Wait()
		p.t.Fatalf("victim ended by itself: %v", err)
	}
	return p.lines.Text()
}

// Kill kills the process and waits for its end. It returns what it said since the
// last call of Next.
func (p *VictimProcess) Kill() (said []string) {
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
