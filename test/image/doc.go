// Package image tests images: of what sandboxes are made, and what is made of sandboxes. It has tests only,
// with real sandboxes: see package harness.
package image
