// Package choose picks the image for this machine from an index, which may have images for several
// systems, architectures and variants of an architecture, beside signatures and attestations.
//
// The package must never know where an index comes from: an archive or a registry.
package choose
