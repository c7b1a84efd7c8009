package explore

import (
	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/node/transition"
)

// States is the owner of the states of explorations: a transition that is not in the table does
// not happen. docs/architecture/states.md has its drawing, and that of AttemptStates.
var States = transition.New("exploration",
	transition.Step[api.ExplorationState]{From: "", To: api.ExplorationRunning, By: "explore"},
	transition.Step[api.ExplorationState]{From: api.ExplorationRunning, To: api.ExplorationFinishing, By: "no attempt is to run any more"},
	transition.Step[api.ExplorationState]{From: api.ExplorationRunning, To: api.ExplorationInterrupted, By: "the daemon was killed"},
	transition.Step[api.ExplorationState]{From: api.ExplorationFinishing, To: api.ExplorationDone, By: "the losers are gone"},
	transition.Step[api.ExplorationState]{From: api.ExplorationFinishing, To: api.ExplorationFailed, By: "a fork was refused, its sandbox is gone, or the winner could not be promoted or merged"},
	transition.Step[api.ExplorationState]{From: api.ExplorationFinishing, To: api.ExplorationCanceled, By: "cancel"},
	transition.Step[api.ExplorationState]{From: api.ExplorationFinishing, To: api.ExplorationInterrupted, By: "the daemon ended while attempts ran"},
)

// AttemptStates is the owner of the states of attempts.
var AttemptStates = transition.New("attempt",
	transition.Step[api.AttemptState]{From: "", To: api.AttemptWaiting, By: "fork"},
	transition.Step[api.AttemptState]{From: api.AttemptWaiting, To: api.AttemptRunning, By: "its turn"},
	transition.Step[api.AttemptState]{From: api.AttemptRunning, To: api.AttemptScoring, By: "its run has ended"},
	transition.Step[api.AttemptState]{From: api.AttemptRunning, To: api.AttemptFailed, By: "it cannot be run, or its run failed"},
	transition.Step[api.AttemptState]{From: api.AttemptScoring, To: api.AttemptSucceeded, By: "it has a score that is good enough"},
	transition.Step[api.AttemptState]{From: api.AttemptScoring, To: api.AttemptFailed, By: "it has no score, or a bad one"},
	transition.Step[api.AttemptState]{From: api.AttemptSucceeded, To: api.AttemptWaiting, By: "the next round of halving"},
	transition.Step[api.AttemptState]{From: api.AttemptWaiting, To: api.AttemptStopped, By: "the round, or the exploration, ends"},
	transition.Step[api.AttemptState]{From: api.AttemptRunning, To: api.AttemptStopped, By: "the round, or the exploration, ends, or memory is short"},
	transition.Step[api.AttemptState]{From: api.AttemptScoring, To: api.AttemptStopped, By: "the round, or the exploration, ends, or memory is short"},
)
