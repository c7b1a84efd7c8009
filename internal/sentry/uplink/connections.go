package uplink

import (
	"reflect"
	"slices"
	"unsafe"

	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/ports"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"

	"ramet.dev/ramet/internal/sentry/netsock"
	"ramet.dev/ramet/internal/sentry/paired"
)

// TakeConnections takes the connections to the outside out of a guest's stack until restore is
// called, and puts ends in their places that are lost. A child has no other end of any of them,
// so each would be saved for nothing: with what is queued in both directions, and as a hundred
// objects and more even when it is idle. The parent's go on; it sees nothing of this.
//
// Connections that are being made stay: a child sends their SYN again, to a gateway of its own.
//
// sockets returns those of the guest, others are the stacks of its other network namespaces. No task may run, and no
// packet may arrive, until restore has been called.
func TakeConnections(ctx context.Context, s *stack.Stack, sockets func() []*kernel.SocketRecord, others []*stack.Stack) (restore func()) {
	own := map[tcpip.Endpoint]bool{}
	for _, its := range append([]*stack.Stack{s}, others...) {
		for _, e := range its.RegisteredEndpoints() {
			if ep, ok := e.(tcpip.Endpoint); ok {
				own[ep] = true
			}
		}
	}
	taken := map[tcpip.Endpoint]*connection{}
	for _, ep := range outboundOf(s) {
		if c := takeConnection(s, ep); c != nil {
			taken[ep] = c
			own[ep] = false
		}
	}
	ending.Lock() // the outer stack goes on
	dangling := takeDangling(own)
	leave := func() {
		giveDanglingBack(dangling)
		ending.Unlock()
	}
	p := paired.Of(s)
	if len(taken) == 0 && (p == nil || p.Open() == 0) {
		return leave
	}
	var l netsock.Loser
	var portsBack []func()
	for _, record := range sockets() {
		socket, ok := netsock.Of(record)
		if !ok {
			continue
		}
		ep := socket.Endpoint()
		if e, ok := ep.(*paired.End); ok {
			if at, open := e.OpenAt(); open {
				l.Lose(ctx, socket, newLost(at.Addr, at.Port))
				portsBack = append(portsBack, takePort(s, e.Endpoint.(*tcp.Endpoint)))
				continue
			}
			ep = e.Endpoint
		}
		if c := taken[ep]; c != nil {
			l.Lose(ctx, socket, newLost(c.id.LocalAddress, c.id.LocalPort))
		}
	}
	return func() {
		l.Restore()
		for _, back := range portsBack {
			back()
		}
		for _, c := range taken {
			c.giveBack(s)
		}
		leave()
	}
}

// takeDangling takes the endpoints that are not the guest's own out of those that gVisor saves with a
// kernel because nothing else refers to them: they were closed, and have not ended. There is one list
// of them in a process, so those of the outer stack are in it as well.
func takeDangling(own map[tcpip.Endpoint]bool) (taken []*tcp.Endpoint) {
	for _, e := range tcpip.GetDanglingEndpoints() {
		if ep, ok := e.(*tcp.Endpoint); ok && !own[e] {
			tcpip.DeleteDanglingEndpoint(e)
			taken = append(taken, ep)
		}
	}
	return taken
}

// giveDanglingBack undoes takeDangling, but for those that have ended meanwhile.
func giveDanglingBack(taken []*tcp.Endpoint) {
	for _, ep := range taken {
		ep.LockUser()
		switch tcp.EndpointState(ep.State()) {
		case tcp.StateClose, tcp.StateError:
		default:
			tcpip.AddDanglingEndpoint(ep)
		}
		ep.UnlockUser()
	}
}

// outboundOf returns the ends of a guest's connections to the outside that have not ended, also
// those that are being made.
func outboundOf(s *stack.Stack) []*tcp.Endpoint {
	var list []*tcp.Endpoint
	for _, e := range s.RegisteredEndpoints() {
		ep, ok := e.(*tcp.Endpoint)
		if !ok || !alive(ep) {
			continue
		}
		info := ep.Info().(*stack.TransportEndpointInfo)
		if leaves(s, info.ID.RemoteAddress) {
			list = append(list, ep)
		}
	}
	return list
}

// questionsOf returns the sockets of a guest that are connected with a name server.
func questionsOf(s *stack.Stack) (ids []stack.TransportEndpointID) {
	for _, e := range s.RegisteredEndpoints() {
		ep, ok := e.(tcpip.Endpoint)
		if !ok {
			continue
		}
		info, ok := ep.Info().(*stack.TransportEndpointInfo)
		if ok && info.TransProto == header.UDPProtocolNumber && info.ID.RemotePort == dnsPort && leaves(s, info.ID.RemoteAddress) {
			ids = append(ids, info.ID)
		}
	}
	return ids
}

// leaves reports whether packets to an address leave the guest.
func leaves(s *stack.Stack, to tcpip.Address) bool {
	protocol := header.IPv4ProtocolNumber
	if to.Len() != header.IPv4AddressSize {
		protocol = header.IPv6ProtocolNumber
	} else if header.IsV4LoopbackAddress(to) {
		return false
	}
	return to.Len() > 0 && s.CheckLocalAddress(0, protocol, to) == 0 && !staysInside(s, protocol, to)
}

// staysInside reports whether packets to an address go by an interface that the guest has made.
func staysInside(s *stack.Stack, protocol tcpip.NetworkProtocolNumber, to tcpip.Address) bool {
	guests := func(r tcpip.Route) bool { return r.NIC > NIC && r.Destination.Contains(to) }
	if !slices.ContainsFunc(s.GetRouteTable(), guests) {
		return false
	}
	r, err := s.FindRoute(0, tcpip.Address{}, to, protocol, false)
	if err != nil {
		return false
	}
	defer r.Release()
	return r.OutgoingNIC() > NIC
}

// alive reports whether an endpoint is connected, or about to be.
func alive(ep *tcp.Endpoint) bool {
	switch tcp.EndpointState(ep.State()) {
	case tcp.StateConnecting, tcp.StateSynSent, tcp.StateSynRecv:
		return true
	}
	return connected(ep)
}

// connected is EndpointState.connected of gVisor.
func connected(ep *tcp.Endpoint) bool {
	switch tcp.EndpointState(ep.State()) {
	case tcp.StateEstablished, tcp.StateFinWait1, tcp.StateFinWait2, tcp.StateTimeWait, tcp.StateCloseWait, tcp.StateLastAck, tcp.StateClosing:
		return true
	}
	return false
}

// connection is an endpoint that was taken out of its stack.
type connection struct {
	ep          *tcp.Endpoint
	id          stack.TransportEndpointID
	reservation ports.Reservation
	reserved    bool
}

// takeConnection takes an endpoint from those that packets are delivered to, and from the ports
// that are in use. It returns nil for one that is not connected.
func takeConnection(s *stack.Stack, ep *tcp.Endpoint) *connection {
	id := ep.Info().(*stack.TransportEndpointInfo).ID
	ep.LockUser()
	defer ep.UnlockUser()
	f := fieldsOf(ep)
	if !connected(ep) || !*f.registered {
		return nil
	}
	c := &connection{ep: ep, id: id, reserved: *f.portReserved, reservation: ports.Reservation{
		Networks: *f.networks, Transport: tcp.ProtocolNumber, Addr: id.LocalAddress, Port: id.LocalPort,
		Flags: *f.flags, BindToDevice: *f.device, Dest: *f.destination,
	}}
	s.UnregisterTransportEndpoint(*f.networks, tcp.ProtocolNumber, id, ep, *f.flags, *f.device)
	if c.reserved {
		s.ReleasePort(c.reservation)
	}
	return c
}

// takePort takes the port of an endpoint that is bound from those in use, until giveBack is called: it
// is nobody's in a child.
func takePort(s *stack.Stack, ep *tcp.Endpoint) (giveBack func()) {
	id := ep.Info().(*stack.TransportEndpointInfo).ID
	ep.LockUser()
	defer ep.UnlockUser()
	f := fieldsOf(ep)
	if !*f.portReserved {
		return func() {}
	}
	r := ports.Reservation{
		Networks: *f.networks, Transport: tcp.ProtocolNumber, Addr: id.LocalAddress, Port: id.LocalPort,
		Flags: *f.flags, BindToDevice: *f.device, Dest: *f.destination,
	}
	s.ReleasePort(r)
	return func() {
		if !s.ReserveTuple(r) {
			log.Warningf("Port %d of a connection cannot be reserved again", r.Port)
		}
	}
}

// giveBack undoes takeConnection, unless a timer has ended the connection meanwhile.
func (c *connection) giveBack(s *stack.Stack) {
	c.ep.LockUser()
	defer c.ep.UnlockUser()
	f := fieldsOf(c.ep)
	if !*f.registered {
		return
	}
	r := c.reservation
	if c.reserved && *f.portReserved && !s.ReserveTuple(r) {
		log.Warningf("Port %d of a connection cannot be reserved again", r.Port)
	}
	if err := s.RegisterTransportEndpoint(r.Networks, tcp.ProtocolNumber, c.id, c.ep, r.Flags, r.BindToDevice); err != nil {
		log.Warningf("A connection to %s cannot be registered again: %s", c.id.RemoteAddress, err)
	}
}

// fields are those of an endpoint that say how it is registered. gVisor has no accessors for
// them. They are guarded by LockUser.
type fields struct {
	registered, portReserved *bool
	networks                 *[]tcpip.NetworkProtocolNumber
	flags                    *ports.Flags
	device                   *tcpip.NICID
	destination              *tcpip.FullAddress
}

// offsets are where an endpoint has its fields.
var offsets = struct{ registered, portReserved, networks, flags, device, destination uintptr }{
	offsetOf[bool]("isRegistered"), offsetOf[bool]("isPortReserved"), offsetOf[[]tcpip.NetworkProtocolNumber]("effectiveNetProtos"),
	offsetOf[ports.Flags]("boundPortFlags"), offsetOf[tcpip.NICID]("boundBindToDevice"), offsetOf[tcpip.FullAddress]("boundDest"),
}

// offsetOf returns the offset of an endpoint's field of type T, or netsock.NoField.
func offsetOf[T any](name string) uintptr {
	return netsock.OffsetIn[T](reflect.TypeFor[tcp.Endpoint](), name)
}

func fieldsOf(ep *tcp.Endpoint) fields {
	at := func(offset uintptr) unsafe.Pointer { return unsafe.Add(unsafe.Pointer(ep), offset) }
	return fields{
		registered: (*bool)(at(offsets.registered)), portReserved: (*bool)(at(offsets.portReserved)),
		networks: (*[]tcpip.NetworkProtocolNumber)(at(offsets.networks)), flags: (*ports.Flags)(at(offsets.flags)),
		device: (*tcpip.NICID)(at(offsets.device)), destination: (*tcpip.FullAddress)(at(offsets.destination)),
	}
}
