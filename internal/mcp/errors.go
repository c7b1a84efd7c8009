package mcp

import (
	"context"
	"errors"

	"ramet.dev/ramet/api"
)

// next says what to do after an error, by its code.
var next = map[api.Code]string{
	api.CodeNotFound:    "ramet_inspect without arguments lists the sandboxes and snapshots",
	api.CodeNameTaken:   "take another name, or destroy what has it with ramet_destroy",
	api.CodeWrongState:  "ramet_inspect shows the state of the sandbox",
	api.CodeConflict:    "ramet_inspect shows what uses it; try again when that has ended",
	api.CodeLimit:       "destroy sandboxes that are not needed with ramet_destroy, or ask for less",
	api.CodeNoMemory:    "destroy sandboxes that are not needed with ramet_destroy",
	api.CodeNoSpace:     "destroy sandboxes and snapshots that are not needed with ramet_destroy",
	api.CodeSandboxDied: "the sandbox is gone: create another one, or restore a snapshot with ramet_snapshot",
	api.CodeUnavailable: "the daemon of Ramet cannot be reached: ask the user to look at it, 'ramet doctor' checks the machine",
	api.CodeUnknownUser: "the token of this server is not valid: ask the user for another one",
	api.CodeForbidden:   "the token of this server does not allow that: go on without it, or ask the user",
	api.CodeTimeout:     "try again with a longer time",
	api.CodeUnsupported: "find another way: this machine cannot do it",
	api.CodeInternal:    "this is a defect of Ramet: try another way, and tell the user",
}

// advise returns an error that says what to do next, for a model. A daemon that has ended is started again:
// its sandboxes go on meanwhile.
func (s *server) advise(ctx context.Context, err error) error {
	e := api.AsError(err)
	hint := next[e.Code]
	if e.Code == api.CodeUnavailable && s.start != nil && s.start(ctx) == nil {
		hint = "the daemon had ended and runs again, with all sandboxes: look with ramet_inspect, and repeat the call"
	}
	text := string(e.Code) + ": " + e.Error()
	if hint != "" {
		text += ". Next: " + hint
	}
	return errors.New(text)
}
