package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/api"
)

// Type is the first byte of every packet.
type Type byte

// The packet types.
const (
	TypeCall   Type = 'c'
	TypeMore   Type = 'm' // the beginning of a call that does not fit a packet: see SendCall
	TypeReply  Type = 'r'
	TypeFail   Type = 'f'
	TypeStdin  Type = '0'
	TypeStdout Type = '1'
	TypeStderr Type = '2'
	TypeData   Type = 'd' // bytes of a file, an archive or a connection; none are its end
	TypeItem   Type = 'i' // one of several results, as JSON
	TypeRange  Type = 'g' // which bytes of the file to send, as JSON
	TypeChunk  Type = 'o'
	TypePart   Type = 'p'
	TypeCancel Type = 'x' // the caller of an exec with a key does not come back
	// TypeRequest and TypeAnswer are a ControlRequest and a ControlAnswer.
	TypeRequest Type = 'q'
	TypeAnswer  Type = 'a'
)

const (
	// MaxChunk is the most stream data in a packet, in bytes.
	MaxChunk = 64 << 10
	// MaxPacket bounds every packet, in bytes. Larger replies travel in a memory file.
	MaxPacket = 160 << 10
	// MaxCall bounds a call, in bytes. Linux takes 2 MiB of arguments and environment, which JSON
	// makes up to six times as long.
	MaxCall = 16 << 20
	// MaxFiles is the most descriptors that Linux passes in one message.
	MaxFiles = 253
)

// Errors of Send for a message that does not fit a packet.
var (
	ErrTooLarge     = errors.New("message is larger than a packet")
	ErrTooManyFiles = fmt.Errorf("message has more than %d descriptors", MaxFiles)
)

// ErrFilesLost is returned by Receive for a message whose descriptors were not all
// received: the buffer has room for as many as Linux passes, so this process may not open
// more.
var ErrFilesLost = errors.New("descriptors of a message were lost: the limit of open files is reached")

// Conn is one connection. Its methods may be called by several goroutines, but
// only one may receive at a time.
type Conn struct {
	c      *net.UnixConn
	sendMu sync.Mutex
	out    []byte // guarded by sendMu
	in     *inbox // of the receiver, from the first Receive on
}

// inbox is a buffer for a packet with its descriptors. Connections are short and many, so
// they take buffers from a pool.
type inbox struct {
	data [MaxPacket]byte
	oob  []byte
}

var inboxes = sync.Pool{New: func() any { return &inbox{oob: make([]byte, unix.CmsgSpace(MaxFiles*4))} }}

// NewConn wraps a SOCK_SEQPACKET connection and takes ownership of it.
func NewConn(c *net.UnixConn) *Conn { return &Conn{c: c} }

// Dial connects to the sentry that listens at path.
func Dial(path string) (*Conn, error) {
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		return nil, err
	}
	return NewConn(c), nil
}

// Close ends the connection. Both directions fail from then on; it may be called
// while others send or receive.
func (c *Conn) Close() error { return c.c.Close() }

// HungUp reports whether the peer has closed the connection. Unlike Receive it
// does not wait, and it says so before the packets that came earlier are read.
func (c *Conn) HungUp() bool {
	raw, err := c.c.SyscallConn()
	if err != nil {
		return true
	}
	fds := []unix.PollFd{{Events: unix.POLLRDHUP}}
	err = raw.Control(func(fd uintptr) {
		fds[0].Fd = int32(fd)
		_, _ = unix.Poll(fds, 0) // after an error the answer is that nothing is known
	})
	return err != nil || fds[0].Revents&(unix.POLLRDHUP|unix.POLLHUP) != 0
}

// SetDeadline bounds all pending and future sends and receives.
func (c *Conn) SetDeadline(t time.Time) error { return c.c.SetDeadline(t) }

// SetReadDeadline bounds all pending and future receives.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.c.SetReadDeadline(t) }

// SetWriteDeadline bounds all pending and future sends.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.c.SetWriteDeadline(t) }

// Send sends one packet. It blocks while the peer does not read. The
// descriptors are duplicated into the peer; the caller keeps its own.
func (c *Conn) Send(t Type, body []byte, fds ...int) error {
	if len(body) >= MaxPacket {
		return ErrTooLarge
	}
	if len(fds) > MaxFiles {
		return ErrTooManyFiles
	}
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	c.sendMu.Lock()
	defer c.sendMu.Unlock()
	c.out = append(append(c.out[:0], byte(t)), body...)
	_, _, err := c.c.WriteMsgUnix(c.out, oob, nil)
	return err
}

// SendJSON sends v as the JSON body of a packet of type t.
func (c *Conn) SendJSON(t Type, v any, fds ...int) error {
	body, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode message: %w", err)
	}
	return c.Send(t, body, fds...)
}

// SendCall sends v as the JSON body of a call, in several packets if it does not fit one. It blocks
// while the peer does not read. Errors: ErrTooLarge beyond MaxCall.
func (c *Conn) SendCall(v any, fds ...int) error {
	body, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode message: %w", err)
	}
	if len(body) > MaxCall {
		return ErrTooLarge
	}
	for len(body) >= MaxPacket {
		if err := c.Send(TypeMore, body[:MaxPacket-1]); err != nil {
			return err
		}
		body = body[MaxPacket-1:]
	}
	return c.Send(TypeCall, body, fds...)
}

// ReceiveCall receives a packet with all of the packets of TypeMore before it in its Body. Errors are
// those of Receive, and ErrTooLarge beyond MaxCall.
func (c *Conn) ReceiveCall() (*Packet, error) {
	var begun []byte
	for {
		p, err := c.Receive()
		if err != nil {
			return nil, err
		}
		if p.Type != TypeMore {
			if begun != nil {
				p.Body = append(begun, p.Body...)
			}
			return p, nil
		}
		p.Close()
		if begun = append(begun, p.Body...); len(begun) > MaxCall {
			return nil, ErrTooLarge
		}
	}
}

// Fail sends err to the peer.
func (c *Conn) Fail(err error) error { return c.SendJSON(TypeFail, api.AsError(err)) }

// Finish closes the connection and gives back its buffers. The receiver calls it when it
// needs no Body any more.
func (c *Conn) Finish() {
	c.c.Close()
	c.Rest()
}

// Rest gives back the buffers of a connection that is kept but not used for now.
// The receiver calls it when it needs no Body any more.
func (c *Conn) Rest() {
	if c.in != nil {
		inboxes.Put(c.in)
		c.in = nil
	}
}

// Packet is one received message. Body is valid until the next Receive. The
// receiver owns Files.
type Packet struct {
	Type  Type
	Body  []byte
	Files []*os.File
}

// Close closes the descriptors that came with the packet and were not taken.
func (p *Packet) Close() {
	for _, f := range p.Files {
		if f != nil {
			f.Close()
		}
	}
}

// Take returns the i-th descriptor that came with the packet and leaves the
// packet without it, or an error if there is none.
func (p *Packet) Take(i int) (*os.File, error) {
	if i < 0 || i >= len(p.Files) || p.Files[i] == nil {
		return nil, fmt.Errorf("message has no descriptor %d", i)
	}
	f := p.Files[i]
	p.Files[i] = nil
	return f, nil
}

// Decode parses the body as JSON. A TypeFail packet decodes to its error.
func (p *Packet) Decode(v any) error {
	if p.Type == TypeFail {
		var e api.Error
		if err := json.Unmarshal(p.Body, &e); err != nil {
			return fmt.Errorf("decode error message: %w", err)
		}
		return &e
	}
	if err := json.Unmarshal(p.Body, v); err != nil {
		return fmt.Errorf("decode message: %w", err)
	}
	return nil
}

// Receive waits for the next packet; io.EOF says that the peer closed, whether or
// not it had read all that was sent to it.
func (c *Conn) Receive() (*Packet, error) {
	if c.in == nil {
		c.in = inboxes.Get().(*inbox)
	}
	n, oobn, flags, _, err := c.c.ReadMsgUnix(c.in.data[:], c.in.oob)
	for errors.Is(err, unix.ECONNRESET) {
		// The peer closed while packets for it were on the way. The kernel reports that
		// once, before the packets that the peer sent.
		n, oobn, flags, _, err = c.c.ReadMsgUnix(c.in.data[:], c.in.oob)
	}
	p := &Packet{}
	if oobn > 0 { // also with an error: an empty packet may carry descriptors
		var perr error
		if p.Files, perr = parseFiles(c.in.oob[:oobn]); err == nil {
			err = perr
		}
	}
	switch {
	case err != nil:
		p.Close()
		return nil, err
	case flags&unix.MSG_TRUNC != 0:
		p.Close()
		return nil, ErrTooLarge
	case flags&unix.MSG_CTRUNC != 0:
		p.Close()
		return nil, ErrFilesLost
	case n == 0:
		p.Close()
		return nil, io.EOF
	}
	p.Type, p.Body = Type(c.in.data[0]), c.in.data[1:n]
	return p, nil
}

func parseFiles(oob []byte) ([]*os.File, error) {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, fmt.Errorf("parse control message: %w", err)
	}
	var files []*os.File
	for i := range msgs {
		fds, err := unix.ParseUnixRights(&msgs[i])
		if err != nil {
			continue // credentials and the like carry no descriptors
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "passed"))
		}
	}
	return files, nil
}
