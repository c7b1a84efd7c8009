package netspaces

import (
	gocontext "context"
	"net/netip"
	_ "unsafe" // for go:linkname

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/socket/netlink"
	"gvisor.dev/gvisor/pkg/sentry/socket/netlink/nlmsg"
	"gvisor.dev/gvisor/pkg/sentry/socket/netlink/route"
	"gvisor.dev/gvisor/pkg/state"
	"gvisor.dev/gvisor/pkg/syserr"
)

// netlinkProtocols has what makes the protocol of a socket of netlink.
//
//go:linkname netlinkProtocols gvisor.dev/gvisor/pkg/sentry/socket/netlink.protocols
var netlinkProtocols map[int]netlink.Provider

// Replace puts the protocol of this package in the place of gVisor's for interfaces and routes. Call it once per process.
func Replace() { netlinkProtocols[linux.NETLINK_ROUTE] = newRoutes }

func newRoutes(t *kernel.Task) (netlink.Protocol, *syserr.Error) {
	p, err := route.NewProtocol(t)
	if err != nil {
		return nil, err
	}
	return &routes{p.(*route.Protocol)}, nil
}

// routes is gVisor's protocol for interfaces and routes. On Linux, lo has no address in a new namespace until a program
// sets it up or adds one, as bubblewrap does. Here it has them at once, so programs may add them again.
type routes struct{ *protocol }

type protocol = route.Protocol // whose name is also that of a method

// ProcessMessage implements netlink.Protocol.
func (r *routes) ProcessMessage(ctx context.Context, s *netlink.Socket, msg *nlmsg.Message, ms *nlmsg.MessageSet) *syserr.Error {
	err := r.protocol.ProcessMessage(ctx, s, msg, ms)
	if err == syserr.ErrExists && msg.Header().Type == linux.RTM_NEWADDR && !s.NetworkNamespace().IsRoot() && addsLoopback(msg) {
		return nil
	}
	return err
}

// addsLoopback reports whether a message adds an address to lo that it has from the beginning.
func addsLoopback(msg *nlmsg.Message) bool {
	var ifa linux.InterfaceAddrMessage
	attrs, ok := msg.GetData(&ifa)
	if !ok || ifa.Index != uint32(loopbackNIC) {
		return false
	}
	for !attrs.Empty() {
		header, value, rest, ok := attrs.ParseFirst()
		if !ok {
			return false
		}
		if attrs = rest; header.Type != linux.IFA_LOCAL {
			continue
		}
		a, _ := netip.AddrFromSlice(value)
		return a == netip.AddrFrom4([4]byte{127, 0, 0, 1}) || a == netip.IPv6Loopback()
	}
	return false
}

func (*routes) StateTypeName() string                                { return "ramet.dev/ramet/internal/sentry/netspaces.routes" }
func (*routes) StateFields() []string                                { return []string{"protocol"} }
func (r *routes) StateSave(sink state.Sink)                          { sink.Save(0, &r.protocol) }
func (r *routes) StateLoad(_ gocontext.Context, source state.Source) { source.Load(0, &r.protocol) }

func init() { state.Register((*routes)(nil)) }
