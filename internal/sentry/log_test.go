package sentry

import (
	"bytes"
	"strings"
	"testing"
)

func TestLimitedWriter(t *testing.T) {
	var out bytes.Buffer
	const room = 300
	w := &limitedWriter{to: &out, room: room}
	line := strings.Repeat("x", 99) + "\n"
	for range 100 {
		if n, err := w.Write([]byte(line)); n != len(line) || err != nil {
			t.Fatalf("Write = %d, %v", n, err)
		}
	}
	if want := line + line + logFull; out.String() != want {
		t.Errorf("it wrote %q, not %q", out.String(), want)
	}
	if out.Len() > room {
		t.Errorf("it wrote %d bytes, with room for %d", out.Len(), room)
	}
}
