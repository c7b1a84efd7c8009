package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
)

// Kind says what a message is about.
type Kind uint8

// The kinds of messages. Those up to Refused are sent by a sentry, those from Verdict on by the
// gateway. Reset and Closed
// are sent by both.
const (
	// Dial asks for a connection to Address and Port.
	Dial Kind = iota + 1
	// Question is a DNS message that a guest sent to some name server over UDP.
	Question
	// Echo asks for an ICMP echo of Address with Payload.
	Echo
	// Reset says that the guest, or the server, has reset the flow.
	Reset
	// Closed of a sentry says that the guest has closed its end of the flow, or that nobody
	// waits for the verdict any more; bytes that the guest sent before are still in the pair.
	// Closed of the gateway says that the server has ended its stream, whose last bytes are
	// still in the pair.
	Closed
	// Accepted says that the guest has accepted the flow of a Deliver.
	Accepted
	// Refused says that nobody in the guest listens on the port of a Deliver.
	Refused

	// Verdict answers Dial, and Echo if there is no answer. With CodeOK a descriptor comes.
	Verdict
	// Answer is the answer to a Question.
	Answer
	// Echoed is the answer to an Echo.
	Echoed
	// Deliver hands a stream to Port of the guest. A descriptor comes with it.
	Deliver

	kinds
)

// String returns the name of the kind.
func (k Kind) String() string {
	if k > 0 && k < kinds {
		return layouts[k].name
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Protocol is the transport of a Dial.
type Protocol uint8

// The protocols, with their numbers of IP.
const (
	TCP Protocol = 6
	UDP Protocol = 17
)

// Code is the outcome in a Verdict.
type Code uint32

// The codes. How the guest learns of each is the sentry's business.
const (
	CodeOK Code = iota
	// CodeRefused: the server, or the policy, refuses the connection.
	CodeRefused
	// CodeHostUnreachable, CodeNetUnreachable: there is no way to the address.
	CodeHostUnreachable
	CodeNetUnreachable
	// CodeProhibited: the policy refuses what is not a TCP connection.
	CodeProhibited
	// CodeTimedOut: nobody answered.
	CodeTimedOut

	codes
)

var codeNames = [codes]string{"ok", "refused", "host unreachable", "network unreachable", "prohibited", "timed out"}

// String returns the name of the code.
func (c Code) String() string {
	if c < codes {
		return codeNames[c]
	}
	return fmt.Sprintf("code %d", uint32(c))
}

const (
	// FirstInbound is the first number of flows that the gateway begins.
	FirstInbound = 1 << 31
	// MaxPayload is the most bytes of a payload.
	MaxPayload = 64 << 10
	// HeaderSize is how many bytes come before the payload.
	HeaderSize = 28
)

// Message is one message. Fields that the kind does not have are zero.
type Message struct {
	Kind     Kind
	Protocol Protocol // of Dial
	Code     Code     // of Verdict
	Flow     uint32
	Port     uint16 // of Dial and Deliver
	// Address is that of Dial and Echo. An IPv4 address is sent in IPv4-mapped form and
	// received as IPv4: the two forms cannot be told apart.
	Address netip.Addr
	// Payload is that of Question, Answer, Echo and Echoed.
	Payload []byte
}

// side is who sends a message.
type side uint8

const (
	sentry side = 1 << iota
	gateway
)

// layout says which fields a kind has, and who sends it.
type layout struct {
	name                             string
	senders                          side
	protocol, port, address, payload bool
	code                             bool
	file                             bool // always with a descriptor; for Verdict see WithFile
	inbound, outbound                bool // whose flows
}

var layouts = [kinds]layout{
	Dial:     {name: "dial", senders: sentry, protocol: true, port: true, address: true, outbound: true},
	Question: {name: "question", senders: sentry, payload: true, outbound: true},
	Echo:     {name: "echo", senders: sentry, address: true, payload: true, outbound: true},
	Reset:    {name: "reset", senders: sentry | gateway, inbound: true, outbound: true},
	Closed:   {name: "closed", senders: sentry | gateway, inbound: true, outbound: true},
	Accepted: {name: "accepted", senders: sentry, inbound: true},
	Refused:  {name: "refused", senders: sentry, inbound: true},
	Verdict:  {name: "verdict", senders: gateway, code: true, outbound: true},
	Answer:   {name: "answer", senders: gateway, payload: true, outbound: true},
	Echoed:   {name: "echoed", senders: gateway, payload: true, outbound: true},
	Deliver:  {name: "deliver", senders: gateway, port: true, file: true, inbound: true},
}

// WithFile reports whether a descriptor comes with the message.
func (m *Message) WithFile() bool {
	return m.Kind == Verdict && m.Code == CodeOK || m.Kind < kinds && layouts[m.Kind].file
}

// What Encode and Decode return for a message that is none.
var (
	ErrShort      = fmt.Errorf("message is shorter than %d bytes", HeaderSize)
	ErrTooLarge   = fmt.Errorf("payload is larger than %d bytes", MaxPayload)
	errZoned      = errors.New("address has a zone")
	errNoAddress  = errors.New("address is missing")
	errNoProtocol = errors.New("protocol is neither TCP nor UDP")
	errNoPort     = errors.New("port is 0")
)

// check reports the first field that the kind does not allow.
func (m *Message) check() error {
	if m.Kind == 0 || m.Kind >= kinds {
		return fmt.Errorf("unknown %v", m.Kind)
	}
	l := layouts[m.Kind]
	inbound := m.Flow >= FirstInbound
	switch {
	case inbound && !l.inbound || !inbound && !l.outbound:
		return fmt.Errorf("%v has flow %d, which its side does not number", m.Kind, m.Flow)
	case l.protocol && m.Protocol != TCP && m.Protocol != UDP:
		return errNoProtocol
	case l.port && m.Port == 0:
		return errNoPort
	case l.address && !m.Address.IsValid():
		return errNoAddress
	case m.Address.Zone() != "":
		return errZoned
	case m.Code >= codes:
		return fmt.Errorf("unknown %v", m.Code)
	case len(m.Payload) > MaxPayload:
		return ErrTooLarge
	case !l.protocol && m.Protocol != 0, !l.port && m.Port != 0, !l.address && m.Address.IsValid(),
		!l.code && m.Code != 0, !l.payload && len(m.Payload) != 0:
		return fmt.Errorf("%v has a field that it does not have", m.Kind)
	}
	return nil
}

// Append appends the encoded message to b.
func (m *Message) Append(b []byte) ([]byte, error) {
	if err := m.check(); err != nil {
		return nil, fmt.Errorf("encode message: %w", err)
	}
	b = append(b, byte(m.Kind), byte(m.Protocol))
	b = binary.BigEndian.AppendUint16(b, m.Port)
	b = binary.BigEndian.AppendUint32(b, m.Flow)
	b = binary.BigEndian.AppendUint32(b, uint32(m.Code))
	var address [16]byte
	if m.Address.IsValid() {
		address = m.Address.As16()
	}
	b = append(b, address[:]...)
	return append(b, m.Payload...), nil
}

// Decode decodes a packet. The payload is a part of b.
func Decode(b []byte) (Message, error) {
	m, err := decode(b)
	if err != nil {
		return Message{}, fmt.Errorf("decode message: %w", err)
	}
	return m, nil
}

func decode(b []byte) (Message, error) {
	if len(b) < HeaderSize {
		return Message{}, ErrShort
	}
	m := Message{
		Kind:     Kind(b[0]),
		Protocol: Protocol(b[1]),
		Port:     binary.BigEndian.Uint16(b[2:]),
		Flow:     binary.BigEndian.Uint32(b[4:]),
		Code:     Code(binary.BigEndian.Uint32(b[8:])),
	}
	address := [16]byte(b[12:HeaderSize])
	if address != [16]byte{} || m.Kind < kinds && layouts[m.Kind].address {
		m.Address = netip.AddrFrom16(address).Unmap()
	}
	if len(b) > HeaderSize {
		m.Payload = b[HeaderSize:]
	}
	return m, m.check()
}
