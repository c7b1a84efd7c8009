package network

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/network/control"
	"ramet.dev/ramet/internal/network/gateway"
	"ramet.dev/ramet/internal/network/policy"
	"ramet.dev/ramet/internal/network/wire"
	"ramet.dev/ramet/internal/service/access"
	"ramet.dev/ramet/test/harness"
)

// takenOver is a sentry that an attacker has: its channel, to write what it likes.
type takenOver struct {
	t    *testing.T
	end  *os.File
	next uint32
}

// takeOver registers a sentry with the gateway of a node, which has to run.
func takeOver(n *harness.Node, t *testing.T, doc api.NetworkPolicy) *takenOver {
	t.Helper()
	ours, theirs, err := wire.Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	t.Cleanup(func() { ours.Close() })
	ctx, cancel := context.WithTimeout(harness.AsOwner, harness.Timeout)
	defer cancel()
	r := gateway.Registration{ID: "evil-" + harness.RandomHex(), Name: "evil", Tenant: access.DefaultTenant, Policy: policy.Spec{Document: doc}}
	if err := control.NewClient(filepath.Join(n.Paths.RuntimeDir(), "gateway.sock")).Add(ctx, r, theirs); err != nil {
		t.Fatal(err)
	}
	return &takenOver{t: t, end: ours}
}

// message returns a message with the next number of a flow.
func (s *takenOver) message(k wire.Kind, p wire.Protocol, address string, port uint16, payload string) wire.Message {
	s.next++
	m := wire.Message{Kind: k, Protocol: p, Flow: s.next, Port: port, Payload: []byte(payload)}
	if address != "" {
		m.Address = netip.MustParseAddr(address)
	}
	return m
}

// send writes a packet, with descriptors.
func (s *takenOver) send(packet []byte, fds ...int) {
	s.t.Helper()
	raw, err := s.end.SyscallConn()
	if err != nil {
		s.t.Fatal(err)
	}
	var serr error
	err = raw.Write(func(fd uintptr) bool {
		serr = unix.Sendmsg(int(fd), packet, unix.UnixRights(fds...), nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		return serr != unix.EAGAIN
	})
	if err := errors.Join(err, serr); err != nil && !errors.Is(err, unix.EPIPE) {
		s.t.Fatal(err)
	}
}

// answer returns the next message, and what came with it, or an error when the channel has ended.
func (s *takenOver) answer() (wire.Message, *os.File, error) {
	s.t.Helper()
	if err := s.end.SetReadDeadline(time.Now().Add(harness.Timeout)); err != nil {
		s.t.Fatal(err)
	}
	raw, err := s.end.SyscallConn()
	if err != nil {
		s.t.Fatal(err)
	}
	b, oob := make([]byte, wire.HeaderSize+wire.MaxPayload), make([]byte, 64)
	var k, ko int
	var rerr error
	err = raw.Read(func(fd uintptr) bool {
		k, ko, _, _, rerr = unix.Recvmsg(int(fd), b, oob, unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
		return rerr != unix.EAGAIN
	})
	if err = errors.Join(err, rerr); err != nil || k == 0 {
		return wire.Message{}, nil, errors.Join(err, errChannelEnded)
	}
	m, err := wire.Decode(b[:k])
	if err != nil {
		s.t.Fatal(err)
	}
	var f *os.File
	if scm, err := unix.ParseSocketControlMessage(oob[:ko]); err == nil && len(scm) > 0 {
		if fds, err := unix.ParseUnixRights(&scm[0]); err == nil && len(fds) > 0 {
			f = os.NewFile(uintptr(fds[0]), "flow")
		}
	}
	return m, f, nil
}

var errChannelEnded = errors.New("the channel has ended")

// must encodes a message as a sentry does.
func (s *takenOver) must(m wire.Message) []byte {
	s.t.Helper()
	b, err := m.Append(nil)
	if err != nil {
		s.t.Fatal(err)
	}
	return b
}

// TestASentryThatWasTakenOver speaks to the gateway without a guest: it gets no more than its policy
// allows, a message that it may not send ends its channel and nobody else's, and numbers of flows that
// are not its own are of no use.
func TestASentryThatWasTakenOver(t *testing.T) {
	harness.OnlyOnce(t, "the gateway judges as the same user or as another one")
	n := newNode(t)
	serve(t, "198.51.100.1:1", echoes)
	create(n, "good", allow(t, "198.51.100.1:1"))
	create(n, "db", accept(byName("web")))
	n.StartServer("db", "echo", ":80")
	db := n.Get("db")
	kept := hold(n, "good", "198.51.100.1:1", 3)
	closed := map[string]*server{}
	for _, a := range []string{"198.51.100.1:443", "198.51.100.1:2", "10.77.0.1:1", "169.254.169.254:80", "127.0.0.1:6000", "192.0.2.254:6000", "198.51.100.1:853"} {
		closed[a] = serve(t, a, echoes)
	}
	datagrams, err := net.ListenPacket("udp", "198.51.100.1:7")
	if err != nil {
		t.Fatal(err)
	}
	defer datagrams.Close()
	rules := allow(t, "198.51.100.1:1", "files.example.org", "sandbox=db").NetworkPolicy

	t.Run("what it may not reach", func(t *testing.T) {
		s := takeOver(n, t, rules)
		for _, a := range []string{"198.51.100.1", "10.77.0.1", "169.254.169.254", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "127.0.0.1", "10.0.2.2", "192.0.2.254", "::1", "0.0.0.0", "::", "198.18.0.1", "198.18.0.2", "198.19.1.1", "255.255.255.255", "ff02::1"} {
			for _, port := range []uint16{2, 80, 443, 853, 6000} {
				for _, p := range []wire.Protocol{wire.TCP, wire.UDP} {
					s.mustDeny(s.message(wire.Dial, p, a, port, ""))
				}
			}
			if a != "198.51.100.1" {
				s.mustDeny(s.message(wire.Echo, 0, a, 0, "payload"))
			}
		}
		s.mustDeny(s.message(wire.Dial, wire.UDP, "198.51.100.1", 7, ""))
		s.mustDeny(s.message(wire.Dial, wire.UDP, "198.51.100.53", 53, ""))
		// The name of another sandbox has an address, which does not let anybody in.
		s.send(s.must(s.message(wire.Question, 0, "", 0, string(question("db.sandbox")))))
		m, _, err := s.answer()
		if err != nil || m.Kind != wire.Answer || !bytes.Contains(m.Payload, []byte{198, 18}) {
			t.Fatalf("the name of a sandbox: %v, %v", m, err)
		}
		at := bytes.LastIndex(m.Payload, []byte{198, 18})
		s.mustDeny(s.message(wire.Dial, wire.TCP, netip.AddrFrom4([4]byte(m.Payload[at:])).String(), 80, ""))
		// What it may reach, it does.
		s.send(s.must(s.message(wire.Dial, wire.TCP, "198.51.100.1", 1, "")))
		m, f, err := s.answer()
		if err != nil || m.Kind != wire.Verdict || m.Code != wire.CodeOK || f == nil {
			t.Fatalf("what is allowed: %v, %v", m, err)
		}
		defer f.Close()
		// The end that it has is one of a pair, and no socket of the host.
		if kind := familyOf(t, f); kind != unix.AF_UNIX {
			t.Errorf("the descriptor of a flow is of family %d", kind)
		}
		// Words about flows of others, and of nobody, change nothing.
		for flow := range uint32(64) {
			for _, k := range []wire.Kind{wire.Closed, wire.Reset} {
				if flow != m.Flow {
					s.send(s.must(wire.Message{Kind: k, Flow: flow}))
				}
				s.send(s.must(wire.Message{Kind: k, Flow: wire.FirstInbound + flow}))
			}
			s.send(s.must(wire.Message{Kind: wire.Accepted, Flow: wire.FirstInbound + flow}))
			s.send(s.must(wire.Message{Kind: wire.Refused, Flow: wire.FirstInbound + flow}))
		}
		// Bytes that are no question, and names that it may not ask for.
		s.send(s.must(s.message(wire.Question, 0, "", 0, "no question")))
		s.send(s.must(s.message(wire.Question, 0, "", 0, string(question("other.example.org")))))
		if m, _, err := s.answer(); err != nil || m.Kind != wire.Answer || len(m.Payload) < 4 || m.Payload[3]&15 != 3 {
			t.Errorf("a name that is denied: %v, %v", m, err)
		}
		b := make([]byte, 7)
		_, err = f.WriteString("through")
		if err == nil {
			err = f.SetReadDeadline(time.Now().Add(harness.Timeout))
		}
		if err == nil {
			_, err = io.ReadFull(f, b)
		}
		if err != nil || string(b) != "through" {
			t.Errorf("its own flow says %q, %v", b, err)
		}
	})
	dial := func(s *takenOver) []byte { return s.must(s.message(wire.Dial, wire.TCP, "198.51.100.1", 1, "")) }
	edited := func(change func(b []byte)) func(s *takenOver) []byte {
		return func(s *takenOver) []byte {
			b := dial(s)
			change(b)
			return b
		}
	}
	for what, packet := range map[string]func(s *takenOver) []byte{
		"a verdict": func(s *takenOver) []byte {
			return s.must(wire.Message{Kind: wire.Verdict, Flow: 1, Code: wire.CodeRefused})
		},
		"an answer": func(s *takenOver) []byte {
			return s.must(wire.Message{Kind: wire.Answer, Flow: 1, Payload: []byte("x")})
		},
		"an echo's answer":        func(s *takenOver) []byte { return s.must(wire.Message{Kind: wire.Echoed, Flow: 1}) },
		"a delivery":              edited(func(b []byte) { b[0] = byte(wire.Deliver); clear(b[12:]); b[1] = 0; b[4] = 0x80 }),
		"no kind":                 edited(func(b []byte) { b[0] = 0 }),
		"an unknown kind":         edited(func(b []byte) { b[0] = 200 }),
		"another protocol":        edited(func(b []byte) { b[1] = 132 }),
		"no port":                 edited(func(b []byte) { b[2], b[3] = 0, 0 }),
		"a code":                  edited(func(b []byte) { b[11] = 1 }),
		"a number of the gateway": edited(func(b []byte) { binary.BigEndian.PutUint32(b[4:], wire.FirstInbound+1) }),
		"a payload":               func(s *takenOver) []byte { return append(dial(s), 'x') },
		"half a header":           func(s *takenOver) []byte { return dial(s)[:wire.HeaderSize/2] },
		"more than a payload": func(s *takenOver) []byte {
			return append(s.must(s.message(wire.Question, 0, "", 0, "x")), make([]byte, wire.MaxPayload+100)...)
		},
	} {
		t.Run(what, func(t *testing.T) {
			s := takeOver(n, t, rules)
			s.send(packet(s))
			s.mustEnd()
		})
	}
	t.Run("a descriptor", func(t *testing.T) {
		s := takeOver(n, t, rules)
		null, err := os.Open("/dev/null")
		if err != nil {
			t.Fatal(err)
		}
		defer null.Close()
		s.send(dial(s), int(null.Fd()), int(null.Fd()), int(null.Fd()))
		s.mustEnd()
	})
	t.Run("a number twice", func(t *testing.T) {
		s := takeOver(n, t, rules)
		b := dial(s)
		s.send(b)
		s.send(b)
		s.mustEnd()
	})
	t.Run("a flood", func(t *testing.T) {
		s := takeOver(n, t, rules)
		for range 20000 {
			m := s.message(wire.Question, 0, "", 0, string(question("files.example.org")))
			raw := s.must(m)
			if err := s.end.SetWriteDeadline(time.Now().Add(time.Second / 4)); err != nil {
				t.Fatal(err)
			}
			if _, err := s.end.Write(raw); err != nil {
				break // the gateway reads no more, because nobody reads its answers
			}
		}
		mustReach(n, "good", map[string]string{"198.51.100.1:1": connected})
	})
	// Others have not noticed.
	kept.ask("whole 3 reset 0\n")
	if got := n.Get("db"); got.State != db.State {
		t.Errorf("db is %s", got.State)
	}
	for a, s := range closed {
		if got := s.count(); got != 0 {
			t.Errorf("%d connections to %s", got, a)
		}
	}
	_ = datagrams.SetReadDeadline(time.Now()) // it is open
	if k, _, err := datagrams.ReadFrom(make([]byte, 16)); err == nil {
		t.Errorf("a datagram of %d bytes has left", k)
	}
	harness.Eventually(t, "end of all sentries that were taken over", func() error {
		if u := n.Machine.Usage().Gateway; u == nil || u.Sandboxes != 2 {
			return fmt.Errorf("the gateway has %+v", u)
		}
		return nil
	})
}

// mustDeny sends a message that asks for something, which is denied.
func (s *takenOver) mustDeny(m wire.Message) {
	s.t.Helper()
	s.send(s.must(m))
	got, f, err := s.answer()
	if f != nil {
		f.Close()
	}
	if err != nil || got.Kind != wire.Verdict || got.Flow != m.Flow || got.Code == wire.CodeOK || f != nil {
		s.t.Errorf("%v of %v port %d, protocol %d: %v %v with a descriptor: %t, %v", m.Kind, m.Address, m.Port, m.Protocol, got.Kind, got.Code, f != nil, err)
	}
}

// mustEnd waits until the gateway has ended the channel.
func (s *takenOver) mustEnd() {
	s.t.Helper()
	for {
		_, f, err := s.answer()
		if f != nil {
			f.Close()
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			s.t.Error("the channel goes on")
		}
		if err != nil {
			return
		}
	}
}

// question returns a DNS message that asks for the IPv4 address of a name.
func question(name string) []byte {
	b := []byte{0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0}
	for label := range bytes.SplitSeq([]byte(name), []byte(".")) {
		b = append(append(b, byte(len(label))), label...)
	}
	return append(b, 0, 0, 1, 0, 1)
}

// familyOf returns the family of a socket.
func familyOf(t *testing.T, f *os.File) (family int) {
	t.Helper()
	raw, err := f.SyscallConn()
	if err == nil {
		cerr := raw.Control(func(fd uintptr) { family, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_DOMAIN) })
		err = errors.Join(err, cerr)
	}
	if err != nil {
		t.Fatal(fmt.Errorf("ask for the family of a socket: %w", err))
	}
	return family
}
