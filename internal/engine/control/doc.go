// Package control is the protocol between a sandbox with self-control and its daemon: a
// JSON document per line on a unix socket in the sandbox, a Reply to each Request.
//
// Requests come from the guest, so nothing in them may be trusted. The package imports nothing,
// because the command inside of the sandbox is linked with it and must stay small.
//
// It must never know how a request reaches the daemon, nor decide what is allowed.
package control
