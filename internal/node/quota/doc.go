// Package quota keeps what tenants and trees of sandboxes may have, and how much
// processor time they used.
//
// It must never know what a sandbox is, nor measure anything itself.
package quota
