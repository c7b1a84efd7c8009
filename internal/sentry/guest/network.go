package guest

import (
	"gvisor.dev/gvisor/pkg/sentry/inet"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/socket/netstack"
	_ "gvisor.dev/gvisor/pkg/sentry/socket/unix" // unix sockets
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/stack"

	"ramet.dev/ramet/internal/sentry/aside"
	"ramet.dev/ramet/internal/sentry/netspaces"
	"ramet.dev/ramet/internal/sentry/uplink"
)

// inheritedNetwork gives a child the counters that its network stack was saved without, before
// it makes the interfaces, which count in them. side is the side state that has them.
type inheritedNetwork struct {
	k         *kernel.Kernel
	connected bool // the child has a way to the outside
	side      *aside.State
	link      *uplink.Link // nil if neither the child nor its parent has one
	spaces    *netspaces.Namespaces
}

// ConfigureNetwork implements inet.NetworkArgs.
func (n *inheritedNetwork) ConfigureNetwork(is inet.Stack) error {
	set, err := popState[aside.State](n.k, aside.Key, "has no side state")
	if err != nil {
		return err
	}
	n.side = set
	if n.spaces, _ = n.k.PopCheckpointState(netspaces.Key).(*netspaces.Namespaces); n.spaces == nil {
		n.spaces = netspaces.New(n.k) // saved by a version that had none
	}
	s := is.(*netstack.Stack).Stack
	if err := set.RestoreCounters(s); err != nil {
		return err
	}
	// gVisor counts the connections again that it restores.
	for _, now := range []*tcpip.StatCounter{s.Stats().TCP.CurrentEstablished, s.Stats().TCP.CurrentConnected} {
		now.IncrementBy(-now.Value())
	}
	return n.spaces.Load(n.k, s, n.plugIn)
}

// plugIn makes the interface to the outside, if the child or its parent has one: what was bound to its addresses is
// lost without them.
func (n *inheritedNetwork) plugIn(s *stack.Stack) error {
	if !n.connected && !n.side.Connected {
		return nil
	}
	n.link = uplink.NewLink()
	return n.link.PlugIn(s)
}
