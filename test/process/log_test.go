package process

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"ramet.dev/ramet/test/harness"
)

// TestLogIsBounded has a guest make its kernel warn without end. Its log must
// stop growing, and what the Go runtime says at the end of the process must be
// in it all the same.
func TestLogIsBounded(t *testing.T) {
	const most = 4 << 20 // bytes, what package sentry allows gVisor's log
	n := harness.NewNode(t)
	n.Create("box")
	pid, key := n.ProcessOf("box")
	log, err := os.Open(filepath.Join(n.Paths.Sandboxes(), key+".log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	n.Guest("box", "warn", "3000") // of 4 KB
	n.Guest("box", "true")
	st, err := log.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if st.Size() > most || st.Size() < most-8192 {
		t.Errorf("the log has %d bytes after 3000 warnings, not some less than %d", st.Size(), most)
	}
	if err := syscall.Kill(pid, syscall.SIGQUIT); err != nil { // has the Go runtime say where it was
		t.Fatal(err)
	}
	n.MustFailWith("box", "exit status 2")
	text, err := io.ReadAll(log)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(text[st.Size():], []byte("SIGQUIT: quit")) {
		t.Errorf("the log ends with %q", text[max(0, len(text)-1000):])
	}
}
