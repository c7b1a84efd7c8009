// Package e2b serves the interface of E2B to its clients, unmodified: sandboxes, templates and snapshots over
// REST, and the agent and the code interpreter of each sandbox, which packages envd and interpreter answer
// for.
//
//	E2B's SDK ──► REST: X-API-KEY, a token of Ramet ─────────────────────► service
//	          ──► agent, interpreter, ports: X-Access-Token, of one sandbox ─┘
//
// A request names its sandbox by the headers E2b-Sandbox-Id and E2b-Sandbox-Port, or by its host,
// PORT-ID.DOMAIN. What a sandbox needs to be known for is in its metadata, below "e2b/": the server has no
// state but the schedule of the sandboxes that are paused instead of destroyed, which it reads again when it
// starts.
//
// The package must never know how the machine does its work.
package e2b
