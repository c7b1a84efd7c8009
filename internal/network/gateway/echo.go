package gateway

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/network/policy"
	"ramet.dev/ramet/internal/network/wire"
)

// echoTimeout bounds an echo.
const echoTimeout = 5 * time.Second

// The protocol numbers by which package icmp parses answers.
const (
	icmp4 = 1
	icmp6 = 58
)

// echo answers an echo of the guest. Where the host lets no process ask for one without privileges
// (net.ipv4.ping_group_range), what is allowed is answered as if it had come back.
func (s *sandbox) echo(id uint32, addr netip.Addr, payload []byte) {
	q := policy.Question{Protocol: policy.Echo, Address: addr, Names: s.names.Of(addr)}
	p := s.current()
	d := p.Judge(&q)
	e := api.NetworkLogEntry{Flow: uint64(id), Address: addr.String(), Protocol: "echo", Verdict: api.NetworkAllowed, Rule: d.String()}
	if len(q.Names) > 0 {
		e.Name = q.Names[0]
	}
	m := &wire.Message{Kind: wire.Echoed, Flow: id, Payload: payload}
	if !d.Allowed {
		e.Verdict, e.WouldAllow = api.NetworkDenied, p.WouldAllow(&q)
		m = &wire.Message{Kind: wire.Verdict, Flow: id, Code: wire.CodeProhibited}
	}
	s.log(e)
	if d.Allowed && s.g.at(addr) == nil {
		if err := ping(s.ctx, addr, payload); err != nil && !errors.Is(err, errNoPing) {
			m = &wire.Message{Kind: wire.Verdict, Flow: id, Code: codeOf(err)}
		}
	}
	_ = s.send(m, -1) // the channel has ended
}

// errNoPing says that the host has no sockets for echoes.
var errNoPing = errors.New("the host lets this process send no echo")

// ping sends an echo and waits for the answer. The kernel chooses the identifier, and passes only
// answers to it on.
func ping(ctx context.Context, addr netip.Addr, payload []byte) error {
	network, kind, proto := "udp4", icmp.Type(ipv4.ICMPTypeEcho), icmp4
	if addr.Is6() {
		network, kind, proto = "udp6", ipv6.ICMPTypeEchoRequest, icmp6
	}
	c, err := icmp.ListenPacket(network, "")
	if err != nil {
		return errNoPing
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) }) // it is closed
	defer stop()
	if err := c.SetDeadline(time.Now().Add(echoTimeout)); err != nil {
		return err
	}
	b, err := (&icmp.Message{Type: kind, Body: &icmp.Echo{Seq: 1, Data: payload}}).Marshal(nil)
	if err != nil {
		return err
	}
	if _, err := c.WriteTo(b, &net.UDPAddr{IP: addr.AsSlice()}); err != nil {
		return err
	}
	b = make([]byte, len(b)+128)
	for {
		n, _, err := c.ReadFrom(b)
		if err != nil {
			return err
		}
		m, err := icmp.ParseMessage(proto, b[:n])
		if err == nil && (m.Type == ipv4.ICMPTypeEchoReply || m.Type == ipv6.ICMPTypeEchoReply) {
			return nil
		}
	}
}
