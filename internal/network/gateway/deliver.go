package gateway

import (
	"context"
	"fmt"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/network/policy"
	"ramet.dev/ramet/internal/network/relay"
	"ramet.dev/ramet/internal/network/wire"
)

// acceptTimeout is how long a sentry may take to say whether somebody listens.
const acceptTimeout = 10 * time.Second

// deliver connects to a port of another sandbox, if the policies of both allow it.
func (f *flow) deliver(target *sandbox) {
	in, d := f.meet(target)
	f.rule = d.String()
	if in == nil {
		f.deny(f.rule, "", wire.CodeRefused)
		return
	}
	defer in.end()
	f.s.log(f.entry(api.NetworkAllowed))
	theirs, server, err := wire.FlowPair(wire.TCP)
	if err != nil {
		f.verdict(wire.CodeNetUnreachable)
		return
	}
	err = control(theirs, func(fd int) error {
		return target.send(&wire.Message{Kind: wire.Deliver, Flow: in.id, Port: f.port}, fd)
	})
	theirs.Close()
	if err != nil || !in.awaitAccept(f.ctx) {
		in.tell(wire.Reset) // if it has not refused
		server.Close()
		f.verdict(wire.CodeRefused)
		return
	}
	guest, err := f.open()
	if err != nil {
		in.tell(wire.Reset)
		server.Close()
		return
	}
	// A shutdown of the pair is no end of a stream for a sentry, unless it was told.
	err = f.carry(guest, server, relay.Options{GuestEnded: in.tellClosed, ServerHungUp: in.awaitWord, Attached: in.attach})
	if err != nil {
		in.tell(wire.Reset)
	} else {
		in.tellClosed()
	}
}

// meet judges a flow from one sandbox to another by both policies, and returns the flow as the target
// has it, or nil with the decision that denies it.
func (f *flow) meet(target *sandbox) (*flow, policy.Decision) {
	if f.s.reg().Tenant != target.reg().Tenant {
		return nil, policy.Decision{Rule: "the sandbox is another tenant's"}
	}
	to, from, port := target.peer(), f.s.peer(), f.port
	f.name = to.Name + siblingDomain
	allowed := func(p *policy.Policy) bool { return p.JudgeTarget(to, port).Allowed }
	accepted := func(p *policy.Policy) bool { return p.JudgeSource(from, port).Allowed }
	f.s.mu.Lock()
	d := f.s.policy.JudgeTarget(to, port)
	if d.Allowed {
		f.judged = allowed
	}
	f.s.mu.Unlock()
	if !d.Allowed {
		return nil, d
	}
	target.mu.Lock()
	defer target.mu.Unlock()
	if back := target.policy.JudgeSource(from, port); !back.Allowed {
		return nil, policy.Decision{Rule: "the other sandbox does not accept it: " + back.String()}
	}
	if most := target.policy.Limits().Connections; len(target.open) >= most {
		return nil, policy.Decision{Rule: fmt.Sprintf("limits.connections of the other sandbox: %d", most)}
	}
	return target.newInbound(port, accepted), d
}

// newInbound returns a new flow of those that the gateway numbers. The caller holds mu.
func (s *sandbox) newInbound(port uint16, judged func(*policy.Policy) bool) *flow {
	for {
		s.inbound++
		id := wire.FirstInbound | s.inbound
		if s.flows[id] == nil {
			f := newFlow(s, id, wire.TCP, s.address, port)
			f.judged = judged
			s.flows[id], s.open[f] = f, true
			return f
		}
	}
}

// awaitAccept waits for the guest's answer to a Deliver.
func (f *flow) awaitAccept(ctx context.Context) bool {
	late := time.NewTimer(acceptTimeout)
	defer late.Stop()
	select {
	case accepted := <-f.answered:
		if !accepted {
			f.mu.Lock()
			f.setGone()
			f.mu.Unlock()
		}
		return accepted
	case <-late.C:
	case <-f.ctx.Done():
	case <-ctx.Done():
	}
	return false
}
