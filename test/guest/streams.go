package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// queue is a value that was written to one end of something and not been read
// at the other. To get it is to read it and to write it again.
type queue struct{ r, w int }

func (q queue) set(v string) error {
	if err := q.drain(); err != nil {
		return err
	}
	_, err := unix.Write(q.w, []byte(v+"\n"))
	return err
}

func (q queue) get() (string, error) {
	v, err := q.take()
	if err != nil {
		return "", err
	}
	_, err = unix.Write(q.w, []byte(v+"\n"))
	return v, err
}

// drain reads what there is.
func (q queue) drain() error {
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(q.r), Events: unix.POLLIN}}, 0)
		if err != nil {
			return err
		}
		if n == 0 {
			return nil
		}
		if _, err := unix.Read(q.r, make([]byte, 4096)); err != nil {
			return err
		}
	}
}

// take reads one line.
func (q queue) take() (string, error) {
	line := ""
	for !strings.HasSuffix(line, "\n") {
		if err := awaitReadable(q.r); err != nil {
			return "", err
		}
		b := make([]byte, 4096)
		n, err := unix.Read(q.r, b)
		if err != nil {
			return "", err
		}
		line += string(b[:n])
	}
	return strings.TrimSuffix(line, "\n"), nil
}

func newPipe() (item, error) {
	var p [2]int
	err := unix.Pipe2(p[:], unix.O_CLOEXEC)
	return queue{p[0], p[1]}, err
}

// ring is a pipe that was read and written so often that what is in it goes over the
// end of its buffer.
type ring struct{ queue }

const (
	ringBefore = 30_000 // bytes that are read before
	ringHeld   = 50_000 // of a buffer of 65536
)

func newRing() (item, error) {
	q, err := newPipe()
	if err != nil {
		return nil, err
	}
	return ring{q.(queue)}, nil
}

func (r ring) set(v string) error {
	if err := r.drain(); err != nil {
		return err
	}
	text := ringOf(v)
	if _, err := unix.Write(r.w, make([]byte, ringBefore)); err != nil {
		return err
	}
	if _, err := unix.Write(r.w, []byte(text[:ringBefore])); err != nil {
		return err
	}
	if _, err := unix.Read(r.r, make([]byte, ringBefore)); err != nil {
		return err
	}
	_, err := unix.Write(r.w, []byte(text[ringBefore:]))
	return err
}

func (r ring) get() (string, error) {
	text := make([]byte, ringHeld+1)
	n, err := unix.Read(r.r, text)
	if err != nil {
		return "", err
	}
	v, _, _ := strings.Cut(string(text[:n]), "\n")
	if string(text[:n]) != ringOf(v) {
		return "", fmt.Errorf("%d bytes were in the pipe, which are not %d of %q", n, ringHeld, v)
	}
	return v, r.set(v)
}

// ringOf returns what is in the pipe for a value.
func ringOf(v string) string {
	return strings.Repeat(v+"\n", ringHeld/(len(v)+1)+1)[:ringHeld]
}

func newFifo() (item, error) {
	name := filepath.Join(holdDir, "fifo")
	if err := unix.Mkfifo(name, 0o600); err != nil {
		return nil, err
	}
	fd, err := unix.Open(name, unix.O_RDWR|unix.O_CLOEXEC, 0)
	return queue{fd, fd}, err
}

// pty is a terminal with a line that nobody has read yet. Its size must stay.
type pty struct{ queue }

func newPty() (item, error) {
	master, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	n, err := unix.IoctlGetInt(master, unix.TIOCGPTN)
	if err != nil {
		return nil, err
	}
	if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		return nil, err
	}
	slave, err := unix.Open(fmt.Sprintf("/dev/pts/%d", n), unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	t, err := unix.IoctlGetTermios(slave, unix.TCGETS)
	if err != nil {
		return nil, err
	}
	t.Lflag &^= unix.ECHO
	if err := unix.IoctlSetTermios(slave, unix.TCSETS, t); err != nil {
		return nil, err
	}
	size := &unix.Winsize{Row: 12, Col: 345}
	return pty{queue{slave, master}}, unix.IoctlSetWinsize(master, unix.TIOCSWINSZ, size)
}

func (p pty) get() (string, error) {
	size, err := unix.IoctlGetWinsize(p.r, unix.TIOCGWINSZ)
	if err != nil {
		return "", err
	}
	if size.Row != 12 || size.Col != 345 {
		return "", fmt.Errorf("terminal has %d rows of %d", size.Row, size.Col)
	}
	return p.queue.get()
}

// tcp is an established connection over loopback with unread data in both
// directions, and its listener, which must take new connections.
type tcp struct {
	queue
	back     queue
	listener net.Listener
}

func newTCP() (item, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	client, server, err := connect(l)
	return &tcp{queue{server, client}, queue{client, server}, l}, err
}

// connect returns the descriptors of a new connection to l.
func connect(l net.Listener) (client, server int, err error) {
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return 0, 0, err
	}
	s, err := l.Accept()
	if err != nil {
		return 0, 0, err
	}
	if client, err = plain(c); err != nil {
		return 0, 0, err
	}
	server, err = plain(s)
	return client, server, err
}

// plain returns a blocking descriptor of c and closes c: the runtime's own
// epoll shall have no part in this.
func plain(c net.Conn) (int, error) {
	defer c.Close()
	f, err := c.(interface{ File() (*os.File, error) }).File()
	if err != nil {
		return 0, err
	}
	defer f.Close()
	fd, err := unix.Dup(int(f.Fd()))
	if err != nil {
		return 0, err
	}
	return fd, unix.SetNonblock(fd, false)
}

func (t *tcp) set(v string) error {
	if err := t.back.set("back " + v); err != nil {
		return err
	}
	return t.queue.set(v)
}

func (t *tcp) get() (string, error) {
	back, err := t.back.get()
	if err != nil {
		return "", fmt.Errorf("backwards: %w", err)
	}
	v, err := t.queue.get()
	if err != nil {
		return "", err
	}
	if back != "back "+v {
		return "", fmt.Errorf("holds %q and backwards %q", v, back)
	}
	client, server, err := connect(t.listener)
	if err != nil {
		return "", fmt.Errorf("new connection: %w", err)
	}
	defer unix.Close(client)
	defer unix.Close(server)
	fresh := queue{server, client}
	if err := fresh.set(v); err != nil {
		return "", fmt.Errorf("new connection: %w", err)
	}
	return fresh.take()
}

func newUDP() (item, error) {
	c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, err
	}
	port := c.LocalAddr().(*net.UDPAddr).Port
	fd, err := plain(c)
	if err != nil {
		return nil, err
	}
	// Connected to itself, so that it can be written to.
	return queue{fd, fd}, unix.Connect(fd, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}})
}

// unixPair is a connection with an unread message that carries a descriptor,
// which nobody else has open, with the value in its file.
type unixPair struct{ r, w int }

func newUnixPair() (item, error) {
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	return unixPair{p[0], p[1]}, err
}

func (u unixPair) send(fd int) error {
	defer unix.Close(fd)
	return unix.Sendmsg(u.w, []byte("file"), unix.UnixRights(fd), nil, 0)
}

func (u unixPair) take() (int, error) {
	if err := awaitReadable(u.r); err != nil {
		return 0, err
	}
	oob := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(u.r, make([]byte, 16), oob, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return 0, err
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil || len(msgs) != 1 {
		return 0, fmt.Errorf("message has %d parts (%v)", len(msgs), err)
	}
	fds, err := unix.ParseUnixRights(&msgs[0])
	if err != nil {
		return 0, err
	}
	return fds[0], nil
}

func (u unixPair) set(v string) error {
	if n, err := unix.Poll([]unix.PollFd{{Fd: int32(u.r), Events: unix.POLLIN}}, 0); err != nil {
		return err
	} else if n > 0 {
		old, err := u.take()
		if err != nil {
			return err
		}
		unix.Close(old)
	}
	fd, err := unix.MemfdCreate("in flight", unix.MFD_CLOEXEC)
	if err != nil {
		return err
	}
	if _, err := unix.Pwrite(fd, []byte(v), 0); err != nil {
		return err
	}
	return u.send(fd)
}

func (u unixPair) get() (string, error) {
	fd, err := u.take()
	if err != nil {
		return "", err
	}
	b := make([]byte, 4096)
	n, err := unix.Pread(fd, b, 0)
	if err != nil {
		return "", err
	}
	return string(b[:n]), u.send(fd)
}
