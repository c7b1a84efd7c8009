// Package held keeps requests that wait for a verdict: those by which a fork that may yet be
// thrown away would change the world.
//
//	waiting ──► released ──► sending ──► sent
//	   ▲  │         ▲           ├──────► unknown ──► released, if told so explicitly
//	   │  │         └───────────│──────────┘
//	   └──┼────────│────────────┘ not sent
//	      └────────┴──► dropped, expired
//
// Each state is on disk before what it announces is done, so that a process that is killed
// at any moment leaves a request that is neither lost nor sent twice: released requests are
// sent by the next process, and those that were being sent are unknown. Nobody can say
// whether the server has them, so a user is told and decides.
//
// A request is one file for its record and one for its body, in one directory, as the guest
// sent them: secrets have placeholders. A finished request has no body.
//
// The package must never know which sandboxes there are, why a verdict falls or how a
// request reaches its server.
package held
