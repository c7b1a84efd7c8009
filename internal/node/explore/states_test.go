package explore

import (
	"errors"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/node/transition/transitiontest"
)

// TestStates walks the tables: explorations and attempts change their states as those say.
func TestStates(t *testing.T) {
	transitiontest.Walk(t, States, api.ExplorationStates, api.ExplorationDone, func(from api.ExplorationState, reason string, to api.ExplorationState, newReason string) (api.ExplorationState, string, error) {
		x := table{changed: make(chan struct{}), rec: record{Exploration: api.Exploration{State: from}}}
		err := x.become(to)
		if err == nil {
			reason = newReason
		}
		return x.rec.Exploration.State, reason, err
	})
	transitiontest.Walk(t, AttemptStates, api.AttemptStates, api.AttemptFailed, func(from api.AttemptState, reason string, to api.AttemptState, newReason string) (api.AttemptState, string, error) {
		x := table{changed: make(chan struct{}), order: map[int]int{}, rec: record{Exploration: api.Exploration{Children: []api.Attempt{{State: from, Value: reason}}}}}
		var err error
		if !x.change(0, to, func(a *api.Attempt) { a.Value = newReason }) {
			err = errors.New("it is not allowed")
		}
		return x.attempt(0).State, x.attempt(0).Value, err
	})
}

// TestStatesAreDrawn compares the drawings in the documents with the tables.
func TestStatesAreDrawn(t *testing.T) {
	transitiontest.Drawn(t, States, "../../../docs/architecture/states.md")
	transitiontest.Drawn(t, AttemptStates, "../../../docs/architecture/states.md")
}
