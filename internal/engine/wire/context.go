package wire

import (
	"errors"

	"ramet.dev/ramet/internal/engine/interp"
)

// ContextAction is an operation on an interpreter.
type ContextAction string

// The actions.
const (
	ContextMake      ContextAction = "make"      // reply api.Context
	ContextInterrupt ContextAction = "interrupt" // end what it runs; reply Interrupted
	ContextRestart   ContextAction = "restart"   // reply api.Context
	ContextEnd       ContextAction = "end"
)

// Context asks for an operation on an interpreter.
type Context struct {
	Action ContextAction `json:"action"`
	Name   string        `json:"name"`
	ContextSpec
}

// ContextSpec is how an interpreter is started.
type ContextSpec struct {
	Language interp.Language   `json:"language,omitempty"`
	Cwd      string            `json:"cwd,omitempty"`
	User     string            `json:"user,omitempty"`
	Env      map[string]string `json:"env,omitempty"`
}

// Interrupted is the reply to ContextInterrupt.
type Interrupted struct {
	Interrupted bool `json:"interrupted"` // else nothing was running
}

// Run sends a request to an interpreter. The contents of the request come in packets
// of input after the call.
type Run struct {
	Context   string      `json:"context"`
	Kind      interp.Kind `json:"kind"`
	TimeoutMS int64       `json:"timeout_ms,omitempty"`
	// Make, if not nil, is how the context is made if there is none of the name.
	Make *ContextSpec `json:"make,omitempty"`
}

// Ran is the reply to Run.
type Ran struct {
	TimedOut   bool    `json:"timed_out,omitempty"`
	Truncated  bool    `json:"truncated,omitempty"` // results were dropped
	Died       *Exited `json:"died,omitempty"`      // the interpreter ended instead of answering
	DurationMS float64 `json:"duration_ms"`
}

// AppendPart appends the body of a TypePart packet.
func AppendPart(b []byte, p interp.Part) []byte {
	last := byte(0)
	if p.Last {
		last = 1
	}
	return append(append(b, byte(p.Kind), last), p.Data...)
}

// ParsePart reads the body of a TypePart packet, into which Data points.
func ParsePart(b []byte) (interp.Part, error) {
	if len(b) < 2 || b[1] > 1 {
		return interp.Part{}, errors.New("parse part: no part")
	}
	return interp.Part{Kind: interp.Kind(b[0]), Last: b[1] == 1, Data: b[2:]}, nil
}
