package gateway

import (
	"context"
	"fmt"
	"time"

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
	logAllowed(f)
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
	port := f.port
	f.name = target.peer.Load().Name + siblingDomain
	// Both are judged under the names that they have at the time.
	allowed := func(p *policy.Policy) policy.Decision { return p.JudgeTarget(target.peer.Load(), port) }
	accepted := func(p *policy.Policy) policy.Decision { return p.JudgeSource(f.s.peer.Load(), port) }
	f.s.mu.Lock()
	d := allowed(f.s.policy)
	if d.Allowed {
		f.judged = func(p *policy.Policy) bool { return allowed(p).Allowed }
		f.judgedThere = func() bool { return accepted(target.current()).Allowed }
	}
	f.s.mu.Unlock()
	if !d.Allowed {
		return nil, d
	}
	in, why := target.receive(port, accepted)
	if in == nil {
		return nil, policy.Decision{Rule: why}
	}
	target.mu.Lock()
	in.judgedThere = func() bool { return allowed(f.s.current()).Allowed }
	target.mu.Unlock()
	if d = allowed(f.s.current()); !d.Allowed { // the target was renamed meanwhile
		in.end()
		return nil, d
	}
	return in, d
}

// notAccepted begins the reason of a denial by the policy of the target.
const notAccepted = "the other sandbox does not accept it: "

// receive returns a new flow from another sandbox, or nil and why there is none.
func (s *sandbox) receive(port uint16, accepted func(*policy.Policy) policy.Decision) (*flow, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := accepted(s.policy); !d.Allowed {
		return nil, notAccepted + d.String()
	}
	if most := s.policy.Limits().Connections; len(s.open) >= most {
		return nil, fmt.Sprintf("limits.connections of the other sandbox: %d", most)
	}
	return s.newInbound(port, func(p *policy.Policy) bool { return accepted(p).Allowed }), ""
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
