package wire

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// rawPair returns two connected ends; raw is the descriptor of the second.
func rawPair(t *testing.T) (c *Conn, raw int) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fds[0]), "ours")
	defer f.Close()
	nc, err := net.FileConn(f)
	if err != nil {
		t.Fatal(err)
	}
	c = NewConn(nc.(*net.UnixConn))
	t.Cleanup(func() {
		c.Close()
		unix.Close(fds[1])
	})
	return c, fds[1]
}

// A peer must not be able to leave descriptors behind with a packet that is
// taken for the end of the connection.
func TestReceiveEmptyPacketWithFiles(t *testing.T) {
	c, raw := rawPair(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	// Not unix.Sendmsg, which adds a byte.
	oob := unix.UnixRights(int(w.Fd()))
	msg := unix.Msghdr{Control: &oob[0]}
	msg.SetControllen(len(oob))
	_, _, errno := unix.Syscall(unix.SYS_SENDMSG, uintptr(raw), uintptr(unsafe.Pointer(&msg)), 0)
	w.Close()
	if errno != 0 {
		t.Fatal(errno)
	}
	if _, err := c.Receive(); !errors.Is(err, io.EOF) {
		t.Fatalf("Receive: %v, want EOF", err)
	}
	// The pipe is at its end only if nobody has the other side any more.
	if err := r.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if n, err := r.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("the descriptor is still open: read %d, %v", n, err)
	}
}

// Nothing to keep is not the same as no list.
func TestReleaseKeepNothing(t *testing.T) {
	b, err := json.Marshal(&Call{Op: OpRelease, Release: &Release{Keep: []string{}}})
	if err != nil {
		t.Fatal(err)
	}
	var call Call
	if err := json.Unmarshal(b, &call); err != nil {
		t.Fatal(err)
	}
	if call.Release == nil || call.Release.Keep == nil {
		t.Errorf("an empty list became none: %s", b)
	}
	b, err = json.Marshal(&Call{Op: OpRelease, Release: &Release{ID: "x"}})
	if err != nil {
		t.Fatal(err)
	}
	call = Call{}
	if err := json.Unmarshal(b, &call); err != nil || call.Release.Keep != nil {
		t.Errorf("no list became one: %s, %v", b, err)
	}
}

func TestHungUp(t *testing.T) {
	a, b := pair(t)
	if err := a.Send(TypeStdin, []byte("unread")); err != nil {
		t.Fatal(err)
	}
	if b.HungUp() {
		t.Error("the peer is there")
	}
	a.Close()
	if !b.HungUp() {
		t.Error("the peer is gone, behind what was not read yet")
	}
	if p, err := b.Receive(); err != nil || string(p.Body) != "unread" {
		t.Errorf("what came before is lost: %v", err)
	}
}
