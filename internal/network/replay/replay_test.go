package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// server counts what it is asked.
type server struct {
	mu   sync.Mutex
	n    int
	edit func(n int, res *http.Response) error
}

// RoundTrip implements http.RoundTripper.
func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	body := ""
	if r.Body != nil {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		body = string(b)
		defer r.Body.Close()
	}
	s.mu.Lock()
	s.n++
	n := s.n
	s.mu.Unlock()
	text := fmt.Sprintf("%d %s %s %s", n, r.Method, r.URL.Path, body)
	res := &http.Response{StatusCode: 200, Header: http.Header{"N": {fmt.Sprint(n)}}, Trailer: http.Header{"T": {fmt.Sprint(n)}}, Body: io.NopCloser(strings.NewReader(text)), ContentLength: -1}
	if s.edit != nil {
		if err := s.edit(n, res); err != nil {
			return nil, err
		}
	}
	return res, nil
}

func ask(t *testing.T, rt http.RoundTripper, method, path, body string, header ...string) (string, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "https://api.example.com"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	res, err := rt.RoundTrip(r)
	if err != nil {
		return "", err
	}
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return "", err
	}
	n := strings.Fields(string(b))
	if len(n) > 0 && (res.Header.Get("N") != n[0] || res.Trailer.Get("T") != n[0]) {
		t.Errorf("answer %q has the header %v and the trailer %v", b, res.Header, res.Trailer)
	}
	return string(b), res.Body.Close()
}

func expect(t *testing.T, rt http.RoundTripper, want, method, path, body string, header ...string) {
	t.Helper()
	if got, err := ask(t, rt, method, path, body, header...); err != nil || got != want {
		t.Errorf("%s %s %q is answered %q, %v, not %q", method, path, body, got, err, want)
	}
}

func TestBranchesSeeOneWorld(t *testing.T) {
	s := &server{}
	r := NewRecorder(DefaultLimits)
	a, b := r.Transport("a", "", s), r.Transport("b", "", s)
	expect(t, a, "1 GET /x ", "GET", "/x", "")
	expect(t, b, "1 GET /x ", "GET", "/x", "")
	expect(t, a, "2 GET /x ", "GET", "/x", "") // it asks again, and the world has gone on
	expect(t, b, "2 GET /x ", "GET", "/x", "")
	expect(t, b, "3 GET /x ", "GET", "/x", "") // the first to ask a third time
	expect(t, a, "3 GET /x ", "GET", "/x", "")
	expect(t, a, "4 POST /x body", "POST", "/x", "body")
	expect(t, b, "4 POST /x body", "POST", "/x", "body")
	expect(t, b, "5 POST /x other", "POST", "/x", "other")
	expect(t, b, "6 GET /y ", "GET", "/y", "")
	expect(t, b, "7 GET /x ", "GET", "/x", "", "Range", "bytes=0-1")
	expect(t, b, "8 GET /x ", "GET", "/x", "", "Accept", "text/html")
	expect(t, a, "7 GET /x ", "GET", "/x", "", "Range", "bytes=0-1", "User-Agent", "other")
	r.Forget("b")
	expect(t, b, "1 GET /x ", "GET", "/x", "")
}

func TestNotKept(t *testing.T) {
	for what, edit := range map[string]func(int, *http.Response) error{
		"failure of the server": func(_ int, res *http.Response) error { res.StatusCode = 503; return nil },
		"too many requests":     func(_ int, res *http.Response) error { res.StatusCode = 429; return nil },
		"stream":                func(_ int, res *http.Response) error { res.Header.Set("Content-Type", "text/event-stream"); return nil },
		"announced as large":    func(_ int, res *http.Response) error { res.ContentLength = 101; return nil },
		"large": func(n int, res *http.Response) error {
			res.Body = io.NopCloser(io.MultiReader(res.Body, strings.NewReader(strings.Repeat(" ", 100))))
			return nil
		},
	} {
		s := &server{edit: edit}
		limits := DefaultLimits
		limits.Body = 100
		r := NewRecorder(limits)
		for i, branch := range []string{"a", "b", "a"} {
			got, err := ask(t, r.Transport(branch, "", s), "GET", "/x", "")
			if err != nil || !strings.HasPrefix(got, fmt.Sprintf("%d GET /x ", i+1)) {
				t.Errorf("%s: answer %d is %q, %v", what, i, got, err)
			}
		}
		if r.count != 0 || r.bytes != 0 || len(r.answers) != 0 {
			t.Errorf("%s: %d answers with %d bytes are kept", what, r.count, r.bytes)
		}
	}
}

// TestBrokenAnswers breaks off on either side: the next branch asks for itself, and is the
// one whose answer is kept.
func TestBrokenAnswers(t *testing.T) {
	broken := errors.New("broken")
	s := &server{edit: func(n int, res *http.Response) error {
		switch n {
		case 1:
			return broken
		case 2:
			res.Body = io.NopCloser(io.MultiReader(strings.NewReader("half"), failing{broken}))
		}
		return nil
	}}
	r := NewRecorder(DefaultLimits)
	a, b := r.Transport("a", "", s), r.Transport("b", "", s)
	for range 2 {
		if _, err := ask(t, a, "GET", "/x", ""); !errors.Is(err, broken) {
			t.Errorf("the error is %v", err)
		}
	}
	req, err := http.NewRequestWithContext(t.Context(), "GET", "https://api.example.com/x", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := a.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	if err := res.Body.Close(); err != nil { // it was not read
		t.Error(err)
	}
	expect(t, b, "4 GET /x ", "GET", "/x", "")
	expect(t, a, "4 GET /x ", "GET", "/x", "")
}

type failing struct{ err error }

// Read implements io.Reader.
func (f failing) Read([]byte) (int, error) { return 0, f.err }

func TestLimits(t *testing.T) {
	s := &server{}
	r := NewRecorder(Limits{Answers: 2, Bytes: 1000, Body: 20, Wait: time.Minute})
	a, b := r.Transport("a", "", s), r.Transport("b", "", s)
	expect(t, a, "1 GET /1 ", "GET", "/1", "")
	expect(t, a, "2 GET /2 ", "GET", "/2", "")
	expect(t, a, "3 GET /3 ", "GET", "/3", "") // no room
	expect(t, b, "4 GET /3 ", "GET", "/3", "")
	expect(t, b, "1 GET /1 ", "GET", "/1", "")
	large := strings.Repeat("b", 21) // it arrives whole, and is not compared
	expect(t, a, "5 POST /1 "+large, "POST", "/1", large)
	expect(t, b, "6 POST /1 "+large, "POST", "/1", large)
	small := NewRecorder(Limits{Answers: 10, Bytes: 15, Body: 15, Wait: time.Minute})
	for i := range 4 {
		if _, err := ask(t, small.Transport("a", "", s), "GET", fmt.Sprintf("/%d", i), ""); err != nil {
			t.Fatal(err)
		}
	}
	if small.bytes > 15 || small.count != 1 {
		t.Errorf("%d answers with %d bytes are kept", small.count, small.bytes)
	}
}

// TestBodiesUnderWay take room of the answers until they are sent, or kept: what has none passes, and is not
// recorded.
func TestBodiesUnderWay(t *testing.T) {
	arrived, goOn := make(chan struct{}), make(chan struct{})
	s := &server{edit: func(n int, res *http.Response) error {
		if n <= 2 {
			arrived <- struct{}{}
			<-goOn
			res.StatusCode = 503
		}
		return nil
	}}
	r := NewRecorder(Limits{Answers: 10, Bytes: 250, Body: 99, Wait: time.Minute})
	var wg sync.WaitGroup
	for _, text := range []string{"a", "b"} {
		wg.Go(func() {
			if _, err := ask(t, r.Transport(text, "", s), "POST", "/"+text, strings.Repeat(text, 80)); err != nil {
				t.Error(err)
			}
		})
		<-arrived
	}
	c := strings.Repeat("c", 80)
	expect(t, r.Transport("c", "", s), "3 POST /c "+c, "POST", "/c", c)
	expect(t, r.Transport("d", "", s), "4 POST /c "+c, "POST", "/c", c)
	if r.count != 2 {
		t.Errorf("%d answers are recorded", r.count)
	}
	close(goOn)
	wg.Wait()
	expect(t, r.Transport("c", "", s), "5 POST /c "+c, "POST", "/c", c)
	expect(t, r.Transport("d", "", s), "5 POST /c "+c, "POST", "/c", c)
	// What fails, is too large, or is answered by what was kept gives its room back.
	failing := &server{edit: func(int, *http.Response) error { return errors.New("no server") }}
	if _, err := ask(t, r.Transport("e", "", failing), "POST", "/e", c); err == nil {
		t.Error("there is no server")
	}
	expect(t, r.Transport("e", "", s), "6 POST /e "+strings.Repeat("e", 110), "POST", "/e", strings.Repeat("e", 110))
	var kept int64
	for _, answers := range r.answers {
		for _, a := range answers {
			kept += int64(len(a.body))
		}
	}
	if r.bytes != kept || kept == 0 {
		t.Errorf("answers of %d bytes are kept, and %d count", kept, r.bytes)
	}
}

// TestWait has branches ask while the first one has no answer yet.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		arrived := make(chan struct{})
		s := &server{edit: func(n int, _ *http.Response) error {
			if n == 1 {
				<-arrived
			}
			return nil
		}}
		r := NewRecorder(DefaultLimits)
		got := make(chan string, 3)
		for _, branch := range []string{"a", "b", "c"} {
			go func() {
				text, err := ask(t, r.Transport(branch, "", s), "GET", "/x", "")
				if err != nil {
					t.Error(err)
				}
				got <- text
			}()
			synctest.Wait()
		}
		close(arrived)
		for range 3 {
			if text := <-got; text != "1 GET /x " {
				t.Errorf("the answer is %q", text)
			}
		}

		// One that takes too long is not waited for, and neither is one that nobody wants.
		arrived = make(chan struct{})
		s.n = 0
		done := make(chan struct{})
		go func() {
			defer close(done)
			if _, err := ask(t, r.Transport("a", "", s), "GET", "/y", ""); err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, "GET", "https://api.example.com/y", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Transport("c", "", s).RoundTrip(req); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the error is %v", err)
		}
		expect(t, r.Transport("b", "", s), "2 GET /y ", "GET", "/y", "")
		close(arrived)
		<-done
	})
}

func TestUpgradePasses(t *testing.T) {
	s := &server{}
	r := NewRecorder(DefaultLimits)
	for i, branch := range []string{"a", "b"} {
		expect(t, r.Transport(branch, "", s), fmt.Sprintf("%d GET /ws ", i+1), "GET", "/ws", "", "Upgrade", "websocket")
	}
}

// TestHeadersOfAQuestion tell questions apart only where the transport says so.
func TestHeadersOfAQuestion(t *testing.T) {
	for _, c := range []struct {
		headers []string
		same    bool
	}{{nil, true}, {[]string{"x-key"}, false}} {
		r, s := NewRecorder(DefaultLimits), &server{}
		one, err := ask(t, r.Transport("a", "", s, c.headers...), "GET", "/x", "", "X-Key", "1")
		if err != nil {
			t.Fatal(err)
		}
		two, err := ask(t, r.Transport("b", "", s, c.headers...), "GET", "/x", "", "X-Key", "2")
		if err != nil || (one == two) != c.same {
			t.Errorf("with %v: %q and %q, %v", c.headers, one, two, err)
		}
	}
}
