package uplink

import (
	"context"
	"encoding/binary"
	"io"
	"sync/atomic"

	"gvisor.dev/gvisor/pkg/state"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"
)

// lost is the end, in a child, of a connection that only its parent has. It is what an end is on
// Linux after a reset: the reset is told once, then nothing comes and nothing can be sent.
type lost struct {
	tcpip.DefaultSocketOptionsHandler
	local string // address and port, as few objects as there can be
	told  bool
	now   atomic.Bool // told, from the first use on; not saved

	options tcpip.SocketOptions // not saved
}

func newLost(addr tcpip.Address, port uint16) *lost {
	return &lost{local: string(binary.BigEndian.AppendUint16(addr.AsSlice(), port))}
}

// tell returns the reset, once.
func (l *lost) tell(then tcpip.Error) tcpip.Error {
	if !l.now.Swap(true) {
		return &tcpip.ErrConnectionReset{}
	}
	return then
}

// Close implements tcpip.Endpoint.
func (*lost) Close() {}

// Abort implements tcpip.Endpoint.
func (*lost) Abort() {}

// Read implements tcpip.Endpoint.
func (l *lost) Read(io.Writer, tcpip.ReadOptions) (tcpip.ReadResult, tcpip.Error) {
	return tcpip.ReadResult{}, l.tell(&tcpip.ErrClosedForReceive{})
}

// Write implements tcpip.Endpoint.
func (l *lost) Write(tcpip.Payloader, tcpip.WriteOptions) (int64, tcpip.Error) {
	return 0, l.tell(&tcpip.ErrClosedForSend{})
}

// Connect implements tcpip.Endpoint.
func (l *lost) Connect(tcpip.FullAddress) tcpip.Error { return l.tell(&tcpip.ErrConnectionAborted{}) }

// Disconnect implements tcpip.Endpoint.
func (*lost) Disconnect() tcpip.Error { return &tcpip.ErrNotSupported{} }

// Shutdown implements tcpip.Endpoint.
func (*lost) Shutdown(tcpip.ShutdownFlags) tcpip.Error { return &tcpip.ErrNotConnected{} }

// Listen implements tcpip.Endpoint.
func (*lost) Listen(int) tcpip.Error { return &tcpip.ErrInvalidEndpointState{} }

// Accept implements tcpip.Endpoint.
func (*lost) Accept(*tcpip.FullAddress) (tcpip.Endpoint, *waiter.Queue, tcpip.Error) {
	return nil, nil, &tcpip.ErrInvalidEndpointState{}
}

// Bind implements tcpip.Endpoint.
func (*lost) Bind(tcpip.FullAddress) tcpip.Error { return &tcpip.ErrAlreadyBound{} }

// GetLocalAddress implements tcpip.Endpoint.
func (l *lost) GetLocalAddress() (tcpip.FullAddress, tcpip.Error) {
	n := len(l.local) - 2
	return tcpip.FullAddress{Addr: tcpip.AddrFromSlice([]byte(l.local[:n])), Port: binary.BigEndian.Uint16([]byte(l.local[n:]))}, nil
}

// GetRemoteAddress implements tcpip.Endpoint.
func (*lost) GetRemoteAddress() (tcpip.FullAddress, tcpip.Error) {
	return tcpip.FullAddress{}, &tcpip.ErrNotConnected{}
}

// Readiness implements tcpip.Endpoint. It is ready for everything.
func (l *lost) Readiness(mask waiter.EventMask) waiter.EventMask {
	ready := waiter.ReadableEvents | waiter.WritableEvents | waiter.EventHUp | waiter.EventRdHUp
	if !l.now.Load() {
		ready |= waiter.EventErr
	}
	return ready & mask
}

// SetSockOpt implements tcpip.Endpoint.
func (*lost) SetSockOpt(tcpip.SettableSocketOption) tcpip.Error { return nil }

// SetSockOptInt implements tcpip.Endpoint.
func (*lost) SetSockOptInt(tcpip.SockOptInt, int) tcpip.Error { return nil }

// GetSockOpt implements tcpip.Endpoint.
func (*lost) GetSockOpt(opt tcpip.GettableSocketOption) tcpip.Error {
	if info, ok := opt.(*tcpip.TCPInfoOption); ok {
		*info = tcpip.TCPInfoOption{State: tcpip.EndpointState(tcp.StateError)}
	}
	return nil
}

// GetSockOptInt implements tcpip.Endpoint.
func (*lost) GetSockOptInt(tcpip.SockOptInt) (int, tcpip.Error) { return 0, nil }

// State implements tcpip.Endpoint.
func (*lost) State() uint32 { return uint32(tcp.StateError) }

// ModerateRecvBuf implements tcpip.Endpoint.
func (*lost) ModerateRecvBuf(int) {}

// Info implements tcpip.Endpoint.
func (*lost) Info() tcpip.EndpointInfo {
	return &stack.TransportEndpointInfo{TransProto: tcp.ProtocolNumber}
}

// Stats implements tcpip.Endpoint.
func (*lost) Stats() tcpip.EndpointStats { return &tcp.Stats{} }

// SetOwner implements tcpip.Endpoint.
func (*lost) SetOwner(tcpip.PacketOwner) {}

// LastError implements tcpip.Endpoint.
func (l *lost) LastError() tcpip.Error { return l.tell(nil) }

// SocketOptions implements tcpip.Endpoint.
func (l *lost) SocketOptions() *tcpip.SocketOptions { return &l.options }

// noOptions answers what an end asks its stack for when options are set.
type noOptions struct{}

// Option implements tcpip.StackHandler.
func (noOptions) Option(any) tcpip.Error { return &tcpip.ErrUnknownProtocolOption{} }

// TransportProtocolOption implements tcpip.StackHandler.
func (noOptions) TransportProtocolOption(tcpip.TransportProtocolNumber, tcpip.GettableTransportProtocolOption) tcpip.Error {
	return &tcpip.ErrUnknownProtocolOption{}
}

// lostBuffer is how large the buffers of a lost end may be said to be.
const lostBuffer = 4 << 20

// The methods below are what gVisor's state package asks of saved types.

// StateTypeName implements state.Type.
func (*lost) StateTypeName() string { return "ramet.dev/ramet/internal/sentry/uplink.lost" }

// StateFields implements state.Type.
func (*lost) StateFields() []string { return []string{"local", "told"} }

// StateSave implements state.SaverLoader.
func (l *lost) StateSave(sink state.Sink) {
	l.told = l.now.Load()
	sink.Save(0, &l.local)
	sink.Save(1, &l.told)
}

// StateLoad implements state.SaverLoader.
func (l *lost) StateLoad(_ context.Context, src state.Source) {
	src.Load(0, &l.local)
	src.Load(1, &l.told)
	src.AfterLoad(func() { l.now.Store(l.told) })
	l.options.InitHandler(l, noOptions{},
		func(tcpip.StackHandler) tcpip.SendBufferSizeOption {
			return tcpip.SendBufferSizeOption{Min: 1, Default: lostBuffer, Max: lostBuffer}
		},
		func(tcpip.StackHandler) tcpip.ReceiveBufferSizeOption {
			return tcpip.ReceiveBufferSizeOption{Min: 1, Default: lostBuffer, Max: lostBuffer}
		})
}

func init() { state.Register((*lost)(nil)) }
