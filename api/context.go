package api

import (
	"encoding/json"
	"time"
)

// ContextState is the state of an interpreter.
type ContextState string

// The states of a context. An interpreter that has ended starts again with its next run.
const (
	ContextIdle  ContextState = "idle"
	ContextBusy  ContextState = "busy"
	ContextEnded ContextState = "ended"
)

// Context is a stateful interpreter in a sandbox. The default context of a
// language has its name.
type Context struct {
	Name      string       `json:"name" doc:"unique in the sandbox; the default context of a language has the language's name"`
	Language  string       `json:"language" doc:"language of the interpreter" enum:"python,node,bash"`
	State     ContextState `json:"state" doc:"state"`
	Version   string       `json:"version,omitempty" doc:"of the interpreter"`
	PID       int          `json:"pid,omitempty" doc:"process id of the interpreter"`
	Cwd       string       `json:"cwd,omitempty" doc:"directory in which it was started"`
	Waiting   int          `json:"waiting" doc:"runs that wait for their turn"`
	Restarts  int          `json:"restarts" doc:"how often the interpreter was restarted without its state"`
	CreatedAt time.Time    `json:"created_at" doc:"when it was made"`
}

// ContextRequest asks for a new context.
type ContextRequest struct {
	Language string            `json:"language" doc:"language of the interpreter" enum:"python,node,bash"`
	Name     string            `json:"name,omitempty" doc:"generated if absent"`
	Cwd      string            `json:"cwd,omitempty" doc:"directory in which the interpreter starts"`
	User     string            `json:"user,omitempty" doc:"name or uid, optionally :group"`
	Env      map[string]string `json:"env,omitempty" doc:"added to the environment of the sandbox"`
}

// RunCodeRequest asks for a cell. Context, or the default context of the language, runs it.
// With a language, a missing context is created.
type RunCodeRequest struct {
	Code      string `json:"code" doc:"code to run"`
	Language  string `json:"language,omitempty" enum:"python,node,bash" doc:"python if neither it nor a context is given"`
	Context   string `json:"context,omitempty" doc:"name of a context; with a language, a missing context is created, and an existing one must be of that language"`
	Silent    bool   `json:"silent,omitempty" doc:"the cell has no number, and the next one gets that which it would have had; python and node"`
	TimeoutMS int64  `json:"timeout_ms,omitempty" minimum:"0" doc:"0 is no limit; counted from the beginning of the cell, without the wait for its turn; at the limit the cell is interrupted, and the interpreter is killed if that does not end the cell"`
}

// RunError is the exception that ended a cell.
type RunError struct {
	Name      string `json:"name" doc:"class of the exception; ContextDied if the interpreter itself ended"`
	Value     string `json:"value" doc:"text of the exception"`
	Traceback string `json:"traceback" doc:"where it was raised"`
}

// ContextDied is the name of the error of a cell whose interpreter ended.
const ContextDied = "ContextDied"

// RunResult is the outcome of a cell. A cell that fails is a result, not an
// error.
type RunResult struct {
	ExecResult
	Result         string                       `json:"result,omitempty" doc:"text of the value of the last expression; absent without one"`
	Results        []map[string]json.RawMessage `json:"results" doc:"results that were shown, in order, each in one or more media types; images are in base64"`
	Error          *RunError                    `json:"error" doc:"null if the cell did not fail"`
	Context        string                       `json:"context" doc:"context that ran it"`
	ExecutionCount int                          `json:"execution_count" doc:"number of the cell in its context"`
}

// Reseed reports the random generators of an inherited interpreter, or the processes of a
// program whose generators have no new seed.
type Reseed struct {
	Context    string   `json:"context,omitempty" doc:"name of the context"`
	Language   string   `json:"language,omitempty" enum:"python,node,bash" doc:"language of the interpreter"`
	Program    string   `json:"program,omitempty" doc:"path of a program, if the entry is about processes and not a context"`
	PIDs       []int    `json:"pids,omitempty" doc:"its processes, 32 at most"`
	Generators []string `json:"generators" doc:"generators that have a new seed, or get it before anything can use them"`
	Failed     []string `json:"failed,omitempty" doc:"generators without a new seed, with the reason"`
	Pending    bool     `json:"pending,omitempty" doc:"a cell was running: the generators get their seed when it has ended, before the next one"`
}

// VariableChange is a variable that differs between two sandboxes.
type VariableChange struct {
	Context  string     `json:"context" doc:"name of the context"`
	Language string     `json:"language" enum:"python,node,bash" doc:"language of the interpreter"`
	Name     string     `json:"name,omitempty" doc:"name of the variable"`
	Kind     ChangeKind `json:"kind" doc:"added, modified or deleted; undecided: only a part of it was compared, and that is the same"`
	Type     string     `json:"type,omitempty" doc:"type of the value"`
	OldType  string     `json:"old_type,omitempty" doc:"in the first sandbox, if it differs"`
	Size     int64      `json:"size" doc:"bytes, roughly"`
	OldSize  int64      `json:"old_size,omitempty" doc:"bytes in the first sandbox, if they differ"`
	Repr     string     `json:"repr" doc:"the beginning of its text"`
	OldRepr  string     `json:"old_repr,omitempty" doc:"in the first sandbox, if it differs"`
	Opaque   bool       `json:"opaque,omitempty" doc:"it has no value that can be compared: its text differs"`
	Partial  bool       `json:"partial,omitempty" doc:"it is so large that only a part of it was compared"`
}
