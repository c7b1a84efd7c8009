package control

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
)

const (
	// SocketPath is where processes of the sandbox find the socket.
	SocketPath = "/run/ramet.sock"
	// CommandPath is where the command is, unless the image has something there.
	CommandPath = "/usr/local/bin/ramet"
	// MaxLine is how long a request may be, in bytes, with its newline.
	MaxLine = 16 << 10
	// MaxReply is how long a reply is at most, in bytes.
	MaxReply = 100 << 10
)

// Op names a request.
type Op string

// The requests. There are no others: a sandbox can reach itself, the snapshots
// that it made and the children that it made, and nothing else.
const (
	OpInfo     Op = "info"     // its identity, state and budget; reply Info
	OpFork     Op = "fork"     // Count children; reply Children, and Child in each of them
	OpSnapshot Op = "snapshot" // reply Snapshot, and Restored in sandboxes that are made from it
	OpRollback Op = "rollback" // to Snapshot; a reply is an error
	OpDiff     Op = "diff"     // files: from the snapshot With to now, or from now to the child With; reply Diff
	OpTag      Op = "tag"      // Set and Remove metadata; reply Tagged
)

// Request is a line that a sandbox sends.
type Request struct {
	Op       Op                `json:"op"`
	Count    *int              `json:"count,omitempty"`    // of OpFork; 1 if absent
	Metadata map[string]string `json:"metadata,omitempty"` // of OpFork: for the children
	Name     string            `json:"name,omitempty"`     // of OpSnapshot; only this sandbox and its children know it
	Memory   bool              `json:"memory,omitempty"`   // of OpSnapshot: not on disk
	Snapshot string            `json:"snapshot,omitempty"` // of OpRollback: id or name; the last one if absent
	With     string            `json:"with,omitempty"`     // of OpDiff; the last snapshot if absent
	Set      map[string]string `json:"set,omitempty"`      // of OpTag
	Remove   []string          `json:"remove,omitempty"`   // of OpTag
}

// Reply is the line that answers a Request. Exactly one field is set.
type Reply struct {
	Error    *Error    `json:"error,omitempty"`
	Info     *Info     `json:"info,omitempty"`
	Children []Child   `json:"children,omitempty"`
	Child    *Born     `json:"child,omitempty"`
	Snapshot *Snapshot `json:"snapshot,omitempty"`
	Restored *Restored `json:"restored,omitempty"`
	Diff     *Diff     `json:"diff,omitempty"`
	Tagged   *Tagged   `json:"tagged,omitempty"`
}

// Error says why a request failed.
type Error struct {
	Code     string `json:"code"`
	Detail   string `json:"detail"`
	Field    string `json:"field,omitempty"`
	ExitCode int    `json:"exit_code"` // for a command that failed because of it
}

// Error implements error.
func (e *Error) Error() string {
	if e.Field != "" {
		return e.Field + ": " + e.Detail
	}
	return e.Detail
}

// Left is a limit of a budget, and how much of it is left.
type Left struct {
	Limit int `json:"limit"`
	Left  int `json:"left"`
}

// Budget is how many forks and snapshots a sandbox may still make. All descendants of the
// sandbox that self-control was granted to share Forks and Snapshots.
type Budget struct {
	Forks     Left `json:"forks"`
	Depth     Left `json:"depth"`
	Snapshots Left `json:"snapshots"`
}

// Info describes a sandbox to its own processes.
type Info struct {
	ID        string            `json:"id"`
	Name      string            `json:"name,omitempty"`
	Index     int               `json:"index"`
	Parent    string            `json:"parent,omitempty"`
	Metadata  map[string]string `json:"metadata"`
	Budget    Budget            `json:"budget"`
	Snapshots []Snapshot        `json:"snapshots"` // that it can return to, oldest first
	Children  []Child           `json:"children"`  // that it made and that live
}

// Child is a child as its parent sees it: a sandbox or an error.
type Child struct {
	ID    string `json:"id,omitempty"`
	Index int    `json:"index"`
	Error *Error `json:"error,omitempty"`
}

// Born is the reply of OpFork in a child, where its parent gets Children.
type Born struct {
	ID     string `json:"id"`
	Index  int    `json:"index"`
	Parent string `json:"parent"`
}

// Snapshot is a state of a sandbox to return to.
type Snapshot struct {
	ID   string `json:"id"`
	Name string `json:"name,omitempty"`
}

// Restored is the reply of OpSnapshot in a sandbox that was made from the snapshot, or
// rolled back to it, where the original gets Snapshot.
type Restored struct {
	ID       string   `json:"id"`
	Index    int      `json:"index"`
	Snapshot Snapshot `json:"snapshot"`
}

// Tagged is the metadata of a sandbox after a change.
type Tagged struct {
	Metadata map[string]string `json:"metadata"`
}

// Diff lists the files that differ.
type Diff struct {
	From      string   `json:"from"`
	To        string   `json:"to"`
	Changes   []Change `json:"changes"`
	Truncated int      `json:"truncated,omitempty"` // changes that are left out
}

// Change is a file that differs.
type Change struct {
	Kind     string `json:"kind"` // added, modified, deleted or renamed
	Path     string `json:"path"`
	Exact    []byte `json:"path_base64,omitempty"` // the bytes of the path, if they are not UTF-8
	Old      string `json:"old_path,omitempty"`
	OldExact []byte `json:"old_path_base64,omitempty"`
}

// Parse reads a request. Fields that are unknown, spelt otherwise or given twice are
// errors: encoding/json would take "OP" for "op", and the last of two, so that a request
// would not mean what it looks like.
func Parse(line []byte) (*Request, error) {
	if err := checkNames(line); err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	var r *Request
	if err := d.Decode(&r); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one document in a line")
	}
	if r == nil {
		return nil, errors.New("a request is an object")
	}
	return r, nil
}

// fields are the names that a Request has.
var fields = func() map[string]bool {
	names := map[string]bool{}
	for f := range reflect.TypeFor[Request]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		names[name] = true
	}
	return names
}()

// checkNames returns an error if an object of the document has a name twice, or if the
// outermost object has a name that a Request has not. Invalid JSON is left to the decoder.
func checkNames(line []byte) error {
	type object struct {
		names map[string]bool // nil of an array
		value bool            // what comes next is the value of a name
	}
	var open []object
	for d := json.NewDecoder(bytes.NewReader(line)); ; {
		t, err := d.Token()
		if err != nil {
			return nil
		}
		var in *object
		if len(open) > 0 {
			in = &open[len(open)-1]
		}
		if t == json.Delim('}') || t == json.Delim(']') {
			open = open[:len(open)-1]
			continue
		}
		if name, ok := t.(string); ok && in != nil && in.names != nil && !in.value {
			if in.names[name] {
				return fmt.Errorf("field %q is said twice", name)
			}
			if len(open) == 1 && !fields[name] {
				return fmt.Errorf("unknown field %q", name)
			}
			in.names[name], in.value = true, true
			continue
		}
		if in != nil {
			in.value = false
		}
		switch t {
		case json.Delim('{'):
			open = append(open, object{names: map[string]bool{}})
		case json.Delim('['):
			open = append(open, object{})
		}
	}
}
