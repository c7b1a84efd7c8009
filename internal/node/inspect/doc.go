// Package inspect describes sandboxes to users: what they are, and what they use.
//
// The package must never change a sandbox, wake it, or count as a use of it.
package inspect
