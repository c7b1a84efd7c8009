package control

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/network/gateway"
	"ramet.dev/ramet/internal/network/held"
	"ramet.dev/ramet/internal/network/secrets"
	"ramet.dev/ramet/internal/network/share"
)

// op is what a call asks for.
type op string

const (
	opHello   op = "hello"
	opAdd     op = "add"
	opReplace op = "replace"
	opTenant  op = "tenant"
	opTenants op = "tenants"
	opRemove  op = "remove"
	opList    op = "list"
	opStats   op = "stats"
	opTest    op = "test"
	opLog     op = "log"
	opWatch   op = "watch"
	opEnd     op = "end"

	opHeld       op = "held"
	opRelease    op = "release"
	opReleaseAll op = "release_all"
	opDrop       op = "drop"
	opDropAll    op = "drop_all"
	opDropUndone op = "drop_undone"
)

// call is the body of a call.
type call struct {
	Op op `json:"op"`
	// Change orders replace and tenant: see order.
	Change int64 `json:"change,omitempty"`
	// Sandbox is that of remove and test.
	Sandbox string    `json:"sandbox,omitempty"`
	Log     *Reading  `json:"log,omitempty"`
	Test    *question `json:"test,omitempty"`
	// Request is the id of a held request of Sandbox. Again sends also one that may have been sent, and
	// Forget removes what is known of finished ones.
	Request string `json:"request,omitempty"`
	Again   bool   `json:"again,omitempty"`
	Forget  bool   `json:"forget,omitempty"`
	// Undone is what a rollback has undone.
	Undone *held.Undone `json:"undone,omitempty"`
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
	// NoHold says why requests cannot be held, if that is so.
	NoHold string `json:"no_hold,omitempty"`
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
	// Number grows with each line of a gateway.
	Number uint64 `json:"number"`
	// Lost is how many lines before it were not told, because the reader was slow, or asked for a
	// sample: then it counts those of the sandbox with the same verdict.
	Lost uint64 `json:"lost,omitempty"`
}

// maxRegistration bounds a registration.
const maxRegistration = 16 << 20

// sealed is a registration with the values that its own JSON has not.
type sealed struct {
	*gateway.Registration
	Authority string   `json:"authority_text,omitempty"`
	Values    []string `json:"values,omitempty"` // of the secrets, in their order
}

// writeTenant returns what bounds a tenant as a file in memory: a packet has less room.
func writeTenant(t *gateway.Tenant) (*os.File, error) {
	b, err := json.Marshal(t)
	if err == nil && len(b) > maxRegistration {
		err = api.Errorf(api.CodeLimit, "the upper bound of the network of tenant %s has %d bytes, more than %d", t.Name, len(b), maxRegistration)
	}
	if err != nil {
		return nil, fmt.Errorf("encode bounds of a tenant: %w", err)
	}
	return inMemory("tenant", b)
}

func readTenant(f *os.File) (t gateway.Tenant, err error) {
	b, err := fromMemory(f)
	if err == nil {
		err = json.Unmarshal(b, &t)
	}
	switch {
	case err != nil:
		return t, api.Errorf(api.CodeInvalid, "read bounds of a tenant: %w", err)
	case t.Name == "":
		return t, api.Invalid("name", "the bounds name no tenant")
	}
	return t, nil
}

// inMemory returns a file in memory with b.
func inMemory(name string, b []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make memory file: %w", err)
	}
	f := os.NewFile(uintptr(fd), name)
	if _, err := f.WriteAt(b, 0); err != nil {
		f.Close()
		return nil, fmt.Errorf("write %s: %w", name, err)
	}
	return f, nil
}

// fromMemory returns what is in a file that inMemory has made.
func fromMemory(f *os.File) ([]byte, error) {
	b, err := io.ReadAll(io.NewSectionReader(f, 0, maxRegistration+1))
	if err == nil && len(b) > maxRegistration {
		err = api.Errorf(api.CodeLimit, "it has more than %d bytes", maxRegistration)
	}
	return b, err
}

// TenantStats are numbers about a tenant.
type TenantStats struct {
	Name string `json:"name"`
	share.Stats
}

// Stats are numbers about a gateway.
type Stats struct {
	gateway.Stats
	Waiting held.Stats `json:"waiting"`
}

// writeRegistration returns a registration as a file in memory. It is the only form of it that has the
// values of secrets.
func writeRegistration(r *gateway.Registration) (*os.File, error) {
	s := sealed{Registration: r, Authority: r.Authority.Reveal()}
	for _, secret := range r.Secrets {
		s.Values = append(s.Values, secret.Value.Reveal())
	}
	b, err := json.Marshal(s)
	defer clear(b)
	if err == nil && len(b) > maxRegistration {
		err = api.Errorf(api.CodeLimit, "the policy of the sandbox has %d bytes, more than %d", len(b), maxRegistration)
	}
	if err != nil {
		return nil, fmt.Errorf("encode registration: %w", err)
	}
	return inMemory("registration", b)
}

func readRegistration(f *os.File) (r gateway.Registration, err error) {
	b, err := fromMemory(f)
	defer clear(b)
	s := sealed{Registration: &r}
	if err == nil && json.Unmarshal(b, &s) != nil {
		err = api.Errorf(api.CodeInvalid, "it is not in the form of one") // an error of the parser quotes it
	}
	if err == nil && len(s.Values) != len(r.Secrets) {
		err = api.Errorf(api.CodeInvalid, "it has %d values of %d secrets", len(s.Values), len(r.Secrets))
	}
	if err != nil {
		return gateway.Registration{}, fmt.Errorf("read registration: %w", err)
	}
	if s.Authority != "" {
		r.Authority = secrets.NewValue(s.Authority)
	}
	for i := range r.Secrets {
		r.Secrets[i].Value = secrets.NewValue(s.Values[i])
	}
	if r.ID == "" {
		return r, api.Invalid("id", "the registration names no sandbox")
	}
	return r, nil
}
