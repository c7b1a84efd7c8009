package netspaces

import (
	"cmp"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"sync/atomic"
	"unsafe"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/ethernet"
	"gvisor.dev/gvisor/pkg/tcpip/link/packetsocket"
	"gvisor.dev/gvisor/pkg/tcpip/link/veth"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/sentry/uplink"
)

// The kinds of links.
const (
	kindLoopback = "lo"
	kindUplink   = "uplink" // to the outside; the sandbox's own stack has it
	kindVeth     = "veth"
	kindBridge   = "bridge"
)

// defaultMTU is what gVisor gives new interfaces.
const defaultMTU = 1500

// stackState describes a stack without its sockets.
type stackState struct {
	Interfaces []netInterface
	Routes     []netRoute
	Counters   []byte // of a stack of a namespace
}

type netInterface struct {
	ID        tcpip.NICID
	Name      string
	Link      string // one of the kinds of links
	Shown     string // the kind that programs see
	Address   []byte // of the link
	MTU       uint32
	Addresses []netip.Prefix
	Bridge    tcpip.NICID `json:",omitzero"` // that it is a port of
	Peer      end         `json:",omitzero"` // of a veth
}

// end is an interface of one of the stacks that are described together.
type end struct {
	Stack int
	ID    tcpip.NICID
}

type netRoute struct {
	Destination     netip.Prefix
	Gateway, Source netip.Addr
	ID              tcpip.NICID
	MTU             uint32 `json:",omitzero"`
}

// describe returns the states of stacks, of which the first is the sandbox's own.
func describe(stacks []*stack.Stack) ([]stackState, error) {
	states, ends := make([]stackState, len(stacks)), map[*veth.Endpoint]end{}
	for i, s := range stacks {
		for id, info := range s.NICInfo() {
			nic, err := s.GetNICByID(id)
			if err != nil {
				continue // it was removed meanwhile
			}
			ni := netInterface{
				ID: id, Name: info.Name, Link: linkOf(nic.NetworkLinkEndpoint), Shown: info.Kind, Address: []byte(info.LinkAddress),
				MTU: info.MTU, Bridge: info.Primary,
			}
			switch ni.Link {
			case kindVeth:
				ends[vethOf(nic.NetworkLinkEndpoint)] = end{i, id}
			case kindUplink:
				if i == 0 {
					break
				}
				fallthrough
			case "":
				return nil, api.Errorf(api.CodeUnsupported, "interface %s cannot be saved outside of the sandbox's own network namespace: move it back, or end that namespace", info.Name)
			}
			for _, a := range info.ProtocolAddresses {
				ni.Addresses = append(ni.Addresses, netip.PrefixFrom(addrOf(a.AddressWithPrefix.Address), a.AddressWithPrefix.PrefixLen))
			}
			states[i].Interfaces = append(states[i].Interfaces, ni)
		}
		slices.SortFunc(states[i].Interfaces, func(a, b netInterface) int { return cmp.Compare(a.ID, b.ID) })
		for _, r := range s.GetRouteTable() {
			states[i].Routes = append(states[i].Routes, netRoute{
				Destination: netip.PrefixFrom(addrOf(r.Destination.ID()), r.Destination.Prefix()),
				Gateway:     addrOf(r.Gateway), Source: addrOf(r.SourceHint), ID: r.NIC, MTU: r.MTU,
			})
		}
	}
	for e, at := range ends {
		state := &states[at.Stack]
		n := slices.IndexFunc(state.Interfaces, func(ni netInterface) bool { return ni.ID == at.ID })
		peer, ok := ends[peerOf(e)]
		if !ok { // the namespace that has the peer is going away, and takes both with it
			state.Interfaces = slices.Delete(state.Interfaces, n, n+1)
			continue
		}
		state.Interfaces[n].Peer = peer
	}
	return states, nil
}

// linkOf returns the kind of a link, or "".
func linkOf(link stack.NetworkLinkEndpoint) string {
	switch e := link.(type) {
	case *stack.BridgeEndpoint:
		return kindBridge
	case *ethernet.Endpoint:
		return kindLoopback
	default:
		if uplink.IsLink(e) {
			return kindUplink
		}
		if vethOf(e) != nil {
			return kindVeth
		}
		return ""
	}
}

// vethOf returns the veth below an interface, or nil.
func vethOf(link stack.NetworkLinkEndpoint) *veth.Endpoint {
	p, ok := link.(*packetsocket.Endpoint)
	if !ok {
		return nil
	}
	e, ok := childOf(&p.Endpoint).(*ethernet.Endpoint)
	if !ok {
		return nil
	}
	switch v := childOf(&e.Endpoint).(type) {
	case *veth.Endpoint:
		return v
	case *remade:
		return v.Endpoint
	}
	return nil
}

// remade is a veth of a kernel that was loaded. As long as restoring is set it does not segment: gVisor would forget
// the segment size of each connection that it restores, and divide by it.
type remade struct {
	*veth.Endpoint
	restoring *atomic.Bool
}

// SupportedGSO implements stack.GSOEndpoint.
func (r *remade) SupportedGSO() stack.SupportedGSO {
	if r.restoring.Load() {
		return stack.GSONotSupported
	}
	return r.Endpoint.SupportedGSO()
}

// childOf returns the link below a nested one. gVisor has no accessor for it, nor for the peer of a veth.
func childOf(nested any) stack.LinkEndpoint {
	return *(*stack.LinkEndpoint)(unsafe.Pointer(reflect.ValueOf(nested).Elem().FieldByName("child").UnsafeAddr()))
}

func peerOf(e *veth.Endpoint) *veth.Endpoint {
	return *(**veth.Endpoint)(unsafe.Pointer(reflect.ValueOf(e).Elem().FieldByName("peer").UnsafeAddr()))
}

func addrOf(a tcpip.Address) netip.Addr {
	addr, _ := netip.AddrFromSlice(a.AsSlice())
	return addr
}

func addressOf(a netip.Addr) tcpip.Address { return tcpip.AddrFromSlice(a.AsSlice()) }

func prefixOf(p netip.Prefix) tcpip.AddressWithPrefix {
	return tcpip.AddressWithPrefix{Address: addressOf(p.Addr()), PrefixLen: p.Bits()}
}

// rebuild makes the interfaces that states describe in stacks, which have their loopback interfaces, and the first
// perhaps that to the outside, which has the addresses and routes of a new sandbox. restoring is set until the
// connections are restored.
func rebuild(stacks []*stack.Stack, states []stackState, restoring *atomic.Bool) error {
	made := map[end]*veth.Endpoint{}
	for i, state := range states {
		for _, ni := range state.Interfaces {
			if err := ni.make(stacks[i], end{i, ni.ID}, made, restoring); err != nil {
				return fmt.Errorf("make interface %s again: %w", ni.Name, err)
			}
		}
	}
	for i, state := range states {
		state.setRoutes(stacks[i])
		for _, ni := range state.Interfaces {
			reserve(stacks[i], ni.ID)
			if ni.Bridge == 0 || !stacks[i].HasNIC(ni.ID) {
				continue
			}
			if err := stacks[i].SetNICCoordinator(ni.ID, ni.Bridge); err != nil {
				return fmt.Errorf("make interface %s a port again: %s", ni.Name, err)
			}
		}
	}
	return nil
}

// make makes the interface in s. made has the ends of pairs whose other end was made.
func (ni *netInterface) make(s *stack.Stack, at end, made map[end]*veth.Endpoint, restoring *atomic.Bool) error {
	var link stack.LinkEndpoint
	switch ni.Link {
	case kindBridge:
		link = stack.NewBridgeEndpoint(defaultMTU)
	case kindVeth:
		e := made[at]
		if e == nil {
			e, made[ni.Peer] = veth.NewPair(defaultMTU, veth.DefaultBacklogSize)
		}
		link = packetsocket.New(ethernet.New(&remade{e, restoring}))
	default:
		if !s.HasNIC(ni.ID) {
			return nil // the sandbox has no way to the outside, unlike its parent
		}
	}
	if link != nil {
		// Programs may have given two of them one name, which a new one must not have.
		if err := s.CreateNICWithOptions(ni.ID, link, stack.NICOptions{Kind: ni.Shown}); err != nil {
			return fmt.Errorf("%s", err)
		}
	}
	info, _ := s.SingleNICInfo(ni.ID)
	var errs []tcpip.Error
	if ni.Name != info.Name {
		errs = append(errs, s.SetNICName(ni.ID, ni.Name))
	}
	if ni.MTU != info.MTU {
		mtu := ni.MTU
		if ni.Link != kindUplink {
			mtu += header.EthernetMinimumSize // gVisor's links subtract it
		}
		errs = append(errs, s.SetNICMTU(ni.ID, mtu))
	}
	if a := tcpip.LinkAddress(ni.Address); a != info.LinkAddress {
		errs = append(errs, s.SetNICAddress(ni.ID, a))
	}
	for _, a := range info.ProtocolAddresses {
		if p := a.AddressWithPrefix; !slices.Contains(ni.Addresses, netip.PrefixFrom(addrOf(p.Address), p.PrefixLen)) {
			errs = append(errs, s.RemoveAddress(ni.ID, p.Address))
		}
	}
	for _, p := range ni.Addresses {
		a := tcpip.ProtocolAddress{Protocol: ipv4.ProtocolNumber, AddressWithPrefix: prefixOf(p)}
		if p.Addr().Is6() {
			a.Protocol = ipv6.ProtocolNumber
		}
		if !slices.Contains(info.ProtocolAddresses, a) {
			errs = append(errs, s.AddProtocolAddress(ni.ID, a, stack.AddressProperties{}))
		}
	}
	for _, err := range errs {
		if err != nil {
			return fmt.Errorf("%s", err)
		}
	}
	return nil
}

// setRoutes gives s the routes. Those of an interface to the outside that was not there stay.
func (state *stackState) setRoutes(s *stack.Stack) {
	hadUplink := slices.ContainsFunc(state.Interfaces, func(ni netInterface) bool { return ni.Link == kindUplink })
	var table []tcpip.Route
	for _, r := range state.Routes {
		if s.HasNIC(r.ID) {
			table = append(table, tcpip.Route{
				Destination: prefixOf(r.Destination).Subnet(), Gateway: addressOf(r.Gateway), SourceHint: addressOf(r.Source), NIC: r.ID, MTU: r.MTU,
			})
		}
	}
	for _, r := range s.GetRouteTable() {
		if r.NIC == uplink.NIC && !hadUplink {
			table = append(table, r)
		}
	}
	s.SetRouteTable(table)
}
