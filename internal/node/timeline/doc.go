// Package timeline keeps the steps of sandboxes that are checkpointed by themselves,
// returns sandboxes to them, and finds by bisection the step at which a command begins to
// fail.
//
// Each step has a snapshot that only the sandbox itself returns to. The sandbox is frozen
// before the result of the command is told, and the snapshot is written in the background
// as the difference from the one before.
//
// Lock order: the lock that serializes the steps of a sandbox is taken outside of all
// locks of the node, and the lock of a Log inside of them.
//
// The package never freezes, restores or destroys a sandbox itself.
package timeline
