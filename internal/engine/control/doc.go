// Package control is what a sandbox that may control itself and its daemon say
// to each other: one JSON document a line on a unix socket in the sandbox, a
// Reply to each Request.
//
// All of it is said by the guest, or for it to read: nothing here may be
// believed. The package must never know how a request reaches the daemon, nor
// decide what is allowed, and it imports nothing, because the command inside the
// sandbox is linked with it and must stay small.
package control
