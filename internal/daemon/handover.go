package daemon

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"syscall"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
	"ramet.dev/ramet/internal/storage/paths"
)

// The descriptors that a daemon in the background inherits.
const (
	readyFD     = 3 // write end of a pipe: one started message
	startLockFD = 4 // start.lock, held
)

// started is the message of a daemon in the background to the command that started
// it, once.
type started struct {
	Error *httpwire.Problem `json:"error,omitempty"`
}

// Handover is the files that the command that starts a daemon passes to it.
type Handover struct{ ready, startLock *os.File }

// Inherit takes over the files that Ensure passed to this process. It refuses a pipe and a file
// that the process has from anybody else: the file must be the start.lock of p.
func Inherit(p paths.Paths) (*Handover, error) {
	refused := api.Invalid("background", "only ramet itself starts a daemon in the background: use serve without it")
	var pipe, lock, own syscall.Stat_t
	if err := cmp.Or(syscall.Fstat(readyFD, &pipe), syscall.Fstat(startLockFD, &lock), syscall.Stat(p.StartLock(), &own)); err != nil {
		return nil, refused
	}
	if pipe.Mode&syscall.S_IFMT != syscall.S_IFIFO || lock.Dev != own.Dev || lock.Ino != own.Ino {
		return nil, refused
	}
	syscall.CloseOnExec(readyFD)
	syscall.CloseOnExec(startLockFD)
	return &Handover{ready: os.NewFile(readyFD, "ready"), startLock: os.NewFile(startLockFD, "start.lock")}, nil
}

// report tells the command how the start ended. It is no error if that command
// is gone.
func (h *Handover) report(err error) {
	if h == nil || h.ready == nil {
		return
	}
	var msg started
	if err != nil {
		msg.Error = httpwire.NewProblem(err)
	}
	if line, err := json.Marshal(msg); err == nil {
		_, _ = h.ready.Write(append(line, '\n'))
	}
	_ = h.ready.Close()
	h.ready = nil
}

// takeStartLock returns the inherited lock, or nil.
func (h *Handover) takeStartLock() *os.File {
	if h == nil {
		return nil
	}
	f := h.startLock
	h.startLock = nil
	return f
}

// parseStarted reads the message of a daemon, which is empty if the daemon died.
func parseStarted(line []byte) error {
	if len(line) == 0 {
		return errSaidNothing
	}
	var msg started
	if err := json.Unmarshal(line, &msg); err != nil {
		return fmt.Errorf("start daemon: decode its message: %w", err)
	}
	if msg.Error != nil {
		return msg.Error
	}
	return nil
}
