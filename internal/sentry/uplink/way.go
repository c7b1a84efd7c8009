package uplink

import (
	"net/netip"

	"gvisor.dev/gvisor/pkg/tcpip"

	"ramet.dev/ramet/internal/network/wire"
	"ramet.dev/ramet/internal/sentry/paired"
)

// way is the uplink for connections of TCP that need no stack: see package paired.
type way struct{ u *Uplink }

// Outside implements paired.Way.
func (w way) Outside(to tcpip.Address) (netip.Addr, bool) {
	addr := addrOf(to)
	return addr, addr.IsValid() && leaves(w.u.guest.NetStack(), to)
}

// Await implements paired.Way.
func (w way) Await(stop <-chan struct{}) bool { return w.u.awaitExchange(stop) != nil }

// BeginIO implements paired.Way.
func (w way) BeginIO() { w.u.gate.BeginIO() }

// EndIO implements paired.Way.
func (w way) EndIO() { w.u.gate.EndIO() }

// Dial implements paired.Way.
func (w way) Dial(to netip.AddrPort, answered func(paired.Answer)) paired.Flow {
	x := w.u.liveExchange()
	if x == nil {
		return nil
	}
	fl := x.beginAnswered(func(r reply) { answered(paired.Answer{Code: r.code, File: r.file}) })
	if fl == nil {
		return nil
	}
	m := wire.Message{Kind: wire.Dial, Flow: fl.id, Protocol: wire.TCP, Address: to.Addr(), Port: to.Port()}
	if err := x.ch.Send(&m, -1); err != nil && fl.giveUp() {
		fl.forget()
		return nil
	}
	return stream{fl} // if it could not be sent, the end of the exchange is the answer
}

// stream is a flow of TCP.
type stream struct{ fl *flow }

// GiveUp implements paired.Flow.
func (s stream) GiveUp() bool {
	if !s.fl.giveUp() {
		return false
	}
	s.fl.tell(wire.Closed)
	s.fl.forget()
	return true
}

// Ended implements paired.Flow.
func (s stream) Ended() <-chan struct{} { return s.fl.ended }

// WasReset implements paired.Flow.
func (s stream) WasReset() bool { return s.fl.wasReset }

// End implements paired.Flow.
func (s stream) End(reset bool) {
	if reset {
		s.fl.tell(wire.Reset)
	} else {
		s.fl.tell(wire.Closed)
	}
	s.fl.x.mu.Lock()
	s.fl.endLocked(false)
	s.fl.x.mu.Unlock()
	s.fl.forget()
}

// liveExchange returns the exchange, or nil if there is none at the moment.
func (u *Uplink) liveExchange() *exchange {
	u.mu.Lock()
	x := u.exchange
	u.mu.Unlock()
	if x == nil {
		return nil
	}
	select {
	case <-x.over:
		return nil
	default:
		return x
	}
}

// beginAnswered is begin for a flow whose verdict calls answered.
func (x *exchange) beginAnswered(answered func(reply)) *flow {
	fl := x.begin()
	if fl == nil {
		return nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.flows == nil {
		return nil
	}
	fl.answered = answered
	return fl
}

// giveUp reports whether the verdict has not come. Then nobody is called with it any more.
func (fl *flow) giveUp() bool {
	fl.x.mu.Lock()
	defer fl.x.mu.Unlock()
	waited := fl.answered != nil
	fl.answered = nil
	return waited
}
