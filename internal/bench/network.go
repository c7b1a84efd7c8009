package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/bench/machine"
	"ramet.dev/ramet/internal/bench/outside"
	"ramet.dev/ramet/internal/observe/procfs"
	"ramet.dev/ramet/internal/workload"
)

// netOp is an operation of the guest program, whose rows are network-NAME and network-NAME-runsc.
type netOp struct {
	name, what string
	metric     metric // gbitPerSecond, or roundtripMS
	aim        float64
}

// netOps are compared with runsc, except netDenied.
var netOps = []netOp{
	{"download", "download, one connection", gbitPerSecond, 1.5},
	{"upload", "upload, one connection", gbitPerSecond, 1.5},
	{"download-64", "download, 64 connections at once", gbitPerSecond, 0},
	{"upload-64", "upload, 64 connections at once", gbitPerSecond, 0},
	{"request", "request and response on a kept connection", roundtripMS, 0},
	{"connect", "new connection: connect() to connected", roundtripMS, 0},
	{netDenied, "", roundtripMS, 0},
}

const (
	netDenied = "denied"
	// netSeconds is the length of one transfer.
	netSeconds = 1.0
	// netPairs is how many times as often pairs of samples are taken, which show small differences.
	netPairs = 5
	// netHeld is the number of connections of a source that is forked.
	netHeld = 100
	// gatewaySandboxes is the number for which the memory of the gateway is reported.
	gatewaySandboxes      = 500
	gatewaySandboxesQuick = 100
	// idleMiB is an estimate of the memory of an idle child, to leave room on this machine.
	idleMiB = 12
)

func netCase(name string) string { return caseNetwork + "-" + name }

// netBench has the cases of the network.
type netBench struct{ *bench }

// netSide measures the operations of one side.
type netSide struct {
	suffix string // of its rows
	ask    func(ctx context.Context, program string) (string, error)
	call   string // of the guest program
}

// network measures what sandboxes do with the network. The server is in this process.
func (b netBench) network(ctx context.Context) (err error) {
	server, err := outside.Serve("", "127.0.0.1")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	closed, err := outside.Serve("", "127.0.0.1") // it answers, so that only a denial keeps sandboxes from it
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closed.Close()) }()
	policy := &api.NetworkRequest{NetworkPolicy: api.NetworkPolicy{Allow: []api.NetworkRule{{
		Address: api.HostName, Ports: []api.PortRange{{First: server.Port(), Last: server.Port()}},
	}}}}
	ref, err := b.networked(ctx, policy)
	if err != nil {
		return err
	}
	ours := netSide{
		ask:  func(ctx context.Context, program string) (string, error) { return b.s.Ask(ctx, ref, program) },
		call: fmt.Sprintf("network(%q, %d, %d, %g)\n", api.HostName, server.Port(), closed.Port(), netSeconds),
	}
	if err := b.netOperations(ctx, ours); err != nil {
		return err
	}
	if err := b.netHeldFork(ctx, ref, policy, fmt.Sprintf("hold(%q, %d, %d)\n", api.HostName, server.Port(), netHeld)); err != nil {
		return err
	}
	if err := b.s.Destroy(ctx, ref); err != nil {
		return err
	}
	if err := b.netOpen(ctx); err != nil {
		return err
	}
	return b.netGateway(ctx)
}

// networked makes a warm sandbox with a network.
func (b netBench) networked(ctx context.Context, policy *api.NetworkRequest) (string, error) {
	sb, err := b.s.CreateNetworked(ctx, workload.PythonImage, policy)
	if err != nil {
		return "", err
	}
	return sb.ID, b.s.Warm(ctx, sb.ID)
}

// netOperations measures the operations of our side and, where it can, of runsc, in turns.
func (b netBench) netOperations(ctx context.Context, ours netSide) (err error) {
	sides := []netSide{ours}
	reason, err := cannotConnect(b.opts.Runsc)
	if err != nil {
		return err
	}
	if reason == "" {
		theirs, stop, startErr := b.netRunsc(ctx)
		defer func() { err = errors.Join(err, stop(ctx)) }()
		if startErr != nil {
			return fmt.Errorf("prepare runsc with a network: %w", startErr)
		}
		sides = append(sides, theirs)
	} else {
		b.note("the network of runsc was left out: %s", reason)
	}
	samples := map[string][]sample{}
	for i := range b.opts.Runs {
		b.progress("network, run %d of %d", i+1, b.opts.Runs)
		for _, side := range sides {
			work := b.speed.Sample()
			out, err := side.ask(ctx, outside.Guest+side.call)
			if err != nil {
				return fmt.Errorf("%s%s: %w", caseNetwork, side.suffix, err)
			}
			results, err := netResults(out)
			if err != nil {
				return err
			}
			for name, s := range results {
				s[workMS] = work
				samples[name+side.suffix] = append(samples[name+side.suffix], s)
			}
		}
	}
	for _, op := range netOps {
		for _, side := range sides {
			if s := samples[op.name+side.suffix]; len(s) > 0 {
				b.add(kind{name: netCase(op.name + side.suffix), n: 1}, s)
			}
		}
	}
	return nil
}

// netResults reads what the guest program printed: Gbit/s, or microseconds.
func netResults(out string) (map[string]sample, error) {
	var values map[string]float64
	if err := json.Unmarshal([]byte(out), &values); err != nil {
		return nil, fmt.Errorf("read the results of %s: %w: %.200q", caseNetwork, err, out)
	}
	results := map[string]sample{}
	for _, op := range netOps {
		if v, ok := values[op.name]; ok && op.metric == roundtripMS {
			results[op.name] = sample{op.metric: v / 1000}
		} else if ok {
			results[op.name] = sample{op.metric: v}
		}
	}
	return results, nil
}

// netHeldFork measures forks of a source with open connections and of one without, in turns.
func (b netBench) netHeldFork(ctx context.Context, plain string, policy *api.NetworkRequest, hold string) error {
	b.progress("fork with %d open connections and without", netHeld)
	held, err := b.networked(ctx, policy)
	if err != nil {
		return err
	}
	if _, err := b.s.Ask(ctx, held, outside.Guest+hold); err != nil {
		return fmt.Errorf("open %d connections: %w", netHeld, err)
	}
	err = b.netTurns(ctx, kind{name: netCase("fork"), source: sourceSmall, n: 1}, kind{name: netCase("fork-connections"), source: sourceSmall, n: 1},
		func(ctx context.Context, which int) (sample, error) {
			return b.fork(ctx, [2]string{plain, held}[which], 1)
		})
	if err != nil {
		return err
	}
	return b.s.Destroy(ctx, held)
}

// netOpen measures what a network that is open adds to a create, and to a fork.
func (b netBench) netOpen(ctx context.Context) error {
	b.progress("create and fork with an open network and without")
	policies := [2]*api.NetworkRequest{nil, {Profile: "open"}}
	err := b.netTurns(ctx, kind{name: netCase("create-none"), n: 1}, kind{name: netCase("create-open"), n: 1},
		func(ctx context.Context, which int) (sample, error) {
			if err := b.meter().Settle(ctx, 1); err != nil {
				return nil, err
			}
			s := sample{workMS: b.speed.Sample()}
			began := time.Now()
			sb, err := b.s.CreateNetworked(ctx, workload.PythonImage, policies[which])
			if err != nil {
				return nil, err
			}
			s[returnMS] = millis(time.Since(began))
			return s, b.s.Destroy(ctx, sb.ID)
		})
	if err != nil {
		return err
	}
	var refs [2]string
	for i, policy := range policies {
		if refs[i], err = b.networked(ctx, policy); err != nil {
			return err
		}
	}
	err = b.netTurns(ctx, kind{name: netCase("fork-none"), source: sourceSmall, n: 1}, kind{name: netCase("fork-open"), source: sourceSmall, n: 1},
		func(ctx context.Context, which int) (sample, error) { return b.fork(ctx, refs[which], 1) })
	if err != nil {
		return err
	}
	return b.s.Destroy(ctx, refs[:]...)
}

// netTurns takes samples of two cases in turns, and adds their rows. which is 0 or 1.
func (b netBench) netTurns(ctx context.Context, first, second kind, run func(ctx context.Context, which int) (sample, error)) error {
	var samples [2][]sample
	for i := range b.opts.Runs * netPairs {
		for _, which := range [2]int{i % 2, 1 - i%2} {
			s, err := run(ctx, which)
			if err != nil {
				return fmt.Errorf("%s and %s: %w", first.name, second.name, err)
			}
			samples[which] = append(samples[which], s)
		}
	}
	b.add(first, samples[0])
	b.add(second, samples[1])
	return nil
}

// netGateway measures the memory of the gateway with idle sandboxes whose network is open. Fewer
// than gatewaySandboxes are scaled.
func (b netBench) netGateway(ctx context.Context) error {
	n := gatewaySandboxes
	if b.opts.Quick {
		n = gatewaySandboxesQuick
	}
	m, err := procfs.ReadMemory()
	if err != nil {
		return err
	}
	n = min(n, int(m.Available>>20)/(2*idleMiB))
	b.progress("gateway with %d sandboxes", n)
	ref, err := b.networked(ctx, &api.NetworkRequest{Profile: "open"})
	if err != nil {
		return err
	}
	pid, err := machine.Child(b.daemon, "network-gateway")
	if err != nil {
		return err
	}
	if pid == 0 {
		b.note("%s was left out: no gateway is a child of this daemon; it may be that of an earlier daemon", netCase("gateway"))
		return b.s.Destroy(ctx, ref)
	}
	before, err := procfs.FamilyPrivate(pid)
	if err != nil {
		return err
	}
	ids := []string{ref}
	for len(ids) < n {
		f, err := b.s.ForkUntouched(ctx, ref, min(n-len(ids), netHeld))
		if err != nil {
			return fmt.Errorf("fork for the memory of the gateway: %w", err)
		}
		ids = append(ids, f.IDs()...)
	}
	if err := b.meter().Settle(ctx, n); err != nil {
		return err
	}
	after, err := procfs.FamilyPrivate(pid)
	if err != nil {
		return err
	}
	b.add(kind{name: netCase("gateway"), n: gatewaySandboxes}, []sample{{gatewayMiB: scaled(before, after, n) / (1 << 20)}})
	if n != gatewaySandboxes {
		b.note("the memory of the gateway was measured with %d sandboxes, and scaled to %d", n, gatewaySandboxes)
	}
	return b.s.Destroy(ctx, ids...)
}

// scaled returns the memory with gatewaySandboxes of a gateway that had before with one, and after
// with n.
func scaled(before, after int64, n int) float64 {
	if n < 2 {
		return float64(after)
	}
	return float64(before) + float64(after-before)*(gatewaySandboxes-1)/float64(n-1)
}

// netTargets judges the rows of the network.
func netTargets(rs rows) []Target {
	var list []Target
	for _, op := range netOps {
		ours, theirs := rs.find(netCase(op.name), 0, 1), rs.find(netCase(op.name+runscSuffix), 0, 1)
		switch {
		case op.name == netDenied:
			list = append(list, Target{What: "denied connection: connect() to error", Unit: "ms", Measured: ours.RoundtripMS, Limit: 1})
		case op.metric == gbitPerSecond:
			list = append(list, Target{What: op.what + ", over stock runsc", Unit: "x", Measured: ratio(ours.GbitPerSecond, theirs.GbitPerSecond), Limit: 1, Aim: op.aim, AtLeast: true})
		default:
			list = append(list, Target{What: op.what + ", over stock runsc", Unit: "x", Measured: ratio(ours.RoundtripMS, theirs.RoundtripMS), Limit: 1})
		}
	}
	find := func(name string) Row { return rs.find(netCase(name), sourceSmall, 1) }
	return append(list,
		Target{What: "fork(1) with 100 open connections against none: pause", Unit: "x", Measured: ratio(find("fork-connections").PauseMS, find("fork").PauseMS), Limit: 1.3},
		Target{What: "fork(1) with an open network against none: first exec answered", Unit: "x", Measured: ratio(find("fork-open").FirstExecMS, find("fork-none").FirstExecMS), Limit: 1.05},
		Target{What: "private memory that a child with an open network has more", Unit: "MiB", Measured: difference(find("fork-open").PrivateMiBPerChild, find("fork-none").PrivateMiBPerChild), Limit: 0.3},
		Target{What: "create with an open network: longer by", Unit: "ms", Measured: difference(rs.find(netCase("create-open"), 0, 1).ReturnMS, rs.find(netCase("create-none"), 0, 1).ReturnMS), Limit: 1},
		Target{What: "gateway with 500 idle sandboxes", Unit: "MiB", Measured: rs.find(netCase("gateway"), 0, gatewaySandboxes).GatewayMiB, Limit: 64},
	)
}
