// Package portguard serves a port of a sandbox that is published on the host with a token: it
// passes on requests that carry the token, without it, and refuses all others.
//
//	Authorization: Bearer TOKEN    programs
//	X-Ramet-Token: TOKEN           programs, if Authorization is for the server in the sandbox
//	?token=TOKEN                   browsers: they get a cookie and go on without the token
//
// The cookie is another secret, in memory, and ends with the guard. It is accepted for requests
// of the server's own pages only.
//
// The package must never know which ports are published, nor keep a token.
package portguard
