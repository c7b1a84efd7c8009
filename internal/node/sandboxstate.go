package node

import (
	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/node/transition"
)

// sandboxStates is the owner of the states of sandboxes: what is not in the table does
// not happen. docs/architecture/states.md has its drawing.
var sandboxStates = transition.New("sandbox",
	transition.Step[api.State]{From: "", To: api.StateCreating, By: "fork that nobody waits for"},
	transition.Step[api.State]{From: "", To: api.StateRunning, By: "create, fork, restore"},
	transition.Step[api.State]{From: api.StateCreating, To: api.StateRunning, By: "it is made"},
	transition.Step[api.State]{From: api.StateCreating, To: api.StateFailed, By: "it cannot be made, or the daemon ends"},
	transition.Step[api.State]{From: api.StateCreating, To: api.StateDestroyed, By: "destroy"},
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

// become changes the state in a record, and refuses what sandboxStates does not allow.
// Nothing else assigns the state. reason says why a sandbox failed and is empty else.
func (r *record) become(to api.State, reason string) error {
	s := &r.Sandbox
	if err := sandboxStates.Check(s.ID, s.State, to); err != nil {
		return err
	}
	s.State, s.Reason = to, reason
	return nil
}

// runAfter makes r the record of a running sandbox that was in the state from before.
func (r *record) runAfter(from api.State) error {
	r.Sandbox.State = from
	return r.become(api.StateRunning, "")
}

// become changes the state of an instance whose mu the caller holds. A transition that
// is not allowed is a defect: it is logged, and the state stays.
func (m *Node) become(b *instance, to api.State, reason string) {
	if err := b.rec.become(to, reason); err != nil {
		m.log.Error("change the state of a sandbox", "error", err)
	}
}
