// Package rest serves the REST interface: it admits requests, records them in the audit log,
// does those with an idempotency key once, and hands them to the operations below it or, for
// the ports of sandboxes, to the servers in them.
//
// It must never know an implementation of the service that it serves.
package rest
