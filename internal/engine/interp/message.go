package interp

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Hello is the first message of an interpreter, sent when it has started.
type Hello struct {
	Version string `json:"version"`
	PID     int    `json:"pid"`
}

// Rest is the state of an interpreter between two requests.
type Rest struct {
	// Handled says that a signal may run code of the user's.
	Handled bool `json:"handled"`
	// Generators are the random generators that a request for new seeds would find.
	Generators []string `json:"generators"`
}

// Error is the error that ended a cell.
type Error struct {
	Name      string `json:"name"`
	Value     string `json:"value"`
	Traceback string `json:"traceback"`
}

// Done is the last answer to a request.
type Done struct {
	ExitCode       int        `json:"exit_code"`
	ExecutionCount int        `json:"execution_count"`
	Result         *string    `json:"result"`
	Truncated      bool       `json:"truncated"` // the result, or another output, was cut or left out
	Error          *Error     `json:"error"`
	Variables      []Variable `json:"variables"`
	Reseeded       []string   `json:"reseeded"`
	Failed         []string   `json:"failed"`
}

// Variable describes a variable. Two variables with the same digest have the same value, as
// far as it was examined; an opaque variable has no value that can be compared.
type Variable struct {
	Name    string `json:"name"`
	Type    string `json:"type"`
	Size    int64  `json:"size"`
	Repr    string `json:"repr"`
	Digest  string `json:"digest"`
	Opaque  bool   `json:"opaque"`
	Partial bool   `json:"partial"`
}

// Bounds on variables and their fields, because a guest can send anything.
const (
	maxVariables = 2000
	maxField     = 300 // characters
)

// Results are the forms of one result, by media type.
type Results map[string]json.RawMessage

// ParseHello reads the payload of a KindHello.
func ParseHello(payload []byte) (Hello, error) {
	var h Hello
	if err := json.Unmarshal(payload, &h); err != nil {
		return h, fmt.Errorf("%w: %w", ErrFrame, err)
	}
	h.Version = clip(h.Version)
	return h, nil
}

// ParseRest reads the payload of a KindRest.
func ParseRest(payload []byte) (Rest, error) {
	var r Rest
	if err := json.Unmarshal(payload, &r); err != nil {
		return r, fmt.Errorf("%w: %w", ErrFrame, err)
	}
	r.Generators = clipAll(r.Generators)
	return r, nil
}

// ParseDone reads the payload of a KindDone.
func ParseDone(payload []byte) (*Done, error) {
	var d Done
	if err := json.Unmarshal(payload, &d); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFrame, err)
	}
	d.ExitCode &= 0xff
	d.Variables = d.Variables[:min(len(d.Variables), maxVariables)]
	for i := range d.Variables {
		v := &d.Variables[i]
		v.Name, v.Type, v.Repr, v.Digest, v.Size = clip(v.Name), clip(v.Type), clip(v.Repr), clip(v.Digest), max(0, v.Size)
	}
	d.Reseeded, d.Failed = clipAll(d.Reseeded), clipAll(d.Failed)
	return &d, nil
}

// ParseResult reads the payload of a KindResult.
func ParseResult(payload []byte) (Results, error) {
	var r Results
	if err := json.Unmarshal(payload, &r); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFrame, err)
	}
	return r, nil
}

// maxNames bounds the list of generators.
const maxNames = 16

func clipAll(list []string) []string {
	list = list[:min(len(list), maxNames)]
	for i := range list {
		list[i] = clip(list[i])
	}
	return list
}

// clip cuts a text that is longer than any that the programs in hosts/ send.
func clip(s string) string {
	if len(s) <= maxField {
		return s
	}
	n := 0
	for i := range s {
		if n == maxField {
			return s[:i]
		}
		n++
	}
	return strings.ToValidUTF8(s, string(utf8.RuneError))
}
