package network

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
	"ramet.dev/ramet/internal/network/control"
	waiting "ramet.dev/ramet/internal/network/held"
	"ramet.dev/ramet/test/harness"
)

// mark returns how many connections a server has seen, with all that were made before: a connection
// of the test, which does not count, comes behind them in the server's queue.
func (s *server) mark(t testing.TB, address string) int {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err = c.Write([]byte{1}); err == nil {
		_, err = io.ReadFull(c, make([]byte, 1))
	}
	if err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns--
	return s.conns
}

// trickles sends data so slowly that a transfer is nearly always under way.
func trickles(c net.Conn) {
	const step = 256 << 10
	pace := time.NewTicker(2 * time.Millisecond)
	defer pace.Stop()
	for from := 0; from < len(data); from += step {
		if _, err := c.Write(data[from : from+step]); err != nil {
			return
		}
		<-pace.C
	}
}

// closing is the sandbox whose policy changes all the time: it allows one of two servers.
type closing struct {
	t       testing.TB
	n       *harness.Node
	servers [2]*server
	open    int // the server that is allowed, or -1 when nobody knows
	seen    int // connections of the other one when its end was acknowledged
	sets    int // that were acknowledged
}

const turning = "turning"

var turnedTo = [2]string{"198.51.100.3:1", "198.51.100.4:1"}

// know notes what is allowed, from now on.
func (c *closing) know(open int) {
	c.open, c.seen = open, c.servers[1-open].mark(c.t, turnedTo[1-open])
}

// check checks that the server that is not allowed has seen nothing since that was acknowledged.
func (c *closing) check(when string) {
	c.t.Helper()
	if c.open < 0 {
		return
	}
	if now := c.servers[1-c.open].mark(c.t, turnedTo[1-c.open]); now != c.seen {
		c.t.Errorf("%s: %d connections to a server whose end was acknowledged", when, now-c.seen)
		c.seen = now
	}
}

// turn has the sandbox reach the other server.
func (c *closing) turn(ctx context.Context, set func(ctx context.Context, ref string, req api.NetworkRequest) (*api.SandboxNetwork, error)) error {
	c.check("while the policy is in force")
	to := 1 - max(c.open, 0)
	c.open = -1
	if _, err := set(ctx, turning, *allow(c.t, turnedTo[to])); err != nil {
		return err
	}
	c.know(to)
	c.sets++
	return nil
}

// learn reads which policy is in force after one was asked for and not acknowledged.
func (c *closing) learn(got *api.SandboxNetwork) {
	c.t.Helper()
	at := slices.Index(turnedTo[:], got.Allow[0].String())
	if at < 0 || c.open >= 0 && at != c.open {
		c.t.Errorf("the policy is %v, acknowledged was %d", got.Allow, c.open)
	}
	c.check("after the daemon has started")
	if c.open < 0 && at >= 0 {
		c.know(at)
	}
}

// TestTransfersSurviveKills kills the daemon, the gateway or a sentry at random moments while guests
// transfer, are forked, try what is denied, and have their policy changed. What was acknowledged holds,
// also while the gateway is away and another daemon starts: what is denied is never reached. Transfers
// are whole or break; nothing leaks. RAMET_TEST_KILLS says how often.
func TestTransfersSurviveKills(t *testing.T) {
	rng := harness.Seeded(t)
	n := newNode(t)
	serve(t, "198.51.100.1:1", trickles)
	never := serve(t, "198.51.100.2:1", echoes)
	c := &closing{t: t, n: n}
	for i, a := range turnedTo {
		c.servers[i] = serve(t, a, echoes)
	}
	create(n, "base", allow(t, "198.51.100.1:1"))
	create(n, turning, allow(t, turnedTo[0]))
	c.know(0)
	pulling := n.Start("base", api.StartRequest{}, "outside", "pull", "198.51.100.1:1")
	n.Start("base", api.StartRequest{}, "outside", "knock", "198.51.100.2:1")
	n.Start(turning, api.StartRequest{}, "outside", "knock", turnedTo[0], turnedTo[1], "198.51.100.2:1")

	killed := map[string]int{}
	for round := range harness.Kills(t, 4, 1) {
		n.Close()
		killed[c.work(rng, round)]++
		n.Open()
		got, err := n.Machine.Network(harness.AsOwner, turning)
		if err != nil {
			t.Fatal(err)
		}
		c.learn(got)
		mustHeal(n, "base", "198.51.100.1:1")
		mustHeal(n, turning, turnedTo[c.open])
		mustReach(n, turning, map[string]string{turnedTo[1-c.open]: refused, "198.51.100.2:1": refused})
		n.DestroyAllBut("base", turning)
		n.CheckOwned()
		if pids := gateways(t, n); len(pids) != 1 {
			t.Errorf("there are gateways %v", pids)
		}
		if t.Failed() {
			t.Fatalf("in round %d", round)
		}
	}
	t.Logf("killed: %v, %d policies were acknowledged", killed, c.sets)
	if c.sets == 0 {
		t.Error("no policy was acknowledged: the test proves nothing")
	}
	if got := never.count(); got != 0 {
		t.Errorf("%d connections to a server that was never allowed", got)
	}
	// What came whole is right, and some came. Whether a kill met one is chance: others are killed until
	// one did.
	f := n.Follow("base", pulling, 0)
	harness.Eventually(t, "a download that breaks", func() error {
		if out, _ := f.Text(); !strings.Contains(out, "reset") {
			for _, pid := range gateways(t, n) {
				_ = syscall.Kill(pid, syscall.SIGKILL) // it may be gone
			}
			mustHeal(n, "base", "198.51.100.1:1")
			return fmt.Errorf("they say %q", out)
		}
		return nil
	})
	harness.Eventually(t, "a whole download", func() error {
		if out, _ := f.Text(); !strings.HasSuffix(out, digest) {
			return fmt.Errorf("they say %q", out)
		}
		return nil
	})
	out, _ := f.Text()
	whole := 0
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "digest") {
			whole++
			if line != digest {
				t.Errorf("a download has the %s", line)
			}
		}
	}
	f.Detach()
	t.Logf("the downloads say %d times that they are whole", whole)
	n.Destroy("base", turning)
	mustBeIdle(n)
}

// work has a daemon work until it is killed, in some rounds with parts of what works for it.
func (c *closing) work(rng *rand.Rand, round int) (killed string) {
	n := c.n
	spare := n.Sentries() // those of the sandboxes that are to live, and the pool's
	p := harness.StartVictim(c.t, harness.Victim{Runtime: n.Paths.RuntimeDir(), Data: n.Paths.DataDir(), Engine: n.Build, Hosts: n.Hosts, Seed: rng.Uint64(), Work: harness.Serves})
	killed = []string{"gateways", "sentries of children", "the daemon", "a daemon that starts"}[round%4]
	if round%4 == 3 { // while it takes over what the last one left
		harness.RandomPause(rng, 100*time.Millisecond)
		p.Kill()
		return killed
	}
	if line := p.Next(); line != "serving" {
		c.t.Fatalf("the daemon says %q", line)
	}
	cl, err := client.New("unix:" + n.Paths.Socket())
	if err != nil {
		c.t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(harness.AsOwner, harness.Timeout)
	defer cancel()
	var over atomic.Bool
	turned := harness.InBackground(func() error {
		for !over.Load() {
			if c.turn(ctx, cl.Networks.Set) != nil && !over.Load() { // the gateway may be away
				if got, err := cl.Networks.Get(ctx, turning); err == nil {
					c.learn(got)
				}
			}
		}
		return nil
	})
	forked := harness.InBackground(func() error {
		for !over.Load() {
			r, err := cl.Sandboxes.Fork(ctx, "base", api.ForkRequest{Count: 2})
			if err != nil {
				continue
			}
			for _, child := range r.Children {
				if child.Sandbox != nil {
					_ = cl.Sandboxes.Destroy(ctx, child.Sandbox.ID) // the daemon may be gone
				}
			}
		}
		return nil
	})
	harness.RandomPause(rng, 500*time.Millisecond)
	for range 3 {
		switch killed {
		case "gateways":
			for _, pid := range gateways(c.t, n) {
				_ = syscall.Kill(pid, syscall.SIGKILL) // it may be gone
			}
		case "sentries of children":
			for _, pid := range n.Sentries() {
				if !slices.Contains(spare, pid) && rng.IntN(2) == 0 {
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
			}
		}
		harness.RandomPause(rng, 200*time.Millisecond)
	}
	over.Store(true)
	p.Kill()
	<-turned
	<-forked
	return killed
}

// mustHeal waits until a sandbox reaches an address.
func mustHeal(n *harness.Node, ref, address string) {
	n.T.Helper()
	harness.Eventually(n.T, ref+" reaches "+address, func() error {
		if got := dial(n, ref, address)[address]; got != connected {
			return fmt.Errorf("it is %q", got)
		}
		return nil
	})
}

// gateways returns the processes that are gateways of a node.
func gateways(t testing.TB, n *harness.Node) (pids []int) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		var pid int
		if _, err := fmt.Sscan(e.Name(), &pid); err != nil {
			continue
		}
		line, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err == nil && strings.HasPrefix(string(line), "ramet-gateway\x00") && strings.Contains(string(line), n.Build) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// mustBeIdle waits until nothing of the flows of sandboxes that are gone is left: in the gateway, among
// its descriptors, and among the connections of the namespace.
func mustBeIdle(n *harness.Node) {
	n.T.Helper()
	pid := n.Gateway()
	if pid == 0 {
		return // nobody needs one
	}
	harness.Eventually(n.T, "flows of sandboxes that are gone", func() error {
		if u := n.Machine.Usage().Gateway; u == nil || u.Flows != 0 || u.Sandboxes != 0 {
			return fmt.Errorf("the gateway has %+v", u)
		}
		open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		if err == nil && len(open) > 24 { // it is undumpable: only root sees them
			return fmt.Errorf("the gateway has %d descriptors", len(open))
		}
		for _, table := range []string{"tcp", "tcp6"} {
			b, err := os.ReadFile("/proc/net/" + table)
			if err != nil {
				return err
			}
			for line := range strings.Lines(string(b)) {
				f := strings.Fields(line)
				if len(f) > 3 && slices.Contains([]string{"01", "02", "03", "08"}, f[3]) { // established, being opened, half closed
					return fmt.Errorf("a connection is left: %s", line)
				}
			}
		}
		return nil
	})
}

// TestHeldRequestsSurviveKills kills the daemon, the gateway or both while what a branch holds is
// released or promoted, and what another holds is dropped. The first is sent once, or nobody knows,
// which is said; the second never.
func TestHeldRequestsSurviveKills(t *testing.T) {
	rng := harness.Seeded(t)
	n := newNode(t)
	w := newWorld(t)
	create(n, "base", allow(t, "files.example.org"))
	ends := map[string]int{}
	for round := range harness.Kills(t, 3, 1) {
		r, err := n.Machine.Fork(harness.AsOwner, "base", api.ForkRequest{Count: 2, Hold: api.HoldWrites})
		if err != nil {
			t.Fatal(err)
		}
		winner, loser := n.Children(r)[0].ID, n.Children(r)[1].ID
		for who, id := range map[string]string{"winner": winner, "loser": loser} {
			n.Start(id, api.StartRequest{}, "outside", "request", "POST", site+"/write", fmt.Sprintf("%s-%d.", who, round))
			awaitHeld(n, id, "POST /write waiting")
		}
		n.Close()
		how := decide(rng, n, winner, loser, func(string) bool {
			return w.times(fmt.Sprintf("winner-%d.", round)) == 1 || stateOf(n, winner) == waiting.Unknown
		})
		n.Open()
		// Whatever was cut off is asked for again.
		if _, err := n.Machine.Get(harness.AsOwner, winner); err == nil && stateOf(n, winner) == waiting.Waiting {
			if _, err := n.Machine.Promote(harness.AsOwner, winner); err != nil {
				t.Fatal(err)
			}
		}
		if err := n.Machine.Destroy(harness.AsOwner, loser); err != nil && api.CodeOf(err) != api.CodeNotFound {
			t.Fatal(err)
		}
		state := waiting.State("")
		harness.Eventually(t, how+": the winner's request", func() error {
			state = stateOf(n, winner)
			if sent := w.times(fmt.Sprintf("winner-%d.", round)); sent != 1 && state != waiting.Unknown {
				return fmt.Errorf("it is %s, and was sent %d times: %s", state, sent, w.seen())
			}
			return nil
		})
		ends[fmt.Sprint(how, ", ", state)]++
		n.DestroyAllBut("base")
		if t.Failed() {
			t.Fatalf("in round %d", round)
		}
	}
	t.Logf("%v", ends)
	n.Reopen()
	mustHealRequests(n)
	for line := range strings.SplitSeq(w.seen(), "; ") {
		if strings.Contains(line, "loser") || strings.Contains(line, "winner") && w.times(line) != 1 {
			t.Errorf("the server was asked %s, %d times", line, w.times(line))
		}
	}
}

// mustHealRequests waits until the base reads.
func mustHealRequests(n *harness.Node) {
	n.T.Helper()
	harness.Eventually(n.T, "a request", func() error {
		out, err := n.Exec("base", "outside", "request", "GET", site+"/", "")
		if err != nil || !strings.HasPrefix(out.Stdout.String(), "200 ") {
			return fmt.Errorf("%w: %s", err, out.Stderr.String())
		}
		return nil
	})
}

// times returns how often the server was asked with a text.
func (w *world) times(text string) int { return strings.Count(w.seen(), text) }

// stateOf returns the state of the request that a sandbox has held, which may be gone. "" is none.
func stateOf(n *harness.Node, id string) (state waiting.State) {
	ctx, cancel := context.WithTimeout(harness.AsOwner, harness.Timeout)
	defer cancel()
	gateway := control.NewClient(filepath.Join(n.Paths.RuntimeDir(), "gateway.sock"))
	_ = gateway.Held(ctx, id, func(r waiting.Request) error { state = r.State; return nil }) // there may be no gateway
	return state
}

// decide has a daemon release what a sandbox holds, or promote it, and drop what another holds, and
// kills at a random moment. Where the daemon lives it waits until settled is true.
func decide(rng *rand.Rand, n *harness.Node, winner, loser string, settled func(how string) bool) (how string) {
	n.T.Helper()
	p := harness.StartVictim(n.T, harness.Victim{Runtime: n.Paths.RuntimeDir(), Data: n.Paths.DataDir(), Engine: n.Build, Hosts: n.Hosts, Seed: rng.Uint64(), Work: harness.Serves})
	if line := p.Next(); line != "serving" {
		n.T.Fatalf("the daemon says %q", line)
	}
	ended := false
	end := func() {
		if !ended {
			p.Kill()
		}
		ended = true
	}
	defer end()
	c, err := client.New("unix:" + n.Paths.Socket())
	if err != nil {
		n.T.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(harness.AsOwner, harness.Timeout)
	defer cancel()
	act := []string{"promote", "release"}[rng.IntN(2)]
	won := harness.InBackground(func() error {
		if act == "promote" {
			_, err := c.Sandboxes.Promote(ctx, winner)
			return err
		}
		_, err := c.Held.Release(ctx, winner, api.HeldRelease{})
		return err
	})
	destroyed := rng.IntN(2) == 0
	lost := harness.InBackground(func() error {
		if destroyed {
			return c.Sandboxes.Destroy(ctx, loser)
		}
		_, err := c.Held.Drop(ctx, loser, api.HeldDrop{})
		return err
	})
	harness.RandomPause(rng, 60*time.Millisecond)
	kill := []string{"daemon", "gateway", "both"}[rng.IntN(3)]
	how = act + ", " + kill + " killed"
	if kill != "daemon" {
		for range 8 { // also those that come after
			for _, pid := range gateways(n.T, n) {
				_ = syscall.Kill(pid, syscall.SIGKILL) // it may be gone
			}
			harness.RandomPause(rng, 20*time.Millisecond)
		}
	}
	if kill != "gateway" {
		end()
	}
	err = <-won
	<-lost
	if kill == "gateway" && (err == nil || act == "promote") {
		harness.Eventually(n.T, how, func() error {
			if _, gerr := c.Sandboxes.Get(ctx, winner); gerr == nil && err != nil || settled(how) {
				return nil
			}
			return fmt.Errorf("the answer was %w; the request is %q", err, stateOf(n, winner))
		})
	}
	return how
}
