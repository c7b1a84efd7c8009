package ports

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/socket"
	"gvisor.dev/gvisor/pkg/sentry/vfs"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/sentry/gate"
	"ramet.dev/ramet/internal/sentry/kern"
)

// maxPorts is how many ports are listed: as many as fit a packet with the
// longest commands that are shown.
const maxPorts = 256

// maxPortCommand is how much of a command line is shown with a port, in bytes.
const maxPortCommand = 64

// Ports are the ports of a sandbox, for the host side.
type Ports struct {
	k     *kern.Kernel
	gate  *gate.Gate
	conns *Conns
}

// New returns the ports of a guest. conns is saved with the kernel k under ConnsKey.
func New(k *kern.Kernel, g *gate.Gate, conns *Conns) *Ports {
	return &Ports{k: k, gate: g, conns: conns}
}

// List lists the TCP ports that processes of the sandbox listen on, and the UDP
// ports that they have bound, in order.
func (ps *Ports) List() []api.Port {
	ps.gate.BeginIO()
	defer ps.gate.EndIO()
	found := map[*vfs.FileDescription]*api.Port{}
	for _, record := range ps.k.ListSockets() {
		if p := ps.portOf(record.Sock); p != nil {
			found[record.Sock] = p
		}
	}
	if len(found) > 0 {
		ps.findOwners(found)
	}
	list := []api.Port{}
	for _, p := range found {
		list = append(list, *p)
	}
	slices.SortFunc(list, func(a, b api.Port) int {
		return cmp.Or(cmp.Compare(a.Port, b.Port), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Address, b.Address), cmp.Compare(a.PID, b.PID))
	})
	return list[:min(len(list), maxPorts)]
}

// portOf returns where a socket listens, or nil.
func (ps *Ports) portOf(file *vfs.FileDescription) *api.Port {
	s, ok := file.Impl().(socket.Socket)
	if !ok {
		return nil
	}
	family, kind, _ := s.Type() // which never change
	if family != linux.AF_INET && family != linux.AF_INET6 || !file.TryIncRef() {
		return nil // another kind, or it is being closed
	}
	defer file.DecRef(ps.k.TaskContext())
	protocol := "tcp"
	switch {
	case kind == linux.SOCK_DGRAM:
		protocol = "udp"
		if _, _, err := s.GetPeerName(nil); err == nil {
			return nil // connected to a peer
		}
	case kind != linux.SOCK_STREAM || s.State() != linux.TCP_LISTEN:
		return nil
	}
	name, _, err := s.GetSockName(nil)
	if err != nil {
		return nil
	}
	addr, ok := addressOf(name)
	if !ok || addr.Port() == 0 {
		return nil
	}
	return &api.Port{Port: int(addr.Port()), Protocol: protocol, Address: addr.Addr().String()}
}

func addressOf(name linux.SockAddr) (netip.AddrPort, bool) {
	port := func(be uint16) uint16 {
		return binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, be))
	}
	switch a := name.(type) {
	case *linux.SockAddrInet:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), port(a.Port)), true
	case *linux.SockAddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr).Unmap(), port(a.Port)), true
	}
	return netip.AddrPort{}, false
}

// findOwners notes the first process that has each socket open.
func (ps *Ports) findOwners(found map[*vfs.FileDescription]*api.Port) {
	ctx := ps.k.TaskContext()
	root := ps.k.RootPIDNamespace()
	groups := root.ThreadGroups()
	slices.SortFunc(groups, func(a, b *kernel.ThreadGroup) int {
		return cmp.Compare(root.IDOfThreadGroup(a), root.IDOfThreadGroup(b))
	})
	for _, tg := range groups {
		leader := tg.Leader()
		if leader == nil {
			continue
		}
		var table *kernel.FDTable
		leader.WithMuLocked(func(t *kernel.Task) {
			if table = t.FDTable(); table != nil && !table.TryIncRef() {
				table = nil // it has exited, and is waited for
			}
		})
		if table == nil {
			continue
		}
		command := ""
		for _, fd := range table.GetFDs(ctx) {
			file, _ := table.Get(fd)
			if file == nil {
				continue
			}
			if p := found[file]; p != nil && p.PID == 0 {
				if command == "" {
					command = ps.k.CommandOf(leader)
				}
				p.PID, p.Command = int(root.IDOfThreadGroup(tg)), command[:min(len(command), maxPortCommand)]
			}
			file.DecRef(ctx)
		}
		table.DecRef(ctx)
	}
}
