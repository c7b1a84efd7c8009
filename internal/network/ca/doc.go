// Package ca makes certificates for the names whose TLS the gateway ends. Each tree of
// sandboxes has an authority of its own, which only its sandboxes trust, so that the key of
// one is worth nothing against others.
//
// An authority is made by the daemon and handed to the gateway. It outlives both, because
// its certificate is in files of sandboxes and of their snapshots: whoever keeps it on disk
// seals it first.
//
// The package must never know which names a sandbox may reach, nor how its certificate gets
// into files of a sandbox.
package ca
