package wire

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// What Receive returns for packets of a peer that does not keep to the protocol.
var (
	errFile   = errors.New("message has a descriptor that it must not have")
	errNoFile = errors.New("message has no descriptor, or it was lost: the limit of open files may be reached")
	errSender = errors.New("message goes in the wrong direction")
	errBlocks = errors.New("descriptor of the channel blocks")
)

// Pair returns the two ends of a channel. They do not block.
func Pair() (sentryEnd, gatewayEnd *os.File, err error) {
	return socketPair(unix.SOCK_SEQPACKET, "network channel")
}

// FlowPair returns the two ends of what carries the bytes of a flow: streams for TCP, packets
// for UDP. They do not block.
func FlowPair(p Protocol) (sentryEnd, gatewayEnd *os.File, err error) {
	if p == UDP {
		return socketPair(unix.SOCK_SEQPACKET, "flow")
	}
	return socketPair(unix.SOCK_STREAM, "flow")
}

func socketPair(kind int, name string) (*os.File, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make socket pair: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), name), os.NewFile(uintptr(fds[1]), name), nil
}

// Channel is one end of a channel. Several goroutines may send; only one may receive at a time.
type Channel struct {
	file *os.File
	raw  syscall.RawConn
	own  side

	closed atomic.Bool

	sendMu sync.Mutex
	out    []byte // guarded by sendMu
}

// SentryChannel returns the sentry's end, of which it takes ownership.
func SentryChannel(f *os.File) (*Channel, error) { return newChannel(f, sentry) }

// GatewayChannel returns the gateway's end, of which it takes ownership.
func GatewayChannel(f *os.File) (*Channel, error) { return newChannel(f, gateway) }

func newChannel(f *os.File, own side) (*Channel, error) {
	raw, err := f.SyscallConn()
	if err == nil {
		err = f.SetReadDeadline(time.Time{}) // an error if the runtime's poller does not have it
	}
	if errors.Is(err, os.ErrNoDeadline) {
		err = errBlocks
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("open network channel: %w", err)
	}
	return &Channel{file: f, raw: raw, own: own}, nil
}

// Close closes the end. Pending calls fail, and the peer's Receive returns io.EOF.
func (c *Channel) Close() error {
	c.closed.Store(true)
	return c.file.Close()
}

// explain returns why an operation of the descriptor failed. Package os has no exported error
// for a closed one.
func (c *Channel) explain(err error) error {
	if err != nil && c.closed.Load() {
		return os.ErrClosed
	}
	return err
}

// SetWriteDeadline bounds pending and future sends: a peer that reads nothing blocks them.
func (c *Channel) SetWriteDeadline(t time.Time) error { return c.file.SetWriteDeadline(t) }

// Send sends m. fd is the descriptor of a message that has one, and -1 else; the caller keeps
// it. Send blocks while the peer reads nothing.
func (c *Channel) Send(m *Message, fd int) error {
	if m.Kind < kinds && layouts[m.Kind].senders&c.own == 0 {
		return fmt.Errorf("send %v: %w", m.Kind, errSender)
	}
	if m.WithFile() != (fd >= 0) {
		return fmt.Errorf("send %v: %w", m.Kind, errFile)
	}
	var oob []byte
	if fd >= 0 {
		oob = unix.UnixRights(fd)
	}
	c.sendMu.Lock()
	defer c.sendMu.Unlock()
	out, err := m.Append(c.out[:0])
	if err != nil {
		return err
	}
	if cap(out) <= keptSize {
		c.out = out
	}
	var serr error
	err = c.raw.Write(func(s uintptr) bool {
		for {
			serr = unix.Sendmsg(int(s), out, oob, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
			if serr != unix.EINTR {
				return serr != unix.EAGAIN
			}
		}
	})
	if err = c.explain(err); err == nil {
		err = serr
	}
	if err != nil {
		return fmt.Errorf("send %v: %w", m.Kind, err)
	}
	return nil
}

// keptSize is the largest buffer that a channel keeps for the next message: most have no
// payload, or a short one.
const keptSize = 1 << 10

// packet is room for one packet, borrowed while there is one.
type packet struct {
	data [HeaderSize + MaxPayload + 1]byte // one more shows what is too large
	oob  [24]byte                          // room for two descriptors, by alignment
}

var packets = sync.Pool{New: func() any { return new(packet) }}

// Receive waits for a message and calls handle with it. The message's payload is valid until
// handle returns; handle owns the descriptor, which is nil for messages without one. A channel
// that waits holds no buffer. io.EOF says that the peer has closed its end; after any other
// error but that of handle the channel is of no use.
func (c *Channel) Receive(handle func(m Message, f *os.File) error) error {
	var p *packet
	var n, noob, flags int
	var rerr error
	err := c.raw.Read(func(s uintptr) bool {
		p = packets.Get().(*packet)
		for {
			n, noob, flags, _, rerr = unix.Recvmsg(int(s), p.data[:], p.oob[:], unix.MSG_CMSG_CLOEXEC|unix.MSG_DONTWAIT)
			if rerr == unix.EINTR {
				continue
			}
			if rerr == unix.EAGAIN {
				packets.Put(p)
				p = nil
				return false
			}
			return true
		}
	})
	if p != nil {
		defer packets.Put(p)
	}
	if err = c.explain(err); err == nil {
		err = rerr
	}
	if errors.Is(err, unix.ECONNRESET) {
		return io.EOF // the peer closed with unread messages
	}
	if err != nil {
		return fmt.Errorf("receive message: %w", err)
	}
	f, ferr := takeFile(p.oob[:noob])
	m, err := c.judge(p.data[:n], f, flags, ferr)
	if err != nil {
		if f != nil {
			f.Close()
		}
		return err
	}
	return handle(m, f)
}

// judge decodes what came and reports what is wrong with it.
func (c *Channel) judge(data []byte, f *os.File, flags int, ferr error) (Message, error) {
	if len(data) == 0 && f == nil && ferr == nil && flags&unix.MSG_CTRUNC == 0 {
		return Message{}, io.EOF
	}
	if flags&unix.MSG_TRUNC != 0 {
		return Message{}, fmt.Errorf("receive message: %w", ErrTooLarge)
	}
	m, err := Decode(data)
	if err != nil {
		return Message{}, err
	}
	switch {
	case layouts[m.Kind].senders&^c.own == 0:
		err = errSender
	case m.WithFile() && f == nil:
		err = errNoFile
	case ferr != nil || flags&unix.MSG_CTRUNC != 0 || f != nil && !m.WithFile():
		err = errFile
	}
	if err != nil {
		return Message{}, fmt.Errorf("receive %v: %w", m.Kind, err)
	}
	return m, nil
}

// takeFile returns the one descriptor in oob, or nil if there is none. All are closed if there
// are more.
func takeFile(oob []byte) (*os.File, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	var fds []int
	for i := range messages {
		if more, err := unix.ParseUnixRights(&messages[i]); err == nil {
			fds = append(fds, more...)
		}
	}
	if len(fds) == 1 {
		return os.NewFile(uintptr(fds[0]), "flow"), nil
	}
	for _, fd := range fds {
		unix.Close(fd)
	}
	return nil, errFile
}
