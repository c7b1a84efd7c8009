// Package dataplane is what users do inside of sandboxes: run commands and code, look
// at processes and signal them, read and write files, connect to ports and follow
// logs.
//
// Each call finds its sandbox, acquires its sentry for as long as the call uses it, and
// translates between the API's types and those of package wire. A sandbox that is in use
// neither rests nor changes its sentry because it is idle; a call that only looks on is
// no use, so that a sandbox with an open console still goes to rest.
//
//	commands   one command with its streams
//	processes  lists, starts, signals, input, output
//	contexts   interpreters and the cells that they run
//	files      files, archives, watches
//	ports      connections to TCP ports
//	logs       the output of all kept processes
//
// The package must never know how a sandbox is made, recorded, forked or put to rest:
// it declares what it needs of sandboxes (Sandboxes, Sandbox). It trusts no answer of a
// sentry to be bounded or well formed.
package dataplane
