package sentry

import (
	"io"
	"os"
	"sync"

	"gvisor.dev/gvisor/pkg/log"
)

// maxLog bounds what gVisor's log puts into the log file, in bytes: a guest can
// make it warn as often as it likes. What ends the process is written by Main or
// by the Go runtime, and in any case.
const maxLog = 4 << 20

// limitLog bounds gVisor's log. Call it before anything logs.
func limitLog() {
	// log.SetTarget would make another logger, and packages that limit how often
	// they warn keep the one that they found when they were initialised.
	log.Log().Emitter = log.GoogleEmitter{Writer: &log.Writer{Next: &limitedWriter{to: os.Stderr, room: maxLog}}}
}

const logFull = "\n*** This log is full: nothing but the end of the process is written here from now on ***\n"

// limitedWriter drops what there is no room for.
type limitedWriter struct {
	mu   sync.Mutex
	to   io.Writer
	room int // guarded by mu; 0 when it is full
}

// Write implements io.Writer. What was dropped counts as written: nobody could
// do anything about it.
func (w *limitedWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.room == 0 {
		return len(b), nil
	}
	if len(b) <= w.room-len(logFull) {
		n, err := w.to.Write(b)
		w.room -= n
		return n, err
	}
	w.room = 0
	_, err := io.WriteString(w.to, logFull)
	return len(b), err
}
