// Package auth says who sends a request and whether a route is for them: which scope each
// route demands, where a token may stand, and for how long it counts.
//
// It must never decide which sandboxes a caller sees: the service does, where it resolves
// references.
package auth
