package held

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/polltest"
	"ramet.dev/ramet/internal/storage/hostfs"
)

// server is a Sender that remembers what it was sent.
type server struct {
	mu   sync.Mutex
	got  []string // "id method target host header body"
	fail func(*Request) error
}

// Send implements Sender.
func (s *server) Send(ctx context.Context, r *Request, body io.Reader) (*http.Response, error) {
	if s.fail != nil {
		if err := s.fail(r); errors.Is(err, ErrNotSent) {
			return nil, err
		}
	}
	req, err := r.HTTP(ctx, body)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotSent, err)
	}
	b, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.got = append(s.got, strings.Join([]string{req.Method, req.URL.String(), req.Host, req.Header.Get("Authorization"), string(b)}, " "))
	s.mu.Unlock()
	if s.fail != nil {
		if err := s.fail(r); err != nil {
			return nil, err
		}
	}
	return &http.Response{StatusCode: http.StatusCreated, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("made"))}, nil
}

func (s *server) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { s.got = nil }()
	return s.got
}

var origin = Origin{Sandbox: "sbx_a", Name: "api.example.com", Port: 443, TLS: true}

func openQueue(t *testing.T, fs hostfs.FS, dir string, s Sender, edit func(*Limits)) *Queue {
	t.Helper()
	limits := DefaultLimits
	if edit != nil {
		edit(&limits)
	}
	q, err := Open(fs, dir, s, limits)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(q.Close)
	return q
}

func request(t *testing.T, method, body string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "https://api.example.com/v1/items?x=%20", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer ramet-secret-x")
	return r
}

const sentText = "POST https://api.example.com:443/v1/items?x=%20 api.example.com Bearer ramet-secret-x body"

// hold adds a request and returns its id.
func hold(t *testing.T, q *Queue, o Origin) string {
	t.Helper()
	r, err := q.Add(o, request(t, "POST", "body"))
	if err != nil {
		t.Fatal(err)
	}
	return r.ID
}

func state(t *testing.T, q *Queue, id string) State {
	t.Helper()
	for _, r := range q.List("") {
		if r.ID == id {
			return r.State
		}
	}
	return ""
}

func files(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestRelease(t *testing.T) {
	dir, s := filepath.Join(t.TempDir(), "held"), &server{}
	q := openQueue(t, hostfs.OS, dir, s, nil)
	id := hold(t, q, origin)
	list := q.List("sbx_a")
	if len(list) != 1 || list[0].State != Waiting || list[0].Size != 4 || list[0].Target != "/v1/items?x=%20" || list[0].Header != nil ||
		list[0].Digest != "230d8358dc8e8890b4c58deeb62912ee2f20357ae92a5cc861b98e68fe31acb5" {
		t.Errorf("the list is %+v", list)
	}
	if got := s.take(); got != nil {
		t.Errorf("a held request was sent: %q", got)
	}
	r, err := q.Release(t.Context(), id, false)
	if err != nil || r.State != Sent || r.Status != http.StatusCreated {
		t.Errorf("it is %+v, %v", r, err)
	}
	if got := s.take(); !slices.Equal(got, []string{sentText}) {
		t.Errorf("the server got %q", got)
	}
	if _, err := q.Release(t.Context(), id, true); api.CodeOf(err) != api.CodeWrongState {
		t.Errorf("it is released again: %v", err)
	}
	if err := q.Drop(id); api.CodeOf(err) != api.CodeWrongState {
		t.Errorf("what was sent is dropped: %v", err)
	}
	if got := files(t, dir); !slices.Equal(got, []string{id + recordSuffix}) {
		t.Errorf("the files are %q", got)
	}
	if _, err := q.Release(t.Context(), "req_x", false); api.CodeOf(err) != api.CodeNotFound {
		t.Errorf("no such request: %v", err)
	}
}

func TestDrop(t *testing.T) {
	dir, s := filepath.Join(t.TempDir(), "held"), &server{}
	q := openQueue(t, hostfs.OS, dir, s, nil)
	a, b, c := hold(t, q, origin), hold(t, q, origin), hold(t, q, Origin{Sandbox: "sbx_b", Name: "api.example.com", Port: 443})
	if err := q.Drop(a); err != nil {
		t.Fatal(err)
	}
	if err := q.DropSandbox("sbx_a", false); err != nil {
		t.Fatal(err)
	}
	if state(t, q, a) != Dropped || state(t, q, b) != Dropped || state(t, q, c) != Waiting || s.take() != nil {
		t.Errorf("they are %+v", q.List(""))
	}
	if _, err := q.Release(t.Context(), a, true); api.CodeOf(err) != api.CodeWrongState {
		t.Errorf("what was dropped is released: %v", err)
	}
	if got := files(t, dir); len(got) != 4 {
		t.Errorf("the files are %q", got)
	}
}

// TestGuestWaits has a guest that gets the server's answer, one that is told that its request
// was dropped, and one that goes away.
func TestGuestWaits(t *testing.T) {
	s := &server{}
	q := openQueue(t, hostfs.OS, filepath.Join(t.TempDir(), "held"), s, nil)
	rt := q.Transport(origin, 0, Told{}, nil)
	ask := func(ctx context.Context) chan answer {
		done := make(chan answer, 1)
		r := request(t, "POST", "body").WithContext(ctx)
		go func() {
			res, err := rt.RoundTrip(r)
			done <- answer{res, err}
		}()
		return done
	}
	waiting := func(n int) []Request {
		polltest.Eventually(t, 10*time.Second, fmt.Sprintf("%d requests wait", n), func() bool {
			return len(slices.DeleteFunc(q.List(""), func(r Request) bool { return r.State != Waiting })) == n
		})
		return slices.DeleteFunc(q.List(""), func(r Request) bool { return r.State != Waiting })
	}
	done := ask(t.Context())
	if _, err := q.Release(t.Context(), waiting(1)[0].ID, false); err != nil {
		t.Fatal(err)
	}
	a := <-done
	if a.err != nil || a.res.StatusCode != http.StatusCreated {
		t.Fatalf("the guest got %+v", a)
	}
	if b, err := io.ReadAll(a.res.Body); err != nil || string(b) != "made" {
		t.Errorf("the guest got %q, %v", b, err)
	}
	if err := a.res.Body.Close(); err != nil {
		t.Error(err)
	}

	done = ask(t.Context())
	if err := q.Drop(waiting(1)[0].ID); err != nil {
		t.Fatal(err)
	}
	if a = <-done; a.err != nil || a.res.StatusCode != http.StatusForbidden || a.res.Header.Get(HeldHeader) == "" {
		t.Errorf("the guest got %+v", a)
	}

	ctx, cancel := context.WithCancel(t.Context())
	done = ask(ctx)
	id := waiting(1)[0].ID
	cancel()
	if a = <-done; !errors.Is(a.err, context.Canceled) {
		t.Errorf("the guest got %+v", a)
	}
	s.take()
	if r, err := q.Release(t.Context(), id, false); err != nil || r.State != Sent || len(s.take()) != 1 {
		t.Errorf("the request of a guest that went away is %+v, %v", r, err)
	}
}

func TestTransport(t *testing.T) {
	s := &server{}
	q := openQueue(t, hostfs.OS, filepath.Join(t.TempDir(), "held"), s, func(l *Limits) { l.Requests, l.Body, l.Bytes = 3, 10, 15 })
	passed := &http.Response{StatusCode: http.StatusNoContent, Body: http.NoBody}
	rt := q.Transport(origin, time.Millisecond, Told{}, transportFunc(func(*http.Request) (*http.Response, error) { return passed, nil }))
	for _, c := range []struct {
		method, body, header, value string
		want                        int
	}{
		{"GET", "", "", "", 204},
		{"HEAD", "", "", "", 204},
		{"OPTIONS", "", "", "", 204},
		{"TRACE", "", "", "", 403},
		{"GET", "", "X_Method_Override", "TRACE", 403},
		{"GET", "", "X-HTTP-Method-Override", "DELETE", 425},
		{"GET", "", "Upgrade", "websocket", 403},
		{"POST", "0123456789a", "", "", 429}, // one body
		{"DELETE", "0123456789", "", "", 425},
		{"PUT", "012345", "", "", 429}, // all bodies
		{"get", "", "", "", 425},
		{"PATCH", "", "", "", 429}, // requests
	} {
		r := request(t, c.method, c.body)
		if c.header != "" {
			r.Header.Set(c.header, c.value)
		}
		res, err := rt.RoundTrip(r)
		if err != nil || res.StatusCode != c.want {
			t.Errorf("%s %q %s: %+v, %v", c.method, c.body, c.value, res, err)
		}
		if err == nil && (res.StatusCode == 425) != strings.HasPrefix(res.Header.Get(HeldHeader), "req_") {
			t.Errorf("%s: the header is %v", c.method, res.Header)
		}
	}
	if got := s.take(); got != nil {
		t.Errorf("a held request was sent: %q", got)
	}
	if len(q.List("")) != 3 || q.room.use["sbx_a"].bytes != 10 || q.room.use["sbx_a"].requests != 3 {
		t.Errorf("held are %+v, %+v", q.List(""), q.room.use["sbx_a"])
	}
	if err := q.DropSandbox("sbx_a", false); err != nil || len(q.room.use) != 0 {
		t.Errorf("after dropping %v are in use: %v", q.room.use, err)
	}
}

type transportFunc func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f transportFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestGuestBreaksOff in the middle of a body: nothing is held.
// TestBytesThatAreNotUTF8 keeps what a guest writes in its headers as it is.
func TestBytesThatAreNotUTF8(t *testing.T) {
	dir, s := filepath.Join(t.TempDir(), "held"), &server{}
	q := openQueue(t, hostfs.OS, dir, s, nil)
	r := request(t, "POST", "body")
	const odd = "caf\xe9 \xc3\xa9 \xff"
	r.Header.Set("Authorization", odd)
	r.URL.RawQuery = "q=\xe9"
	added, err := q.Add(origin, r)
	if err != nil {
		t.Fatal(err)
	}
	q.Close()
	q = openQueue(t, hostfs.OS, dir, s, nil)
	if _, err := q.Release(t.Context(), added.ID, false); err != nil {
		t.Fatal(err)
	}
	if got := s.take(); !slices.Equal(got, []string{"POST https://api.example.com:443/v1/items?q=\xe9 api.example.com " + odd + " body"}) {
		t.Errorf("the server has seen %q", got)
	}
}

func TestGuestBreaksOff(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "held")
	q := openQueue(t, hostfs.OS, dir, &server{}, nil)
	r := request(t, "POST", "")
	r.Body = io.NopCloser(io.MultiReader(strings.NewReader("half"), readerFunc(func([]byte) (int, error) { return 0, io.ErrUnexpectedEOF })))
	if _, err := q.Transport(origin, 0, Told{}, nil).RoundTrip(r); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("the error is %v", err)
	}
	if len(q.List("")) != 0 || len(files(t, dir)) != 0 || len(q.room.use) != 0 {
		t.Errorf("held are %+v, %q, %+v", q.List(""), files(t, dir), q.room.use)
	}
}

type readerFunc func([]byte) (int, error)

// Read implements io.Reader.
func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

// TestServerFails has servers that are not reached, and that break off.
func TestServerFails(t *testing.T) {
	s := &server{fail: func(*Request) error { return fmt.Errorf("%w: connection refused", ErrNotSent) }}
	q := openQueue(t, hostfs.OS, filepath.Join(t.TempDir(), "held"), s, nil)
	id := hold(t, q, origin)
	if r, err := q.Release(t.Context(), id, false); !errors.Is(err, ErrNotSent) || r.State != Waiting || !strings.Contains(r.Note, "refused") {
		t.Errorf("a server that is not reached: %+v, %v", r, err)
	}
	s.fail = func(*Request) error { return io.ErrUnexpectedEOF }
	if r, err := q.Release(t.Context(), id, false); !errors.Is(err, io.ErrUnexpectedEOF) || r.State != Unknown {
		t.Errorf("a server that breaks off: %+v, %v", r, err)
	}
	s.fail = nil
	if _, err := q.Release(t.Context(), id, false); api.CodeOf(err) != api.CodeWrongState || len(s.take()) != 1 {
		t.Errorf("an unknown request is sent again: %v", err)
	}
	if r, err := q.Release(t.Context(), id, true); err != nil || r.State != Sent || len(s.take()) != 1 {
		t.Errorf("an unknown request is sent again, as it was told: %+v, %v", r, err)
	}
}

func TestReleaseSandboxKeepsTheOrder(t *testing.T) {
	dir, s := filepath.Join(t.TempDir(), "held"), &server{}
	q := openQueue(t, hostfs.OS, dir, s, nil)
	var want []string
	for i := range 10 {
		body := fmt.Sprint(i)
		if _, err := q.Add(origin, request(t, "POST", body)); err != nil {
			t.Fatal(err)
		}
		want = append(want, strings.Replace(sentText, "body", body, 1))
	}
	other := hold(t, q, Origin{Sandbox: "sbx_b", Name: "api.example.com", Port: 443})
	if err := q.ReleaseSandbox(t.Context(), "sbx_a"); err != nil {
		t.Fatal(err)
	}
	if got := s.take(); !slices.Equal(got, want) || state(t, q, other) != Waiting {
		t.Errorf("the server got %q", got)
	}
}

// TestNextProcess opens the directory again, as after a kill.
func TestNextProcess(t *testing.T) {
	dir, s := filepath.Join(t.TempDir(), "held"), &server{}
	q := openQueue(t, hostfs.OS, dir, s, nil)
	ids := map[State]string{}
	for _, st := range []State{Waiting, Released, Sending, Unknown} {
		id := hold(t, q, origin)
		ids[st] = id
		it, err := q.find(id)
		if err != nil {
			t.Fatal(err)
		}
		if err := q.set(it, st, nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{".new-1", "req_aaaaaaaaaaaaaaaa.body"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	next := openQueue(t, hostfs.OS, dir, s, nil)
	if got := s.take(); got != nil {
		t.Errorf("opening sent %q", got)
	}
	if err := next.Resume(t.Context(), every); err != nil {
		t.Fatal(err)
	}
	for was, is := range map[State]State{Waiting: Waiting, Released: Sent, Sending: Unknown, Unknown: Unknown} {
		if got := state(t, next, ids[was]); got != is {
			t.Errorf("a request that was %s is %s, not %s", was, got, is)
		}
	}
	if got := s.take(); !slices.Equal(got, []string{sentText}) {
		t.Errorf("the server got %q", got)
	}
	if got := files(t, dir); len(got) != 7 || slices.Contains(got, ".new-1") {
		t.Errorf("the files are %q", got)
	}
	if _, err := next.Release(t.Context(), ids[Sending], false); api.CodeOf(err) != api.CodeWrongState {
		t.Errorf("it is sent again by itself: %v", err)
	}
}

func TestCorruptRecord(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "held")
	q := openQueue(t, hostfs.OS, dir, &server{}, nil)
	id := hold(t, q, origin)
	if err := os.WriteFile(filepath.Join(dir, id+recordSuffix), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(hostfs.OS, dir, &server{}, DefaultLimits); api.CodeOf(err) != api.CodeCorrupt {
		t.Errorf("the error is %v", err)
	}
}

func TestExpiry(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "held")
	synctest.Test(t, func(t *testing.T) {
		q, err := Open(hostfs.OS, dir, &server{}, Limits{Requests: 10, Bytes: 100, Body: 100, Age: time.Hour, Finished: 10})
		if err != nil {
			t.Fatal(err)
		}
		defer q.Close()
		id := hold(t, q, origin)
		<-time.After(time.Hour - time.Second) // of the clock of the bubble
		synctest.Wait()
		if got := state(t, q, id); got != Waiting {
			t.Errorf("before its time it is %s", got)
		}
		<-time.After(2 * time.Second)
		synctest.Wait()
		if got := state(t, q, id); got != Expired {
			t.Errorf("after its time it is %s", got)
		}
	})
	if got := files(t, dir); len(got) != 1 {
		t.Errorf("the files are %q", got)
	}
}

func TestFinishedAreForgotten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "held")
	q := openQueue(t, hostfs.OS, dir, &server{}, func(l *Limits) { l.Finished = 3 })
	var ids []string
	for range 5 {
		id := hold(t, q, origin)
		ids = append(ids, id)
		if err := q.Drop(id); err != nil {
			t.Fatal(err)
		}
	}
	var left []string
	for _, r := range q.List("") {
		left = append(left, r.ID)
	}
	if !slices.Equal(left, ids[2:]) || len(files(t, dir)) != 3 {
		t.Errorf("left are %q and %q", left, files(t, dir))
	}
}

// every knows all sandboxes.
func every(string) bool { return true }

// TestStranded has requests that were released by a process which did not send them, of a sandbox
// that the next one does not know.
func TestStranded(t *testing.T) {
	dir, s := filepath.Join(t.TempDir(), "held"), &server{}
	ids := make([]string, 4)
	first := openQueue(t, hostfs.OS, dir, s, nil)
	for i := range ids {
		ids[i] = hold(t, first, origin)
		it, err := first.find(ids[i])
		if err == nil {
			err = first.release(it, false)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	first.Close()
	q := openQueue(t, hostfs.OS, dir, s, nil)
	if err := q.Resume(t.Context(), func(sandbox string) bool { return sandbox != origin.Sandbox }); err != nil || s.take() != nil || q.Sending() != 0 {
		t.Errorf("requests of a sandbox that is not known: %v", err)
	}
	if err := q.Drop(ids[0]); err != nil || state(t, q, ids[0]) != Dropped {
		t.Errorf("drop: %v", err)
	}
	if r, err := q.Release(t.Context(), ids[1], false); err != nil || r.State != Sent {
		t.Errorf("release: %+v, %v", r, err)
	}
	if err := q.ReleaseSandbox(t.Context(), origin.Sandbox); err != nil || len(s.take()) != 3 {
		t.Errorf("release all: %v", err)
	}
	if err := q.DropSandbox(origin.Sandbox, true); err != nil || len(q.List("")) != 0 || len(files(t, dir)) != 0 {
		t.Errorf("forget: %v, %+v, files %v", err, q.List(""), files(t, dir))
	}
	if _, err := q.Get(ids[0]); api.CodeOf(err) != api.CodeNotFound {
		t.Errorf("a request that is forgotten: %v", err)
	}
}

// TestARequestIsSentByOne releases one while it is being sent.
func TestARequestIsSentByOne(t *testing.T) {
	began, end := make(chan bool), make(chan bool)
	s := &server{fail: func(*Request) error {
		began <- true
		<-end
		return fmt.Errorf("%w: nobody listens", ErrNotSent)
	}}
	q := openQueue(t, hostfs.OS, filepath.Join(t.TempDir(), "held"), s, nil)
	id := hold(t, q, origin)
	done := make(chan error, 1)
	go func() {
		_, err := q.Release(t.Context(), id, false)
		done <- err
	}()
	<-began
	if n := q.Sending(); n != 1 {
		t.Errorf("%d are being sent", n)
	}
	if _, err := q.Release(t.Context(), id, true); api.CodeOf(err) != api.CodeWrongState {
		t.Errorf("it is released again: %v", err)
	}
	if err := q.Drop(id); api.CodeOf(err) != api.CodeWrongState {
		t.Errorf("it is dropped: %v", err)
	}
	if err := q.Resume(t.Context(), every); err != nil {
		t.Errorf("resume: %v", err)
	}
	end <- true
	if err := <-done; !errors.Is(err, ErrNotSent) || state(t, q, id) != Waiting {
		t.Errorf("it is %s: %v", state(t, q, id), err)
	}
}

// TestOldRecordsGo removes those of finished requests that nobody has asked for in a long time.
func TestOldRecordsGo(t *testing.T) {
	dir, s := filepath.Join(t.TempDir(), "held"), &server{}
	first := openQueue(t, hostfs.OS, dir, s, nil)
	dropped, waiting := hold(t, first, origin), hold(t, first, origin)
	if err := first.Drop(dropped); err != nil {
		t.Fatal(err)
	}
	first.Close()
	if q := openQueue(t, hostfs.OS, dir, s, nil); len(q.List("")) != 2 {
		t.Errorf("there are %+v", q.List(""))
	} else {
		q.Close()
	}
	q := openQueue(t, hostfs.OS, dir, s, func(l *Limits) { l.Age = time.Nanosecond })
	if r, err := q.Get(dropped); api.CodeOf(err) != api.CodeNotFound {
		t.Errorf("it is %+v, %v", r, err)
	}
	polltest.Eventually(t, 10*time.Second, "the other expires", func() bool { return state(t, q, waiting) == Expired })
}
