// Package networks gives the sandboxes of a node what they may reach: it makes documents of
// requests, keeps the gateway told of every sentry that has a network, and replaces documents
// of sandboxes that run.
//
//	request ── profiles ──► document, in the record of the sandbox
//	                            │ with the bounds of the daemon
//	                            ▼
//	                        registration ──► network/host ──► gateway
//
// A registration is that of a sentry, not of a sandbox: a sandbox that is rolled back, woken or
// promoted goes on in another sentry, which has its channel from its first instruction on. What
// its guest asks for waits there until the registration is in force.
//
// The record is stored before the gateway is told. A daemon that is killed in between tells the
// gateway when it starts again.
//
// The package must never know how a gateway is started, nor how a sandbox is made.
package networks
