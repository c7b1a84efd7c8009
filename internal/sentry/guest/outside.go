package guest

import (
	"os"
	"strings"
	"sync"

	"gvisor.dev/gvisor/pkg/context"

	"ramet.dev/ramet/internal/sentry/gate"
	"ramet.dev/ramet/internal/sentry/kern"
	"ramet.dev/ramet/internal/sentry/uplink"
)

// Network is the sandbox's way to the outside.
type Network struct {
	k      *kern.Kernel
	gate   *gate.Gate
	uplink *uplink.Uplink
	mu     sync.Mutex // held while it changes
}

// Connect lets the sandbox reach the gateway at the other end of channel, which is taken over.
// It returns the files that should say so and cannot be written, with the reason.
func (n *Network) Connect(channel *os.File) (unwritten []string, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	was := n.uplink.Connected()
	if err := n.uplink.Connect(nil, channel); err != nil || was {
		return nil, err
	}
	return n.changeResolver(true)
}

// Disconnect takes the network from the sandbox, but for its loopback interface.
func (n *Network) Disconnect() (unwritten []string, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.uplink.Connected() {
		return nil, nil
	}
	if err := n.uplink.Disconnect(); err != nil {
		return nil, err
	}
	return n.changeResolver(false)
}

// inherit connects a child whose network was made as inherited says. Without a channel
// it has none, whatever its parent has. Nothing runs yet.
func (n *Network) inherit(inherited *inheritedNetwork, channel *os.File) (unwritten []string, err error) {
	switch {
	case channel != nil:
		err = n.uplink.Inherit(inherited.link, channel)
	case inherited.link != nil:
		err = uplink.Unplug(n.k.NetStack())
	}
	if err != nil || inherited.side.Connected == (channel != nil) {
		return nil, err
	}
	return n.writeResolver(n.k.SupervisorContext(), channel != nil), nil
}

// changeResolver writes the resolver's file of a sandbox that runs.
func (n *Network) changeResolver(connected bool) (unwritten []string, err error) {
	if err := n.gate.EnterChange(); err != nil {
		return nil, err
	}
	defer n.gate.Leave()
	return n.writeResolver(n.k.SupervisorContext(), connected), nil
}

// writeResolver says in the resolver's file where names are asked for, or takes that back. A
// sandbox whose file cannot be written still has a network.
func (n *Network) writeResolver(ctx context.Context, connected bool) (unwritten []string) {
	old, err := readHosts(ctx, n.k, resolverFile)
	if err == nil {
		if text := resolverOf(old, connected); text != old {
			err = n.k.WriteFile(ctx, resolverFile, text)
		}
	}
	if err != nil {
		return []string{resolverFile + ": " + err.Error()}
	}
	return nil
}

// resolverFile says where a guest's resolver asks for names.
const resolverFile = "/etc/resolv.conf"

// ownResolver are the lines of it that belong to Ramet.
var ownResolver = "# ramet: the sandbox's network answers\nnameserver " + uplink.Nameserver.String() + "\n"

// resolverOf returns the contents of the resolver's file, which is old, for a sandbox that is
// connected or not. Only the lines that Ramet wrote come and go. They are not added to a file that
// names a server, because questions to any are answered.
func resolverOf(old string, connected bool) string {
	rest := strings.Replace(old, ownResolver, "", 1)
	if !connected || hasNameserver(rest) {
		return rest
	}
	return ownResolver + rest
}

func hasNameserver(text string) bool {
	for line := range strings.Lines(text) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "nameserver" {
			return true
		}
	}
	return false
}
