// Package idempotent does a request that has an idempotency key once: it stores that the
// request has begun before it is done, and its answer afterwards. A request that a daemon had
// begun before it died is never begun again.
//
// It must never know what a request does.
package idempotent
