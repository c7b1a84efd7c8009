// Package share bounds and counts what several sandboxes do together: their connections, bytes and
// look-ups of names.
//
//	Share   of a tenant, or of a tree of sandboxes
//	Pace    delays bytes to a rate, which may change while flows wait
//
// It must never know what sandboxes may reach, nor whose they are.
package share
