package volumes

import (
	"net"
	"os"
	"testing"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"

	"ramet.dev/ramet/internal/engine/wire"
)

// pair returns two ends of a connection.
func pair(t *testing.T) (a, b *wire.Conn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*wire.Conn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		c, err := net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		ends[i] = wire.NewConn(c.(*net.UnixConn))
		t.Cleanup(func() { ends[i].Close() })
	}
	return ends[0], ends[1]
}

// daemon serves c until answer returns nil: then it hangs up, and closes over.
func daemon(t *testing.T, c *Client, answer func(*wire.VolumeCall) *wire.VolumeAnswer) (over chan struct{}) {
	theirs, ours := pair(t)
	go c.Serve(theirs) // it waits until the link is not used any more, which may be never
	over = make(chan struct{})
	go func() {
		defer close(over)
		defer ours.Close()
		for {
			p, err := ours.Receive()
			if err != nil {
				return // the test has ended
			}
			var call wire.VolumeCall
			if err := p.Decode(&call); err != nil {
				t.Error(err)
				return
			}
			a := answer(&call)
			if a == nil || ours.SendJSON(wire.TypeAnswer, a) != nil {
				return
			}
		}
	}()
	return over
}

func hangUp(*wire.VolumeCall) *wire.VolumeAnswer { return nil }

// TestDaemonsThatComeAndGo has calls wait for a daemon, and those done again that can be.
func TestDaemonsThatComeAndGo(t *testing.T) {
	c := &Client{}
	result := make(chan error, 1)
	go func() {
		_, _, err := c.call(&wire.VolumeCall{Op: wire.VolumeStat})
		result <- err
	}()
	daemon(t, c, func(*wire.VolumeCall) *wire.VolumeAnswer { return &wire.VolumeAnswer{Errno: uint32(unix.ENOENT)} })
	if err := <-result; !linuxerr.Equals(linuxerr.ENOENT, err) {
		t.Errorf("the first daemon's answer came as %v", err)
	}

	c = &Client{}
	gone := daemon(t, c, hangUp)
	go func() {
		a, _, err := c.call(&wire.VolumeCall{Op: wire.VolumeLookup})
		if err == nil && (a.Attr == nil || a.Attr.Ino != 7) {
			t.Errorf("the answer is %+v", a)
		}
		result <- err
	}()
	<-gone
	daemon(t, c, func(*wire.VolumeCall) *wire.VolumeAnswer { return &wire.VolumeAnswer{Attr: &wire.VolumeAttr{Ino: 7}} })
	if err := <-result; err != nil {
		t.Errorf("a lookup during which a daemon ended: %v", err)
	}

	c = &Client{}
	daemon(t, c, hangUp)
	if _, _, err := c.call(&wire.VolumeCall{Op: wire.VolumeUnlink}); !linuxerr.Equals(linuxerr.EIO, err) {
		t.Errorf("an unlink during which a daemon ended: %v, and nobody knows whether it was done", err)
	}
}
