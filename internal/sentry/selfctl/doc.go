// Package selfctl is the socket in a sandbox by which its processes control the sandbox: it
// reads requests, passes them to the daemon, and writes the daemon's answers.
//
// Lock order: the gate's accesses, Controller.mu.
//
// It must never know the meaning of a request.
package selfctl
