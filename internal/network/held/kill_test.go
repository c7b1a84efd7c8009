package held

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"ramet.dev/ramet/internal/storage/hostfs"
)

// childDir and childServer make the test binary a process that holds and releases until it
// is killed.
const (
	childDir    = "RAMET_HELD_DIR"
	childServer = "RAMET_HELD_SERVER"
)

func TestMain(m *testing.M) {
	if os.Getenv(childDir) == "" {
		os.Exit(m.Run())
	}
	fmt.Println("error:", child(os.Getenv(childDir), os.Getenv(childServer)))
	os.Exit(1)
}

// overHTTP sends to a server of the test.
type overHTTP struct{ url string }

// Send implements Sender.
func (s overHTTP) Send(ctx context.Context, r *Request, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, r.Method, s.url+"/"+r.ID, body)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotSent, err)
	}
	return (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
}

// child tells each step on its standard output.
func child(dir, server string) error {
	q, err := Open(hostfs.OS, dir, overHTTP{server}, Limits{Requests: 1e6, Bytes: 1e9, Body: 1e6, Age: time.Hour, Finished: 1e6})
	if err != nil {
		return err
	}
	if err := q.Resume(context.Background(), every); err != nil {
		return err
	}
	for {
		req, err := http.NewRequest("POST", "http://api.example.com/", strings.NewReader("body"))
		if err != nil {
			return err
		}
		r, err := q.Add(origin, req)
		if err != nil {
			return err
		}
		fmt.Println("held", r.ID)
		if rand.IntN(4) == 0 {
			continue // it stays
		}
		if r, err = q.Release(context.Background(), r.ID, false); err != nil {
			return err
		}
		fmt.Println(r.State, r.ID)
	}
}

// TestKill kills processes at random moments.
func TestKill(t *testing.T) {
	kills := 5
	if n, err := strconv.Atoi(os.Getenv("RAMET_TEST_KILLS")); err == nil {
		kills = n
	}
	var mu sync.Mutex
	served := map[string]int{}
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		served[strings.TrimPrefix(r.URL.Path, "/")]++
	}))
	defer server.Close()
	dir := filepath.Join(t.TempDir(), "held")
	told := map[string]string{} // the last word about each request
	for range kills {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), childDir+"="+dir, childServer+"="+server.URL)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		// It is killed after some steps, and then a random time into the next one.
		steps := 1 + rand.IntN(20)
		timer := (*time.Timer)(nil)
		for s := bufio.NewScanner(out); s.Scan(); {
			word, id, _ := strings.Cut(s.Text(), " ")
			if word == "error:" {
				t.Error(s.Text())
			}
			told[id] = word
			if steps--; steps == 0 {
				timer = time.AfterFunc(time.Duration(rand.IntN(3000))*time.Microsecond, func() { _ = cmd.Process.Kill() })
			}
		}
		if timer != nil {
			timer.Stop()
		}
		_ = cmd.Wait() // it was killed
	}
	q := openQueue(t, hostfs.OS, dir, overHTTP{server.URL}, nil)
	if err := q.Resume(t.Context(), every); err != nil {
		t.Error(err)
	}
	states := map[string]State{}
	for _, r := range q.List("") {
		states[r.ID] = r.State
	}
	mu.Lock()
	defer mu.Unlock()
	for id, word := range told {
		st, n := states[id], served[id]
		switch {
		case st == "":
			t.Errorf("%s is lost after %q", id, word)
		case n > 1, st == Sent && n != 1, st == Waiting && n != 0, word == string(Sent) && st != Sent, !(st == Sent || st == Waiting || st == Unknown):
			t.Errorf("%s is %s after %q, and the server has seen it %d times", id, st, word, n)
		}
	}
	for id, n := range served {
		if n > 1 || states[id] == "" {
			t.Errorf("%s was sent %d times and is %q", id, n, states[id])
		}
	}
	t.Logf("%d requests, %d of which were sent", len(states), len(served))
}
