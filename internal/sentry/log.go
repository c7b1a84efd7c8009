package sentry

import (
	"io"
	"os"
	"sync"

	"gvisor.dev/gvisor/pkg/log"
)

// maxLog bounds how much gVisor's log writes to the log file, in bytes: a guest can cause any
// number of warnings. The reason for which the process ends is written in any case, by Main
// or by the Go runtime.
const maxLog = 4 << 20

// limitLog bounds gVisor's log. Call it before anything logs.
func limitLog() {
	// log.SetTarget would make another logger, and packages that limit how often
	// they warn keep the logger that they found when they were initialised.
	log.Log().Emitter = log.GoogleEmitter{Writer: &log.Writer{Next: &limitedWriter{to: os.Stderr, room: maxLog}}}
}

const logFull = "\n*** This log is full: nothing but the end of the process is written here from now on ***\n"

// limitedWriter drops lines for which there is no room.
type limitedWriter struct {
	mu   sync.Mutex
	to   io.Writer
	room int // guarded by mu; 0 when it is full
}

// Write implements io.Writer. Dropped bytes count as written, because the caller could not
// write them elsewhere.
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
