package volumes

import (
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"

	"ramet.dev/ramet/internal/engine/wire"
)

// noDaemonTimeout is how long an operation waits for a daemon. Most are away for less than a
// second, while they are replaced.
const noDaemonTimeout = 30 * time.Second

// Client asks the daemon for operations, one after the other. Its zero value is ready to use.
type Client struct {
	mu   sync.Mutex // held during an operation
	link *link      // nil while there is no daemon; guarded by mu

	arriveMu sync.Mutex
	arrived  chan *link // has the connection of a daemon that came last, if it was not taken; guarded by arriveMu
}

// link is a connection with a daemon.
type link struct {
	conn *wire.Conn
	over chan struct{} // closed when it is not used any more
	once sync.Once
}

func (l *link) end() { l.once.Do(func() { close(l.over) }) }

// Serve has operations done by the daemon at the other end of conn, until that fails or another
// daemon takes its place.
func (c *Client) Serve(conn *wire.Conn) {
	l := &link{conn: conn, over: make(chan struct{})}
	arrivals := c.arrivals()
	for offered := false; !offered; {
		select {
		case arrivals <- l:
			offered = true
		case old := <-arrivals:
			old.end()
		}
	}
	<-l.over
}

func (c *Client) arrivals() chan *link {
	c.arriveMu.Lock()
	defer c.arriveMu.Unlock()
	if c.arrived == nil {
		c.arrived = make(chan *link, 1)
	}
	return c.arrived
}

// current returns a connection, which it waits for. c.mu must be locked.
func (c *Client) current() *link {
	take := func(l *link) *link {
		if c.link != nil {
			c.link.end()
		}
		c.link = l
		return l
	}
	arrivals := c.arrivals()
	select {
	case l := <-arrivals:
		return take(l)
	default:
	}
	if c.link != nil {
		return c.link
	}
	timeout := time.NewTimer(noDaemonTimeout)
	defer timeout.Stop()
	select {
	case l := <-arrivals:
		return take(l)
	case <-timeout.C:
		return nil
	}
}

// call has an operation done. The descriptor is that of contents, or nil.
func (c *Client) call(req *wire.VolumeCall) (*wire.VolumeAnswer, *os.File, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		l := c.current()
		if l == nil {
			return nil, nil, linuxerr.EIO
		}
		if err := l.conn.SendJSON(wire.TypeRequest, req); err != nil {
			c.drop(l) // it was not received: the next daemon can be asked
			continue
		}
		a, f, err := receive(l.conn)
		if err == nil {
			return a, f, errnoError(a.Errno)
		}
		c.drop(l)
		if !req.Op.Repeatable() {
			return nil, nil, linuxerr.EIO // nobody knows whether it was done
		}
	}
}

func (c *Client) drop(l *link) {
	l.end()
	c.link = nil
}

func receive(conn *wire.Conn) (*wire.VolumeAnswer, *os.File, error) {
	p, err := conn.Receive()
	if err != nil {
		return nil, nil, err
	}
	defer p.Close()
	a := &wire.VolumeAnswer{}
	if err := p.Decode(a); err != nil {
		return nil, nil, err
	}
	if len(p.Files) == 0 {
		return a, nil, nil
	}
	f, err := p.Take(0)
	return a, f, err
}

func errnoError(errno uint32) error {
	if errno == 0 {
		return nil
	}
	return linuxerr.ErrorFromUnix(unix.Errno(errno))
}
