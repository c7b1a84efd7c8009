// Package capture freezes sandboxes, and keeps what was frozen as snapshots.
//
//	Freezer  freezes a sandbox: for forks, for a snapshot, or for good
//	Taker    takes snapshots, in memory or on disk, awaited or in the background
//
// A snapshot that nobody waits for is uploading from the end of its freeze until it is
// on disk. It is restored from live memory meanwhile, whose pins it holds. The record
// says so before the caller is told of it: a daemon that ends in the middle leaves a
// snapshot that the next one finds failed, and files that it collects.
//
// The package must never know how sandboxes are made of what it froze.
package capture
