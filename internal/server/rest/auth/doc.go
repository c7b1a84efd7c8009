// Package auth finds the caller of a request and checks its right to a route: which scope each
// route demands, where a token may stand, and for how long it is valid.
//
// It must never decide which sandboxes a caller sees: the service does, where it resolves
// references.
package auth
