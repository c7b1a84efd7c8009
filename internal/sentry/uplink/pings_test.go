package uplink

import (
	"bytes"
	"fmt"
	"net/netip"
	"sync/atomic"
	"testing"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/transport/icmp"
	"gvisor.dev/gvisor/pkg/waiter"

	"ramet.dev/ramet/internal/network/wire"
	"ramet.dev/ramet/internal/polltest"
)

// TestDeniedEchoes pings with sockets that Linux tells errors, and with one that it tells none.
func TestDeniedEchoes(t *testing.T) {
	b := newSandbox(t)
	var code atomic.Int32
	b.connect(&gateway{judge: func(m wire.Message) (wire.Code, bool) { return wire.Code(code.Load()), true }})
	for _, c := range []struct {
		to         netip.AddrPort
		code       wire.Code
		kind, said byte
		err        tcpip.Error
	}{
		{outside, wire.CodeProhibited, 3, 13, &tcpip.ErrHostUnreachable{}},
		{outside, wire.CodeHostUnreachable, 3, 1, &tcpip.ErrHostUnreachable{}},
		{outside, wire.CodeNetUnreachable, 3, 0, &tcpip.ErrNetworkUnreachable{}},
		{outside6, wire.CodeProhibited, 1, 1, &tcpip.ErrHostUnreachable{}},
		{outside6, wire.CodeHostUnreachable, 1, 3, &tcpip.ErrHostUnreachable{}},
		{outside6, wire.CodeNetUnreachable, 1, 0, &tcpip.ErrNetworkUnreachable{}},
	} {
		code.Store(int32(c.code))
		addr, network := full(netip.AddrPortFrom(c.to.Addr(), 0))
		transport, request := icmp.ProtocolNumber4, byte(header.ICMPv4Echo)
		if c.to.Addr().Is6() {
			transport, request = icmp.ProtocolNumber6, byte(header.ICMPv6EchoRequest)
		}
		var ends []*end
		for range 3 {
			e := newOuterEnd()
			ep, terr := b.s.NewEndpoint(transport, network, &e.wq)
			if terr != nil {
				t.Fatal(terr)
			}
			e.begin(ep)
			ends = append(ends, e)
		}
		connected, queue, plain := ends[0], ends[1], ends[2]
		if err := connected.ep.Connect(addr); err != nil {
			t.Fatal(err)
		}
		queue.ep.SocketOptions().SetIPv4RecvError(network == ipv4.ProtocolNumber)
		queue.ep.SocketOptions().SetIPv6RecvError(network == ipv6.ProtocolNumber)
		request8 := []byte{request, 0, 0, 0, 0, 0, 0, 7}
		for _, e := range []*end{plain, queue, connected} {
			opts := tcpip.WriteOptions{To: &addr}
			if e == connected {
				opts.To = nil
			}
			if _, err := e.ep.Write(bytes.NewReader(request8), opts); err != nil {
				t.Fatal(err)
			}
		}
		for _, e := range []*end{queue, connected} {
			polltest.Eventually(t, timeout, "an error of a ping to "+c.to.Addr().String(), func() bool { return e.ep.Readiness(waiter.EventErr) != 0 })
			if _, err := e.ep.Read(&bytes.Buffer{}, tcpip.ReadOptions{}); fmt.Sprint(err) != fmt.Sprint(c.err) {
				t.Errorf("%v, code %d: the error is %v, want %v", c.to.Addr(), c.code, err, c.err)
			}
		}
		if _, err := connected.ep.Read(&bytes.Buffer{}, tcpip.ReadOptions{}); fmt.Sprint(err) != fmt.Sprint(&tcpip.ErrWouldBlock{}) {
			t.Errorf("%v: the error is told twice, then it is %v", c.to.Addr(), err)
		}
		if _, err := plain.ep.Read(&bytes.Buffer{}, tcpip.ReadOptions{}); fmt.Sprint(err) != fmt.Sprint(&tcpip.ErrWouldBlock{}) {
			t.Errorf("%v: a socket that asks for no errors is told %v", c.to.Addr(), err)
		}
		queued := queue.ep.SocketOptions().DequeueErr()
		if queued == nil || queued.Cause.Type() != c.kind || queued.Cause.Code() != c.said || queued.Dst.Addr != addr.Addr {
			t.Fatalf("%v: the queue of errors has %+v", c.to.Addr(), queued)
		}
		if quoted := queued.Payload.AsSlice(); quoted[0] != request || quoted[7] != 7 {
			t.Errorf("%v: the error is about % x", c.to.Addr(), quoted)
		}
		for _, e := range ends {
			e.Close()
		}
	}
}
