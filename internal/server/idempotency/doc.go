// Package idempotency stores the answers to requests that may come again, so that they are
// done once. It keeps them for a day, and a bounded number for each tenant.
//
// It must never know the contents of a request, nor which caller of a tenant made it: keys
// are digests.
package idempotency
