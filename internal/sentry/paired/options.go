package paired

import (
	"context"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/state"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
)

// GetSockOpt implements tcpip.Endpoint.
func (e *End) GetSockOpt(opt tcpip.GettableSocketOption) tcpip.Error {
	if info, ok := opt.(*tcpip.TCPInfoOption); ok && e.pair.Load() != nil {
		*info = tcpip.TCPInfoOption{State: tcpip.EndpointState(e.State())}
		return nil
	}
	return e.Endpoint.GetSockOpt(opt)
}

// GetSockOptInt implements tcpip.Endpoint.
func (e *End) GetSockOptInt(opt tcpip.SockOptInt) (int, tcpip.Error) {
	if p := e.pair.Load(); p != nil {
		switch opt {
		case tcpip.ReceiveQueueSizeOption:
			return p.queued(), nil
		case tcpip.SendQueueSizeOption:
			return 0, nil
		}
	}
	return e.Endpoint.GetSockOptInt(opt)
}

// ModerateRecvBuf implements tcpip.Endpoint.
func (e *End) ModerateRecvBuf(n int) {
	if e.pair.Load() == nil {
		e.Endpoint.ModerateRecvBuf(n)
	}
}

// LastError implements tcpip.Endpoint.
func (e *End) LastError() tcpip.Error {
	if p := e.pair.Load(); p != nil {
		return p.tellReset(nil)
	}
	if _, err := e.idle(); err != nil {
		return err
	}
	return e.Endpoint.LastError()
}

// SocketOptions implements tcpip.Endpoint. Endpoints tell SO_ERROR by their options, of which gVisor's
// makes itself the teller when it is made or restored.
func (e *End) SocketOptions() *tcpip.SocketOptions {
	opts := e.Endpoint.SocketOptions()
	if s := e.tcp.stack.Load(); s != nil {
		e.hooked.Do(func() {
			opts.InitHandler(&teller{e.Endpoint.(tcpip.SocketOptionsHandler), e}, s, tcp.GetTCPSendBufferLimits, tcp.GetTCPReceiveBufferLimits)
		})
	}
	return opts
}

// teller is the handler of the options of gVisor's endpoint, but for the last error.
type teller struct {
	tcpip.SocketOptionsHandler
	end *End
}

// LastError implements tcpip.SocketOptionsHandler.
func (t *teller) LastError() tcpip.Error { return t.end.LastError() }

// The methods below are what gVisor's state package asks of saved types. An endpoint that is restored
// makes itself the handler of its options.

// StateTypeName implements state.Type.
func (*teller) StateTypeName() string { return "ramet.dev/ramet/internal/sentry/paired.teller" }

// StateFields implements state.Type.
func (*teller) StateFields() []string { return []string{"SocketOptionsHandler", "end"} }

// StateSave implements state.SaverLoader.
func (t *teller) StateSave(sink state.Sink) {
	sink.Save(0, &t.SocketOptionsHandler)
	sink.Save(1, &t.end)
}

// StateLoad implements state.SaverLoader.
func (t *teller) StateLoad(_ context.Context, src state.Source) {
	src.Load(0, &t.SocketOptionsHandler)
	src.Load(1, &t.end)
}

func init() { state.Register((*teller)(nil)) }

// queued returns how many bytes can be read.
func (p *pair) queued() int {
	n, err := unix.IoctlGetInt(p.fd, unix.TIOCINQ) // FIONREAD
	if err != nil {
		return 0
	}
	return n
}
