package uplink

import (
	"bytes"
	"errors"
	"os"
	"sync"

	"ramet.dev/ramet/internal/network/wire"
)

// exchange is a channel to the gateway, with what is under way on it. It ends with the channel:
// then all its flows are broken.
type exchange struct {
	ch   *wire.Channel
	over chan struct{} // closed when it has ended

	mu    sync.Mutex
	last  uint32
	flows map[uint32]*flow // nil when it has ended
}

// flow is a number on the channel, and what the gateway has said about it.
type flow struct {
	x      *exchange
	id     uint32
	answer chan reply // has room for one
	// answered is called with the verdict in place of answer, in a goroutine of its own and once, also
	// when the exchange ends; nil for most flows. It is guarded by x.mu.
	answered func(reply)
	// ended is closed once the gateway has said how its side ended. wasReset is valid then.
	ended    chan struct{}
	wasReset bool
}

// reply is the answer to a request. Its owner closes the file, which is nil for most.
type reply struct {
	kind    wire.Kind
	code    wire.Code
	payload []byte
	file    *os.File
}

// errNoGateway says that the channel has ended.
var errNoGateway = errors.New("there is no gateway")

func newExchange(channel *os.File) (*exchange, error) {
	ch, err := wire.SentryChannel(channel)
	if err != nil {
		return nil, err
	}
	return &exchange{ch: ch, over: make(chan struct{}), flows: map[uint32]*flow{}}, nil
}

// serve takes messages until the channel ends. deliver is told of streams for the guest, and
// must not wait.
func (x *exchange) serve(deliver func(fl *flow, port uint16, f *os.File)) {
	for x.ch.Receive(func(m wire.Message, f *os.File) error { return x.take(m, f, deliver) }) == nil {
	}
	x.close()
}

// close ends the exchange.
func (x *exchange) close() {
	x.ch.Close()
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.flows == nil {
		return
	}
	for _, fl := range x.flows {
		fl.endLocked(true)
		fl.answerLocked(reply{kind: wire.Verdict, code: wire.CodeNetUnreachable})
	}
	x.flows = nil
	close(x.over)
}

// take does what a message says. An error ends the exchange.
func (x *exchange) take(m wire.Message, f *os.File, deliver func(*flow, uint16, *os.File)) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	fl := x.flows[m.Flow]
	switch m.Kind {
	case wire.Verdict, wire.Answer, wire.Echoed:
		if fl != nil && m.Kind == wire.Verdict && fl.answerLocked(reply{m.Kind, m.Code, nil, f}) {
			return nil
		}
		if fl != nil && len(fl.answer) == 0 {
			fl.answer <- reply{m.Kind, m.Code, bytes.Clone(m.Payload), f}
			return nil
		}
	case wire.Closed, wire.Reset:
		if fl != nil {
			fl.endLocked(m.Kind == wire.Reset)
		}
	case wire.Deliver:
		if fl == nil && x.flows != nil {
			fl = x.beginLocked(m.Flow)
			deliver(fl, m.Port, f)
			return nil
		}
	}
	if f != nil { // nobody waits for it any more
		f.Close()
	}
	return nil
}

// begin returns a new flow, or nil if the exchange has ended.
func (x *exchange) begin() *flow {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.flows == nil {
		return nil
	}
	for {
		x.last = (x.last + 1) % wire.FirstInbound
		if x.flows[x.last] == nil {
			return x.beginLocked(x.last)
		}
	}
}

func (x *exchange) beginLocked(id uint32) *flow {
	fl := &flow{x: x, id: id, answer: make(chan reply, 1), ended: make(chan struct{})}
	x.flows[id] = fl
	return fl
}

// endLocked notes how the gateway's side of the flow ended. The caller holds x.mu.
func (fl *flow) endLocked(reset bool) {
	select {
	case <-fl.ended:
	default:
		fl.wasReset = reset
		close(fl.ended)
	}
}

// answerLocked calls who waits for the verdict, and reports whether somebody does. The caller holds x.mu.
func (fl *flow) answerLocked(r reply) bool {
	answered := fl.answered
	if answered == nil {
		return false
	}
	fl.answered = nil
	go answered(r)
	return true
}

// ask sends a request with the number of the flow, and waits for its answer until stop.
func (fl *flow) ask(m wire.Message, stop <-chan struct{}) (reply, error) {
	m.Flow = fl.id
	if err := fl.x.ch.Send(&m, -1); err != nil {
		return reply{}, err
	}
	select {
	case r := <-fl.answer:
		return r, nil
	case <-stop:
		return reply{}, os.ErrDeadlineExceeded
	case <-fl.x.over:
		return reply{}, errNoGateway
	}
}

// tell sends a message that nothing answers.
func (fl *flow) tell(kind wire.Kind) {
	_ = fl.x.ch.Send(&wire.Message{Kind: kind, Flow: fl.id}, -1) // the channel may have ended
}

// forget gives the number back. An answer that came late is dropped.
func (fl *flow) forget() {
	fl.x.mu.Lock()
	defer fl.x.mu.Unlock()
	if fl.x.flows != nil {
		delete(fl.x.flows, fl.id)
	}
	select {
	case r := <-fl.answer:
		if r.file != nil {
			r.file.Close()
		}
	default:
	}
}
