package control

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/network/gateway"
)

// op is what a call asks for.
type op string

const (
	opHello   op = "hello"
	opAdd     op = "add"
	opReplace op = "replace"
	opRemove  op = "remove"
	opList    op = "list"
	opStats   op = "stats"
	opTest    op = "test"
	opLog     op = "log"
	opWatch   op = "watch"
	opEnd     op = "end"
)

// call is the body of a call.
type call struct {
	Op op `json:"op"`
	// Sandbox is that of remove and test.
	Sandbox string    `json:"sandbox,omitempty"`
	Log     *Reading  `json:"log,omitempty"`
	Test    *question `json:"test,omitempty"`
}

// question is a connection that is judged and not made.
type question struct {
	Host     string `json:"host"`
	Protocol string `json:"protocol"` // tcp, udp or echo
	Port     uint16 `json:"port"`
}

// Hello is what the gateway says of itself.
type Hello struct {
	// Build is that of its program: a gateway of another one does not serve this daemon.
	Build string `json:"build"`
	PID   int    `json:"pid"`
	// Confinement has each layer that the process is confined by, and why it lacks others.
	Confinement []Layer `json:"confinement"`
}

// Layer is a part of the confinement.
type Layer struct {
	Name string `json:"name"`
	On   bool   `json:"on"`
	// Reason says why it is off.
	Reason string `json:"reason,omitempty"`
}

// Line is a line of the log of decisions.
type Line struct {
	api.NetworkLogEntry
	// Lost is how many lines before it were not told, because the reader was slow or the line
	// could not be kept.
	Lost uint64 `json:"lost,omitempty"`
}

// maxRegistration bounds a registration.
const maxRegistration = 16 << 20

// writeRegistration returns a registration as a file in memory.
func writeRegistration(r *gateway.Registration) (*os.File, error) {
	b, err := json.Marshal(r)
	if err == nil && len(b) > maxRegistration {
		err = api.Errorf(api.CodeLimit, "the policy of the sandbox has %d bytes, more than %d", len(b), maxRegistration)
	}
	if err != nil {
		return nil, fmt.Errorf("encode registration: %w", err)
	}
	fd, err := unix.MemfdCreate("registration", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make memory file: %w", err)
	}
	f := os.NewFile(uintptr(fd), "registration")
	if _, err := f.WriteAt(b, 0); err != nil {
		f.Close()
		return nil, fmt.Errorf("write registration: %w", err)
	}
	return f, nil
}

func readRegistration(f *os.File) (r gateway.Registration, err error) {
	b, err := io.ReadAll(io.NewSectionReader(f, 0, maxRegistration+1))
	if err == nil && len(b) > maxRegistration {
		err = api.Errorf(api.CodeLimit, "the registration has more than %d bytes", maxRegistration)
	}
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err != nil {
		return r, fmt.Errorf("read registration: %w", err)
	}
	if r.ID == "" {
		return r, api.Invalid("id", "the registration names no sandbox")
	}
	return r, nil
}
