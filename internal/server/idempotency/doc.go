// Package idempotency keeps what was answered to requests that may come again, so that
// they are done once: for a day, and in bounded number for each
// tenant.
//
// It must never know what a request was, nor who of a tenant made it: keys are
// digests.
package idempotency
