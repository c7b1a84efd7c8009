package relay

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// flow is a relay that runs, with both of the ends that are outside.
type flow struct {
	*Relay
	t      *testing.T
	guest  *os.File     // as the sentry has it
	server *net.TCPConn // as the server has it
	ended  chan struct{}
	done   chan error
}

// newFlow returns a flow that runs until the end of the test.
func newFlow(t *testing.T, limit Limiter, before func(context.Context) error) *flow {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ours, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := &flow{t: t, guest: os.NewFile(uintptr(fds[0]), "guest"), server: theirs.(*net.TCPConn), ended: make(chan struct{}), done: make(chan error, 1)}
	if f.Relay, err = New(os.NewFile(uintptr(fds[1]), "pair"), ours.(*net.TCPConn), Options{Up: limit, Down: limit, Before: before, ServerEnded: func() { close(f.ended) }}); err != nil {
		t.Fatal(err)
	}
	running := make(chan struct{})
	go func() {
		defer close(running)
		f.done <- f.Run()
	}()
	t.Cleanup(func() {
		f.Abort(errors.New("the test has ended"))
		<-running
		f.Close()
		f.guest.Close()
		f.server.Close()
	})
	return f
}

// wait returns the result of Run.
func (f *flow) wait() error {
	f.t.Helper()
	select {
	case err := <-f.done:
		return err
	case <-time.After(10 * time.Second):
		f.t.Fatal("the relay does not end")
		return nil
	}
}

func shutdown(t *testing.T, f *os.File) {
	t.Helper()
	raw, err := f.SyscallConn()
	if err == nil {
		cerr := raw.Control(func(fd uintptr) { err = unix.Shutdown(int(fd), unix.SHUT_WR) })
		err = errors.Join(err, cerr)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestBytesPassBothWays sends different bytes in both directions at once, and ends one after
// the other.
func TestBytesPassBothWays(t *testing.T) {
	f := newFlow(t, nil, nil)
	up, down := make([]byte, 5<<20+7), make([]byte, 9<<20+1)
	rand.Read(up)
	rand.Read(down)
	var wg sync.WaitGroup
	var gotUp, gotDown []byte
	wg.Go(func() {
		if _, err := f.guest.Write(up); err != nil {
			t.Error(err)
		}
		shutdown(t, f.guest)
	})
	wg.Go(func() {
		var err error
		if gotUp, err = io.ReadAll(f.server); err != nil {
			t.Error(err)
		}
		// The guest has ended, and is still sent what the server has.
		if _, err := f.server.Write(down); err != nil {
			t.Error(err)
		}
		f.server.Close()
	})
	wg.Go(func() {
		var err error
		if gotDown, err = io.ReadAll(f.guest); err != nil {
			t.Error(err)
		}
		select {
		case <-f.ended:
		default:
			t.Error("the guest saw the end before it was announced")
		}
	})
	wg.Wait()
	if err := f.wait(); err != nil {
		t.Error(err)
	}
	if sha256.Sum256(up) != sha256.Sum256(gotUp) || sha256.Sum256(down) != sha256.Sum256(gotDown) {
		t.Error("bytes were changed")
	}
	if u, d := f.Bytes(); u != int64(len(up)) || d != int64(len(down)) {
		t.Errorf("counted %d up and %d down", u, d)
	}
}

func TestTheServersEndIsAnnouncedAndTheGuestMayGoOn(t *testing.T) {
	f := newFlow(t, nil, nil)
	if err := f.server.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	<-f.ended
	if n, err := f.guest.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Errorf("guest read %d: %v", n, err)
	}
	if _, err := f.guest.Write([]byte("late")); err != nil {
		t.Fatal(err)
	}
	shutdown(t, f.guest)
	if b, err := io.ReadAll(f.server); string(b) != "late" || err != nil {
		t.Errorf("server read %q: %v", b, err)
	}
	if err := f.wait(); err != nil {
		t.Error(err)
	}
}

// TestResetsOfServersAreTold has the server reset in states in which Linux tells of it in
// different ways. What it sent before must reach the guest.
func TestResetsOfServersAreTold(t *testing.T) {
	for name, busy := range map[string]bool{"while the guest is silent": false, "while the guest sends": true} {
		t.Run(name, func(t *testing.T) {
			for range 50 {
				f := newFlow(t, nil, nil)
				var wg sync.WaitGroup
				if busy {
					wg.Go(func() {
						for {
							if _, err := f.guest.Write(make([]byte, 4096)); err != nil {
								return
							}
						}
					})
				}
				if _, err := f.server.Write(make([]byte, 10000)); err != nil {
					t.Fatal(err)
				}
				if n, err := io.ReadFull(f.guest, make([]byte, 10000)); err != nil {
					t.Errorf("the guest got %d bytes of 10000: %v", n, err)
				}
				if err := f.server.SetLinger(0); err != nil {
					t.Fatal(err)
				}
				f.server.Close()
				if err := f.wait(); !errors.Is(err, ErrServerReset) {
					t.Errorf("the relay ended with %v", err)
				}
				select {
				case <-f.ended:
					t.Error("a reset was announced as an end")
				default:
				}
				f.guest.Close()
				f.Close()
				wg.Wait()
			}
		})
	}
}

func TestAResetOfTheGuestReachesTheServer(t *testing.T) {
	f := newFlow(t, nil, nil)
	cause := errors.New("the guest reset")
	if _, err := f.guest.Write([]byte("x")); err != nil { // it runs when this has passed
		t.Fatal(err)
	}
	if _, err := f.server.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	f.Abort(cause)
	if err := f.wait(); err != cause {
		t.Errorf("the relay ended with %v", err)
	}
	f.Close()
	if _, err := f.server.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the server read %v", err)
	}
}

func TestAGuestThatIsGone(t *testing.T) {
	f := newFlow(t, nil, nil)
	if _, err := f.guest.Write([]byte("last words")); err != nil {
		t.Fatal(err)
	}
	f.guest.Close()
	f.GuestGone()
	if err := f.wait(); err != nil {
		t.Error(err)
	}
	f.Close()
	if b, err := io.ReadAll(f.server); string(b) != "last words" || err != nil {
		t.Errorf("the server read %q: %v", b, err)
	}
}

func TestNothingPassesBeforeItMay(t *testing.T) {
	refused := errors.New("refused")
	judge := make(chan error)
	f := newFlow(t, nil, func(context.Context) error { return <-judge })
	if _, err := f.guest.Write([]byte("secret")); err != nil {
		t.Fatal(err)
	}
	if _, err := f.server.Write([]byte("banner")); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 6)
	if _, err := io.ReadFull(f.guest, b); err != nil || string(b) != "banner" {
		t.Errorf("the guest read %q: %v", b, err)
	}
	judge <- refused
	if err := f.wait(); err != refused {
		t.Errorf("the relay ended with %v", err)
	}
	f.Close()
	if b, err := io.ReadAll(f.server); len(b) != 0 || !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the server read %q: %v", b, err)
	}
}

func TestAResetEndsWhatComesBefore(t *testing.T) {
	f := newFlow(t, nil, func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	})
	if err := f.server.SetLinger(0); err != nil {
		t.Fatal(err)
	}
	f.server.Close()
	if err := f.wait(); !errors.Is(err, ErrServerReset) {
		t.Errorf("the relay ended with %v", err)
	}
}

// TestAGuestThatNeverReads must not cost pipes, nor more memory than its socket has room for.
func TestAGuestThatNeverReads(t *testing.T) {
	f := newFlow(t, nil, nil)
	if err := f.server.SetWriteDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	n, err := f.server.Write(make([]byte, 64<<20))
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the server wrote %d bytes: %v", n, err)
	}
	if n > 16<<20 {
		t.Errorf("%d bytes are under way to a guest that does not read", n)
	}
	f.Abort(errors.New("enough"))
	f.wait()
}

// TestIdleFlowsCostNoPipes counts the descriptors of many flows.
func TestIdleFlowsCostNoPipes(t *testing.T) {
	before := openFiles(t)
	const flows = 100
	for range flows {
		f := newFlow(t, nil, nil)
		if _, err := f.guest.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(f.server, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	// Two ends of each are the test's own.
	if more := openFiles(t) - before - 4*flows; more > 2*keptPipes {
		t.Errorf("%d flows have %d descriptors besides their ends", flows, more)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// counter is a limiter that counts.
type counter struct {
	mu    sync.Mutex
	bytes int
	most  int
}

func (c *counter) WaitN(_ context.Context, n int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bytes += n
	c.most = max(c.most, n)
	return nil
}

// turn is what a counter is asked for at once.
const turn = 10_000

func (*counter) Most() int { return turn }

// never lets nothing pass.
type never struct{}

func (never) Most() int { return MaxWait }

func (never) WaitN(ctx context.Context, _ int) error { <-ctx.Done(); return ctx.Err() }

func TestTheLimiterIsAsked(t *testing.T) {
	var c counter
	f := newFlow(t, &c, nil)
	data := bytes.Repeat([]byte("abc"), 1<<20)
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := io.ReadFull(f.server, make([]byte, len(data))); err != nil {
			t.Error(err)
		}
	})
	if _, err := f.guest.Write(data); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bytes != len(data) || c.most > turn {
		t.Errorf("the limiter was asked for %d bytes of %d, at most %d at once", c.bytes, len(data), c.most)
	}
}

func TestAFlowThatWaitsForTheLimiterCanBeCut(t *testing.T) {
	f := newFlow(t, never{}, nil)
	if _, err := f.guest.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	cut := errors.New("cut")
	f.Abort(cut)
	if err := f.wait(); err != cut {
		t.Errorf("the relay ended with %v", err)
	}
}

func BenchmarkRelay(b *testing.B) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	ours, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	theirs, err := l.Accept()
	if err != nil {
		b.Fatal(err)
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		b.Fatal(err)
	}
	guest := os.NewFile(uintptr(fds[0]), "guest")
	r, err := New(os.NewFile(uintptr(fds[1]), "pair"), ours.(*net.TCPConn), Options{})
	if err != nil {
		b.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { r.Run() })
	wg.Go(func() { io.Copy(theirs, struct{ io.Reader }{&endless{int64(b.N) << 18}}); theirs.Close() })
	b.SetBytes(1 << 18)
	buf := make([]byte, 1<<18)
	for {
		if _, err := guest.Read(buf); err != nil {
			break
		}
	}
	guest.Close()
	wg.Wait()
	r.Close()
}

type endless struct{ left int64 }

func (e *endless) Read(b []byte) (int, error) {
	if e.left <= 0 {
		return 0, io.EOF
	}
	n := min(int64(len(b)), e.left)
	e.left -= n
	return int(n), nil
}
