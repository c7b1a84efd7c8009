package sniff

import (
	"bytes"
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// hello returns what a client of package tls sends first.
func hello(t testing.TB, cfg *tls.Config) []byte {
	t.Helper()
	client, server := net.Pipe()
	defer server.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = tls.Client(client, cfg).Handshake() // the server is gone
	}()
	b := make([]byte, MaxBytes)
	n, err := server.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	server.Close()
	<-done
	return b[:n]
}

// echConfigs returns a list of one key by which clients hide names (RFC 9849).
func echConfigs(t testing.TB) []byte {
	t.Helper()
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	short := func(b, v []byte) []byte { return append(binary.BigEndian.AppendUint16(b, uint16(len(v))), v...) }
	c := []byte{1}
	c = binary.BigEndian.AppendUint16(c, 0x20) // DHKEM(X25519)
	c = short(c, key.PublicKey().Bytes())
	c = short(c, []byte{0, 1, 0, 1}) // HKDF-SHA256, AES-128-GCM
	c = append(c, 0, byte(len("public.example")))
	c = append(c, "public.example"...)
	c = short(c, nil)
	return short(nil, short([]byte{0xfe, 0x0d}, c))
}

func TestNamesOfTLS(t *testing.T) {
	for name, c := range map[string]struct {
		cfg  *tls.Config
		want Found
	}{
		"name":    {&tls.Config{ServerName: "Packages.Example.org"}, Found{TLS, "packages.example.org", false}},
		"old":     {&tls.Config{ServerName: "old.example.org", MaxVersion: tls.VersionTLS12}, Found{TLS, "old.example.org", false}},
		"no name": {&tls.Config{InsecureSkipVerify: true}, Found{Kind: TLS}},
		"address": {&tls.Config{ServerName: "192.0.2.1"}, Found{Kind: TLS}},
		"hidden": {&tls.Config{ServerName: "inner.example", EncryptedClientHelloConfigList: echConfigs(t), MinVersion: tls.VersionTLS13},
			Found{TLS, "public.example", true}},
	} {
		t.Run(name, func(t *testing.T) {
			b := hello(t, c.cfg)
			if got, err := Parse(b); err != nil || got != c.want {
				t.Fatalf("Parse = %+v, %v", got, err)
			}
			for n := range b {
				if got, err := Parse(b[:n]); !errors.Is(err, ErrMore) {
					t.Fatalf("%d of %d bytes: %+v, %v", n, len(b), got, err)
				}
			}
			if got, err := Parse(append(b, "more"...)); err != nil || got != c.want {
				t.Errorf("with bytes after it: %+v, %v", got, err)
			}
		})
	}
}

// TestAHelloInManyRecords splits a handshake message, as clients may.
func TestAHelloInManyRecords(t *testing.T) {
	b := hello(t, &tls.Config{ServerName: "split.example.org"})
	var split []byte
	for rest := b[5:]; len(rest) > 0; {
		n := min(len(rest), 100)
		split = append(binary.BigEndian.AppendUint16(append(split, b[:3]...), uint16(n)), rest[:n]...)
		rest = rest[n:]
	}
	if got, err := Parse(split); err != nil || got.Name != "split.example.org" {
		t.Errorf("Parse = %+v, %v", got, err)
	}
}

func TestNamesOfHTTP(t *testing.T) {
	for text, want := range map[string]Found{
		"GET / HTTP/1.1\r\nHost: A.example.org\r\n\r\n":                             {HTTP, "a.example.org", false},
		"POST /x HTTP/1.1\r\nAccept: */*\r\nHost: a.example.org:8080\r\n\r\nbody\n": {HTTP, "a.example.org", false},
		"GET / HTTP/1.0\r\n\r\n":                                                    {Kind: HTTP},
		"GET / HTTP/1.1\r\nHost: [2001:db8::1]:80\r\n\r\n":                          {HTTP, "2001:db8::1", false},
		"EHLO mail.example.org\r\n":                                                 {},
		"SSH-2.0-OpenSSH\r\n":                                                       {},
		"\x00\x01":                                                                  {},
		"user anonymous\r\n":                                                        {},
	} {
		if got, err := Parse([]byte(text)); err != nil || got != want {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}

func TestBytesThatSayTwoThings(t *testing.T) {
	for _, text := range []string{
		"GET http://a.example/ HTTP/1.1\r\nHost: b.example\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a.example\r\nHost: b.example\r\n\r\n",
		"GET / HTTP/1.1\nHost: a.example\r\nX: y\r\n\r\n",
		"GET / HTTP/1.1\r\nX: y\nHost: b.example\r\nHost: a.example\r\n\r\n",
		"GET / HTTP/1.1\r\nHost : a.example\r\n\r\n",
		"CONNECT a.example:443 HTTP/1.1\r\nHost: a.example\r\n\r\n",
		"\x16\x03\x01\x00\x05hello",
		"\x16\x03\x01\xff\xff" + strings.Repeat("x", 100),
	} {
		if got, err := Parse([]byte(text)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}

func TestThereIsALimit(t *testing.T) {
	for _, b := range [][]byte{
		[]byte("GET / HTTP/1.1\r\nX: " + strings.Repeat("x", MaxBytes)),
		[]byte("G" + strings.Repeat("E", MaxBytes)),
		append([]byte{0x16, 3, 1, 0x40, 0, 1, 0, 0xff, 0xff}, make([]byte, MaxBytes)...),
	} {
		if got, err := Parse(b); errors.Is(err, ErrMore) {
			t.Errorf("%d bytes are not enough: %+v", len(b), got)
		}
	}
}

// pair returns both ends of a stream.
func pair(t *testing.T) (near, far *os.File) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	near, far = os.NewFile(uintptr(fds[0]), "near"), os.NewFile(uintptr(fds[1]), "far")
	t.Cleanup(func() { near.Close(); far.Close() })
	return near, far
}

type result struct {
	Found
	error
}

func await(near *os.File, limits Timeouts) chan result {
	done := make(chan result, 1)
	go func() {
		f, err := Await(context.Background(), near, limits)
		done <- result{f, err}
	}()
	return done
}

func TestAwaitLeavesTheBytes(t *testing.T) {
	near, far := pair(t)
	b := hello(t, &tls.Config{ServerName: "a.example.org"})
	done := await(near, Timeouts{First: time.Minute, Rest: time.Minute})
	for part := range bytes.SplitAfterSeq(b, []byte{0}) { // many writes
		if _, err := far.Write(part); err != nil {
			t.Fatal(err)
		}
	}
	if r := <-done; r.error != nil || r.Name != "a.example.org" {
		t.Fatalf("Await = %+v", r)
	}
	got := make([]byte, len(b))
	if _, err := io.ReadFull(near, got); err != nil || !bytes.Equal(got, b) {
		t.Errorf("the bytes are gone: %v", err)
	}
}

func TestAwaitEnds(t *testing.T) {
	for name, c := range map[string]struct {
		limits Timeouts
		say    string
		hangUp bool
		want   error
	}{
		"silence":             {Timeouts{First: 20 * time.Millisecond}, "", false, os.ErrDeadlineExceeded},
		"a beginning":         {Timeouts{Rest: 20 * time.Millisecond}, "GET / HT", false, os.ErrDeadlineExceeded},
		"end":                 {Timeouts{}, "", true, io.EOF},
		"end after beginning": {Timeouts{}, "\x16\x03", true, ErrMalformed},
		"something else":      {Timeouts{}, "\x00", false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			near, far := pair(t)
			done := await(near, c.limits)
			if _, err := io.WriteString(far, c.say); err != nil && c.say != "" {
				t.Fatal(err)
			}
			if c.hangUp {
				far.Close()
			}
			if r := <-done; !errors.Is(r.error, c.want) || c.want == nil && r.Kind != Unknown {
				t.Errorf("Await = %+v", r)
			}
		})
	}
}

func TestAwaitGivesUp(t *testing.T) {
	near, far := pair(t)
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := Await(ctx, near, Timeouts{First: time.Minute, Rest: time.Minute})
		done <- err
	}()
	if _, err := io.WriteString(far, "GET "); err != nil {
		t.Fatal(err)
	}
	cancel(cause)
	if err := <-done; err != cause {
		t.Errorf("Await = %v", err)
	}
	// The socket is as it was.
	if b := make([]byte, 4); true {
		if _, err := io.ReadFull(near, b); err != nil || string(b) != "GET " {
			t.Errorf("read %q: %v", b, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(hello(f, &tls.Config{ServerName: "packages.example.org"}))
	f.Add(hello(f, &tls.Config{ServerName: "a.example", EncryptedClientHelloConfigList: echConfigs(f), MinVersion: tls.VersionTLS13}))
	f.Add([]byte("GET /a HTTP/1.1\r\nHost: a.example\r\n\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		found, err := Parse(b)
		if err != nil {
			if len(b) >= MaxBytes && errors.Is(err, ErrMore) {
				t.Fatal("there is no limit")
			}
			return
		}
		if found.Name != strings.ToLower(found.Name) || found.Kind == Unknown && found.Name != "" {
			t.Fatalf("found %+v", found)
		}
		// What comes later changes nothing.
		if again, err := Parse(append(bytes.Clone(b), "\r\nHost: other.example\r\n\r\n"...)); err != nil && len(b) < MaxBytes/2 || err == nil && again != found {
			t.Fatalf("found %+v, and with more bytes %+v (%v)", found, again, err)
		}
	})
}

// TestRequestsThatServersReadDifferently are malformed at once, or incomplete: they are never something else, which
// would pass without a name.
func TestRequestsThatServersReadDifferently(t *testing.T) {
	for text, want := range map[string]error{
		"\r\nGET / HTTP/1.1\r\nHost: a.test\r\n\r\n": ErrMalformed, "\nGET / HTTP/1.1\r\nHost: a.test\r\n\r\n": ErrMalformed,
		"GET / HTTP/1.1\nHost: a.test\n\n": ErrMalformed, "GET / HTTP/1.1\r\nHost: a.test\n\r\n": ErrMalformed,
		"GET\t/\tHTTP/1.1\r\nHost: a.test\r\n\r\n": ErrMalformed, "GET / http/1.1\r\nHost: a.test\r\n\r\n": ErrMalformed,
		"\r\n": ErrMore, "GET": ErrMore, "GET / HT": ErrMore, "GET / HTTP/1.1\r\nHost: a.test": ErrMore, "GET / HTTP/1.1\rHost: a.test\r\r": ErrMore,
	} {
		if got, err := Parse([]byte(text)); !errors.Is(err, want) || got.Kind != HTTP {
			t.Errorf("%q: %+v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"words", "AMQP\x00\x00\x09\x01", "\r\n\x16\x03", "\x41\x00\x00\x00", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "hello there"} {
		if got, err := Parse([]byte(text)); err != nil || got != (Found{}) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}
