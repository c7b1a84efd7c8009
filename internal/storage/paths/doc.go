// Package paths knows where everything of one daemon is kept: what lives as
// long as the login session below the runtime directory, what survives it below
// the data directory.
//
// It is the only place that joins an identifier into a path, and it refuses
// what is not an identifier. It must never read or write what is at a path,
// except to make the two directories.
package paths
