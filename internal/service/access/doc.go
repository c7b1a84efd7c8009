// Package access has the callers of requests and their rights: tenants, scopes and the tokens
// that stand for them.
//
// A Caller travels in the context of a request from the place that accepts a connection to
// the place that resolves a reference. Only the latter decides whether a caller sees a thing.
// No field of a request names a tenant.
//
// The package must never know which things there are to see, nor how requests reach it. It
// must never keep or write a token's secret.
package access
