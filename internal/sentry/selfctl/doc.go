// Package selfctl is the socket in a sandbox by which its processes control the sandbox:
// the sentry reads requests, has the daemon answer them, and writes the answers.
//
// Lock order: the gate's accesses, Controller.mu.
//
// It must never know what a request asks for.
package selfctl
