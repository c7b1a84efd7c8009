package sandboxes

import (
	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/node/transition"
)

// States is the owner of the states of sandboxes: what is not in the table does not
// happen. docs/architecture/states.md has its drawing.
var States = transition.New("sandbox",
	transition.Step[api.State]{From: "", To: api.StateCreating, By: "fork that nobody waits for"},
	transition.Step[api.State]{From: "", To: api.StateRunning, By: "create, fork, restore"},
	transition.Step[api.State]{From: api.StateCreating, To: api.StateRunning, By: "it is made"},
	transition.Step[api.State]{From: api.StateCreating, To: api.StateFailed, By: "it cannot be made, or the daemon ends"},
	transition.Step[api.State]{From: api.StateRunning, To: api.StateRunning, By: "rollback, promote"},
	transition.Step[api.State]{From: api.StateRunning, To: api.StatePaused, By: "pause"},
	transition.Step[api.State]{From: api.StateRunning, To: api.StateHibernated, By: "hibernate"},
	transition.Step[api.State]{From: api.StateRunning, To: api.StateFailed, By: "its sentry ends"},
	transition.Step[api.State]{From: api.StateRunning, To: api.StateDestroyed, By: "destroy, promote"},
	transition.Step[api.State]{From: api.StatePaused, To: api.StateRunning, By: "resume, rollback, promote"},
	transition.Step[api.State]{From: api.StatePaused, To: api.StateHibernated, By: "hibernate"},
	transition.Step[api.State]{From: api.StatePaused, To: api.StateFailed, By: "its sentry ends"},
	transition.Step[api.State]{From: api.StatePaused, To: api.StateDestroyed, By: "destroy"},
	transition.Step[api.State]{From: api.StateHibernated, To: api.StateRunning, By: "wake, rollback, promote"},
	transition.Step[api.State]{From: api.StateHibernated, To: api.StateFailed, By: "its snapshot is gone"},
	transition.Step[api.State]{From: api.StateHibernated, To: api.StateDestroyed, By: "destroy"},
	transition.Step[api.State]{From: api.StateFailed, To: api.StateRunning, By: "rollback, promote"},
	transition.Step[api.State]{From: api.StateFailed, To: api.StateHibernated, By: "its sentry ended when its state was on disk"},
	transition.Step[api.State]{From: api.StateFailed, To: api.StateDestroyed, By: "destroy"},
)

// Become changes the state in a record, and refuses what States does not allow. Nothing
// else assigns the state. reason says why a sandbox failed and is empty else.
func (r *Record) Become(to api.State, reason string) error {
	s := &r.Sandbox
	if err := States.Check(s.ID, s.State, to); err != nil {
		if s.State == api.StateFailed { // its sentry ended, perhaps while a request was under way
			return errFailed(s)
		}
		return err
	}
	s.State, s.Reason = to, reason
	return nil
}

func errFailed(s *api.Sandbox) error {
	return api.Errorf(api.CodeSandboxDied, "sandbox %s failed: %s", s.ID, s.Reason)
}

// runAfter makes r the record of a running sandbox that was in the state from before.
func (r *Record) runAfter(from api.State) error {
	r.Sandbox.State = from
	return r.Become(api.StateRunning, "")
}
