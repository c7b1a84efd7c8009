package api

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Code is the machine-readable class of an Error. It is part of the interface: scripts and
// SDKs depend on it, so codes are never renamed.
type Code string

// The error codes. codeTable maps each to its HTTP status and exit code.
const (
	CodeInvalid     Code = "invalid_argument"  // a field of the request is invalid
	CodeNotFound    Code = "not_found"         // no such sandbox, snapshot, image or process
	CodeNameTaken   Code = "name_taken"        // the name belongs to another resource
	CodeConflict    Code = "conflict"          // the resource is in use by another one
	CodeWrongState  Code = "wrong_state"       // the operation is not allowed in the present state
	CodeLimit       Code = "limit_exceeded"    // a limit of the sandbox, tree or node would be exceeded
	CodeNoMemory    Code = "out_of_memory"     // the host or the sandbox has no memory left
	CodeNoSpace     Code = "out_of_disk"       // the disk is full
	CodeIsolation   Code = "isolation_refused" // a required isolation layer is not available
	CodePermission  Code = "permission_denied" // the user in the sandbox does not have the right
	CodeUnknownUser Code = "unauthenticated"   // the caller is unknown
	CodeForbidden   Code = "forbidden"         // the token does not have the right
	CodeTimeout     Code = "timeout"           // a deadline passed
	CodeCanceled    Code = "canceled"          // the caller went away
	CodeSandboxDied Code = "sandbox_died"      // the sandbox's process ended under the operation
	CodeHostile     Code = "hostile_archive"   // an archive was refused
	CodeCorrupt     Code = "corrupt"           // stored data does not match its digest or format
	CodeUnavailable Code = "unavailable"       // a required service cannot be reached
	CodeUnsupported Code = "unsupported"       // valid, but not possible here
	CodeInternal    Code = "internal"          // a defect of Ramet
	// A command cannot be started. Their exit codes are those of shells.
	CodeNoCommand     Code = "command_not_found"
	CodeNotExecutable Code = "not_executable"
	// CodeChanged is for a condition of the caller that does not hold: a file has another
	// ETag than the request has, or exists although the request forbids it.
	CodeChanged Code = "precondition_failed"
)

type codeInfo struct {
	status int
	exit   int
	title  string
}

// Exit codes are those of the product's contract: 1 failure, 2 usage, 3 not
// found, 4 conflict or wrong state, 5 limit, 6 isolation refused, 7 not allowed
// to the caller, 130 interrupted. For commands they are those of shells.
//
// The statuses are numbers because every sentry links this package: with net/http,
// TLS would be initialized in each of them.
var codeTable = map[Code]codeInfo{
	CodeInvalid:     {400, 2, "Invalid argument"},
	CodeNotFound:    {404, 3, "Not found"},
	CodeNameTaken:   {409, 4, "Name is taken"},
	CodeConflict:    {409, 4, "Conflict"},
	CodeWrongState:  {409, 4, "Wrong state"},
	CodeLimit:       {429, 5, "Limit exceeded"},
	CodeNoMemory:    {507, 5, "Out of memory"},
	CodeNoSpace:     {507, 5, "Out of disk space"},
	CodeIsolation:   {422, 6, "Isolation refused"},
	CodePermission:  {403, 1, "Permission denied"},
	CodeUnknownUser: {401, 7, "Unauthenticated"},
	CodeForbidden:   {403, 7, "Forbidden"},
	CodeTimeout:     {504, 1, "Timed out"},
	CodeCanceled:    {499, 130, "Canceled"},
	CodeSandboxDied: {409, 1, "Sandbox died"},
	CodeHostile:     {422, 1, "Archive refused"},
	CodeCorrupt:     {422, 1, "Corrupt data"},
	CodeUnavailable: {503, 1, "Unavailable"},
	CodeUnsupported: {422, 1, "Not supported here"},
	CodeInternal:    {500, 1, "Internal error"},

	CodeNoCommand:     {400, 127, "Command not found"},
	CodeNotExecutable: {400, 126, "Not executable"},
	CodeChanged:       {412, 4, "Precondition failed"},
}

// Codes returns all codes, in the order of the alphabet.
func Codes() []Code { return slices.Sorted(maps.Keys(codeTable)) }

// HTTPStatus returns the status a problem document of code c carries.
func (c Code) HTTPStatus() int { return c.info().status }

// ExitCode returns the exit code of a CLI call that failed with c.
func (c Code) ExitCode() int { return c.info().exit }

// Title returns the short human-readable summary of c.
func (c Code) Title() string { return c.info().title }

func (c Code) info() codeInfo {
	if i, ok := codeTable[c]; ok {
		return i
	}
	return codeTable[CodeInternal]
}

// Error is an error that a user may see. Users see other errors as CodeInternal.
type Error struct {
	Code   Code   `json:"code" doc:"the kind of error"`
	Detail string `json:"detail" doc:"what happened"`
	// Field names the field or option at fault, or is empty.
	Field string `json:"field,omitempty" doc:"field or option at fault"`
	// Exceeded is the quota that was exceeded, or nil.
	Exceeded *Exceeded `json:"exceeded,omitempty" doc:"the quota that was exceeded"`
	cause    error
}

// Error implements error.
func (e *Error) Error() string {
	if e.Field != "" {
		return e.Field + ": " + e.Detail
	}
	return e.Detail
}

// Unwrap returns the cause, if there is one.
func (e *Error) Unwrap() error { return e.cause }

// Errorf returns an Error of code c. A %w verb keeps its operand as the cause.
func Errorf(c Code, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: c, Detail: err.Error(), cause: errors.Unwrap(err)}
}

// Invalid returns a CodeInvalid error about field. The detail must say what is
// allowed.
func Invalid(field, format string, args ...any) *Error {
	e := Errorf(CodeInvalid, format, args...)
	e.Field = field
	return e
}

// NotFound returns a CodeNotFound error about the resource ref of kind what.
func NotFound(what, ref string) *Error {
	return Errorf(CodeNotFound, "no %s %q", what, ref)
}

// CodeOf returns the code of the outermost Error in err's chain. Context errors
// map to CodeCanceled and CodeTimeout, all else to CodeInternal.
func CodeOf(err error) Code {
	var e *Error
	switch {
	case err == nil:
		return ""
	case errors.As(err, &e):
		return e.Code
	case errors.Is(err, context.Canceled):
		return CodeCanceled
	case errors.Is(err, context.DeadlineExceeded):
		return CodeTimeout
	}
	return CodeInternal
}

// AsError returns err as an Error that can be shown: the Error in its chain
// with the full text of err, or a new one of CodeOf(err).
func AsError(err error) *Error {
	if err == nil {
		return nil
	}
	out := &Error{Code: CodeOf(err), Detail: err.Error(), cause: err}
	var e *Error
	if errors.As(err, &e) {
		out.Field, out.Exceeded = e.Field, e.Exceeded
		if err == error(e) {
			out.Detail = e.Detail
		}
	}
	return out
}
