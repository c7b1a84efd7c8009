package wire

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// channels returns both ends of a channel.
func channels(t *testing.T) (s, g *Channel) {
	t.Helper()
	a, b, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	s, err = SentryChannel(a)
	if err != nil {
		t.Fatal(err)
	}
	g, err = GatewayChannel(b)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(); g.Close() })
	return s, g
}

// receive returns the next message, with a copy of its payload.
func receive(c *Channel) (got Message, f *os.File, err error) {
	err = c.Receive(func(m Message, file *os.File) error {
		got, f = m, file
		got.Payload = append([]byte(nil), m.Payload...)
		return nil
	})
	return got, f, err
}

func TestMessagesCrossBothWays(t *testing.T) {
	s, g := channels(t)
	for _, m := range samples {
		for _, ends := range [][2]*Channel{{s, g}, {g, s}} {
			from, to := ends[0], ends[1]
			if layouts[m.Kind].senders&from.own == 0 {
				if err := from.Send(&m, -1); !errors.Is(err, errSender) {
					t.Errorf("%v was sent in the wrong direction: %v", m.Kind, err)
				}
				continue
			}
			fd := -1
			if m.WithFile() {
				fd = 0
			}
			if err := from.Send(&m, fd); err != nil {
				t.Fatal(err)
			}
			got, f, err := receive(to)
			if err != nil || got.Kind != m.Kind || len(got.Payload) != len(m.Payload) || (f != nil) != m.WithFile() {
				t.Errorf("%v came as %v with %v: %v", m.Kind, got.Kind, f, err)
			}
			if f != nil {
				f.Close()
			}
		}
	}
}

func TestADescriptorIsAFlow(t *testing.T) {
	for _, p := range []Protocol{TCP, UDP} {
		s, g := channels(t)
		theirs, ours, err := FlowPair(p)
		if err != nil {
			t.Fatal(err)
		}
		defer ours.Close()
		if err := g.Send(&Message{Kind: Verdict, Flow: 1}, int(theirs.Fd())); err != nil {
			t.Fatal(err)
		}
		theirs.Close()
		_, f, err := receive(s)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFD, 0)
		if err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("descriptor flags %#x: %v", flags, err)
		}
		for range 2 {
			if _, err := ours.Write([]byte("abc")); err != nil {
				t.Fatal(err)
			}
		}
		want := 6
		if p == UDP {
			want = 3
		}
		var b [16]byte
		if n, err := f.Read(b[:]); n != want || err != nil {
			t.Errorf("protocol %d: read %d bytes: %v", p, n, err)
		}
	}
}

// TestPeersThatDoNotKeepToTheProtocol sends what a sentry that was taken over could send.
func TestPeersThatDoNotKeepToTheProtocol(t *testing.T) {
	dial, err := (&Message{Kind: Dial, Protocol: TCP, Flow: 1, Port: 1, Address: v4}).Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	verdict, err := (&Message{Kind: Verdict, Flow: 1, Code: CodeRefused}).Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		data []byte
		fds  []int
		want string
	}{
		"descriptor":               {dial, []int{0}, errFile.Error()},
		"two descriptors":          {dial, []int{0, 1}, errFile.Error()},
		"many descriptors":         {dial, []int{0, 1, 2, 0, 1, 2}, errFile.Error()},
		"wrong direction":          {verdict, nil, errSender.Error()},
		"short":                    {dial[:5], nil, ErrShort.Error()},
		"too large":                {make([]byte, HeaderSize+MaxPayload+2), nil, ErrTooLarge.Error()},
		"nothing but a descriptor": {nil, []int{0}, ErrShort.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			a, b, err := Pair()
			if err != nil {
				t.Fatal(err)
			}
			defer a.Close()
			g, err := GatewayChannel(b)
			if err != nil {
				t.Fatal(err)
			}
			defer g.Close()
			before := openFiles(t)
			var oob []byte
			if c.fds != nil {
				oob = unix.UnixRights(c.fds...)
			}
			raw, err := a.SyscallConn()
			if err != nil {
				t.Fatal(err)
			}
			if cerr := raw.Control(func(fd uintptr) { err = sendRaw(int(fd), c.data, oob) }); cerr != nil || err != nil {
				t.Fatal(cerr, err)
			}
			if _, _, err := receive(g); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("received: %v, want %q", err, c.want)
			}
			if after := openFiles(t); after != before {
				t.Errorf("%d descriptors are open, before it were %d", after, before)
			}
		})
	}
}

// sendRaw sends a packet that may be empty.
func sendRaw(fd int, data, oob []byte) error {
	_, err := unix.SendmsgBuffers(fd, [][]byte{data}, oob, nil, 0)
	return err
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestTheEndOfAChannel(t *testing.T) {
	s, g := channels(t)
	if err := g.Send(&Message{Kind: Reset, Flow: 1}, -1); err != nil {
		t.Fatal(err)
	}
	if err := s.Send(&Message{Kind: Closed, Flow: 1}, -1); err != nil {
		t.Fatal(err)
	}
	s.Close() // with a message unread
	var err error
	for range 3 {
		if _, _, err = receive(g); err != nil {
			break
		}
	}
	if !errors.Is(err, io.EOF) {
		t.Errorf("the end of the peer is %v", err)
	}
	if err := g.Send(&Message{Kind: Reset, Flow: 1}, -1); !errors.Is(err, unix.EPIPE) {
		t.Errorf("send to nobody: %v", err)
	}
}

func TestCloseWakesTheReceiver(t *testing.T) {
	s, _ := channels(t)
	started, done := make(chan bool), make(chan error)
	go func() {
		close(started)
		_, _, err := receive(s)
		done <- err
	}()
	<-started
	s.Close()
	if err := <-done; !errors.Is(err, os.ErrClosed) {
		t.Errorf("receive on a closed channel: %v", err)
	}
}

func TestAPeerThatReadsNothing(t *testing.T) {
	s, g := channels(t)
	m := &Message{Kind: Answer, Flow: 1, Payload: make([]byte, MaxPayload)}
	err := g.Send(m, -1)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.SetWriteDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	for sent := 0; err == nil; sent++ {
		if sent == 1000 {
			t.Fatal("a peer that reads nothing takes everything")
		}
		err = g.Send(m, -1)
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("send: %v", err)
	}
	if _, _, err := receive(s); err != nil {
		t.Errorf("what was sent before: %v", err)
	}
}

func TestABlockingDescriptorIsRefused(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[1])
	if _, err := SentryChannel(os.NewFile(uintptr(fds[0]), "blocking")); !errors.Is(err, errBlocks) {
		t.Errorf("channel of a blocking descriptor: %v", err)
	}
}

func TestManySenders(t *testing.T) {
	const senders, each = 8, 200
	s, g := channels(t)
	var wg sync.WaitGroup
	for i := range senders {
		wg.Go(func() {
			for n := range each {
				m := &Message{Kind: Question, Flow: uint32(i), Payload: fmt.Appendf(nil, "%d", n)}
				if err := s.Send(m, -1); err != nil {
					t.Error(err)
				}
			}
		})
	}
	next := make([]int, senders)
	for range senders * each {
		m, _, err := receive(g)
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprint(next[m.Flow]); string(m.Payload) != want {
			t.Fatalf("sender %d: %q came in place of %s", m.Flow, m.Payload, want)
		}
		next[m.Flow]++
	}
	wg.Wait()
}
