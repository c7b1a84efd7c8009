package e2b

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"
)

// TestABrokenAnswerIsReset: a client of HTTP/1 gets all that was sent, and then a reset.
func TestABrokenAnswerIsReset(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		defer resetIfBroken(w)
		_, _ = io.WriteString(w, "first")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}))
	defer srv.Close()
	resp, err := srv.Client().Get(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if string(got) != "first" || !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("it reads %q, %v", got, err)
	}
}
