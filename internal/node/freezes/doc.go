// Package freezes keeps the freezes of a node.
//
// A freeze is a sandbox at one moment, from which others are made. It keeps the pages of
// its source pinned and holds a reference on each memory file that its state refers to.
// Sandboxes, snapshots and later freezes of its children hold references on it; with the
// last one the pins are released, the memory files are let go, and so is the freeze that
// its source was made from.
//
// A freeze that sandboxes depend on has a record: a daemon that starts keeps the pins of
// those and releases all others (Recovery). A freeze without a record costs nothing but
// pins, so a daemon may die at any moment.
//
// Lock order: Table.mu, then the locks of package memfiles. No call to a sentry is made
// while Table.mu is held.
//
// The package must never know what a sandbox or a snapshot is, nor who holds a freeze.
package freezes
