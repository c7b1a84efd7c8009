package run

import (
	"io"
	"testing"
)

// TestTurns reads one input by one connection after the other.
func TestTurns(t *testing.T) {
	r, w := io.Pipe()
	in := newSharedInput(r)
	over := make(chan struct{})
	first := &turn{sharedInput: in, done: over}
	if _, err := w.Write([]byte("first")); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 3)
	for _, want := range []string{"fir", "st"} {
		if n, err := first.Read(buf); string(buf[:n]) != want || err != nil {
			t.Fatalf("%q, %v, not %q", buf[:n], err, want)
		}
	}
	close(over)
	if _, err := first.Read(buf); err != errTurnOver {
		t.Errorf("a connection that ended reads on: %v", err)
	}
	go func() {
		_, _ = w.Write([]byte("2nd"))
		w.Close()
	}()
	got, err := io.ReadAll(&turn{sharedInput: in, done: make(chan struct{})})
	if string(got) != "2nd" || err != nil {
		t.Errorf("the next one got %q, %v", got, err)
	}
}
